"""Segments go only when what they say of producers outlives a power cut without them."""

import asyncio
import errno

import pytest

from ottla.env.faulty_disk import DiskCall
from ottla.env.rng import SeededRng
from ottla.ids import TopicPartition
from ottla.log.directories.copying import LogCopy
from ottla.log.directories.recovery import open_log
from ottla.log.upkeep.front import (
    drop_segments_below,
    has_segments_below,
    is_told_durably,
    raise_start_offset,
)
from ottla.log.upkeep.snapshot_job import SnapshotJob
from tests.unit.housekeeping.test_deletion import finish

T0 = TopicPartition("t", 0)
SEGMENTS = 6
MANY = "ottla.log.producers.producers.PRODUCERS_PER_ROLL_MAX"


@pytest.fixture
def write(words):
    """Append a record of producer 7, with the next sequence."""

    def append(node, sequence):
        batch = words.batch(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
        pending = node.append((0, batch))
        node.executor.run_all()
        return pending

    return append


@pytest.fixture
def untold(make_node, write, monkeypatch):
    """A node whose partition 0 has six segments, each of one record; no roll took a snapshot."""

    def make(**config):
        monkeypatch.setattr(MANY, 0)
        node = make_node(**({"segment_bytes": 100} | config))
        for sequence in range(SEGMENTS):
            write(node, sequence)
        assert snapshots(node.disk) == []
        return node

    return make


def snapshots(disk):
    names = disk.list_directory("/data/t-0")
    return [int(name[:20]) for name in names if name.endswith(".snapshot")]


async def delete(node, offset):
    return await finish(node, node.housekeeper.deletion.delete_records([(T0, offset)]))


def opened(node, disk, *, start_offset=0):
    """Open the log of partition 0 as a start does that was not preceded by a clean stop."""
    return open_log(
        disk,
        node.clock,
        "/data/t-0",
        T0,
        node.settings.log,
        recovery_point=SEGMENTS,
        log_start_offset=start_offset,
        is_clean=False,
    )


def cut(node, seed, *, start_offset=0):
    """Cut the power, and open the log again."""
    log = opened(node, node.disk._inner.crash(SeededRng(seed)), start_offset=start_offset)
    log.check()
    return log


def last_sequence(log):
    state = log.producers.states.get(7)
    return None if state is None else state.batches[-1].last_sequence


@pytest.mark.parametrize("seed", range(6))
async def test_a_producer_whose_batches_are_deleted_is_known_after_a_power_cut(untold, seed):
    node = untold()
    assert await delete(node, SEGMENTS - 1) == [SEGMENTS - 1]
    log = node.partition().log
    assert log.segment_count == 1
    assert last_sequence(cut(node, seed, start_offset=SEGMENTS - 1)) == SEGMENTS - 1


@pytest.mark.parametrize("seed", range(6))
async def test_a_producer_whose_batches_have_all_expired_is_known_after_a_power_cut(untold, seed):
    node = untold(retention_bytes=0)
    await asyncio.gather(node.housekeeper.deletion.delete_old_segments(), finish(node))
    log = node.partition().log
    assert (log.segment_count, log.size_bytes) == (1, 0)
    assert last_sequence(cut(node, seed, start_offset=SEGMENTS)) == SEGMENTS - 1


@pytest.mark.parametrize("call", [DiskCall.WRITE, DiskCall.RENAME, DiskCall.OPEN])
async def test_while_the_disk_refuses_the_snapshot_the_segments_stay(untold, call, caplog):
    node = untold()
    log = node.partition().log
    raise_start_offset(log, SEGMENTS - 1)
    node.log_manager.checkpoint_job().run()
    node.disk.fail(call, errno=errno.ENOSPC, lasting=True)
    fronts = []
    node.housekeeper.deletion._hide_below(node.partition(), SEGMENTS - 1, fronts)
    await asyncio.gather(node.housekeeper.deletion._drop(fronts), finish(node))
    assert log.segment_count == SEGMENTS
    assert "no snapshot of producers of t-0" in caplog.text
    for seed in range(3):
        assert last_sequence(cut(node, seed, start_offset=SEGMENTS - 1)) == SEGMENTS - 1
    node.disk.heal()
    node.measure_space()
    await asyncio.gather(node.housekeeper.deletion.delete_old_segments(), finish(node))
    assert log.segment_count == 1


async def test_rolls_that_were_flushed_need_no_snapshot_more(make_node, write):
    node = make_node(segment_bytes=100)
    for sequence in range(SEGMENTS):
        write(node, sequence)
    before = snapshots(node.disk)
    assert before[-1] == SEGMENTS - 1
    assert await delete(node, SEGMENTS - 1) == [SEGMENTS - 1]
    assert snapshots(node.disk) == before
    assert node.partition().log.segment_count == 1


async def test_a_snapshot_above_what_is_flushed_tells_nothing(make_node, write, words):
    """The log may end below it after a power cut: then it is removed."""
    node = make_node(segment_bytes=100, flush_messages=words.ASYNC_FLUSH)
    for sequence in range(SEGMENTS):
        write(node, sequence)
    log = node.partition().log
    log.flush()
    batch = words.batch(b"v", producer_id=7, producer_epoch=0, base_sequence=SEGMENTS)
    node.append((0, batch))
    log.producers.snapshots.offsets.append(SEGMENTS + 1)
    log.producers.snapshots.note_durable(SEGMENTS + 1)
    log.producers.snapshots.note_durable(SEGMENTS)
    assert log.flushed_offset == SEGMENTS
    assert is_told_durably(log, SEGMENTS)
    assert not is_told_durably(log, SEGMENTS + 1)


async def test_a_start_does_not_trust_the_snapshots_that_it_finds(make_node, write):
    """One that was never synced reads back after a kill, and may go with the power."""
    node = make_node(segment_bytes=100)
    for sequence in range(SEGMENTS):
        write(node, sequence)
    log = opened(node, node.disk)
    raise_start_offset(log, SEGMENTS - 1)
    assert has_segments_below(log, SEGMENTS - 1)
    assert drop_segments_below(log, node.disk, SEGMENTS - 1, 10) == []


@pytest.mark.parametrize("seed", range(8))
async def test_a_roll_after_a_start_leaves_the_only_snapshot_as_it_is(
    untold, write, monkeypatch, seed
):
    """Written anew and not synced, a power cut could take it; segments went because of it."""
    node = untold()
    assert await delete(node, SEGMENTS - 1) == [SEGMENTS - 1]
    assert snapshots(node.disk) == [SEGMENTS]
    node.partition().log.abandon()
    monkeypatch.setattr(MANY, 2_000)
    log = opened(node, node.disk, start_offset=SEGMENTS - 1)
    log.roll()
    log.abandon()
    state = cut(node, seed, start_offset=SEGMENTS - 1).producers.states.get(7)
    assert [one.last_sequence for one in state.batches] == [1, 2, 3, 4, 5]


async def test_a_roll_during_a_snapshot_at_its_offset_takes_nothing_from_it(untold, monkeypatch):
    node = untold()
    log = node.partition().log
    job = SnapshotJob(log, node.disk)
    assert job.encode(10)
    job.run()
    monkeypatch.setattr(MANY, 2_000)
    log.roll()
    assert job.publish(0)
    job.clean_up()
    job.end()
    assert is_told_durably(log, SEGMENTS)
    node.executor.run_all()
    for seed in range(8):
        log = cut(node, seed)
        assert log.producers.snapshots.offsets[-1] == SEGMENTS
        assert last_sequence(log) == SEGMENTS - 1


async def test_a_snapshot_gets_no_name_in_a_directory_that_another_job_holds(untold):
    """Who cuts or moves the log lists its files just then."""
    node = untold()
    partition = node.partition()
    job = SnapshotJob(partition.log, node.disk)
    assert job.encode(10)
    job.run()
    partition.hold()
    assert not job.publish(0)
    partition.release(partition.log)
    partition.log.end_hold(is_full=False)
    assert snapshots(node.disk) == []
    job.discard()
    assert [name for name in node.disk.list_directory("/data/t-0") if ".tmp" in name] == []


async def test_a_copy_without_the_snapshot_that_its_disk_refused_is_none(untold):
    """It would not know the producers whose batches have been removed."""
    node = untold()
    assert await delete(node, SEGMENTS - 1) == [SEGMENTS - 1]
    node.disk.make_directory("/data/copy")
    copy = LogCopy(node.disk, node.partition().log, "/data/copy")
    copy.complete()
    calls = node.disk.counts[DiskCall.RENAME]
    copy = LogCopy(node.disk, node.partition().log, "/data/copy")
    copy.complete()
    renames = node.disk.counts[DiskCall.RENAME] - calls
    for nth in range(1, renames + 1):
        node.disk.fail(DiskCall.RENAME, nth=nth, errno=errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            LogCopy(node.disk, node.partition().log, "/data/copy").complete()
        node.disk.heal()


def test_without_producers_nothing_has_to_be_told(make_node, words):
    node = make_node(segment_bytes=100)
    for _ in range(SEGMENTS):
        node.append((0, words.batch()))
        node.executor.run_all()
    log = node.partition().log
    raise_start_offset(log, SEGMENTS - 1)
    assert len(drop_segments_below(log, node.disk, SEGMENTS - 1, 10)) > 0
    assert log.segment_count == 1


def test_a_snapshot_from_before_the_first_segment_tells_nothing(make_node, write):
    """It does not know what the batches in between said: the next one would be refused."""
    node = make_node(segment_bytes=100)
    for sequence in range(SEGMENTS):
        write(node, sequence)
    log = node.partition().log
    raise_start_offset(log, SEGMENTS - 1)
    drop_segments_below(log, node.disk, SEGMENTS - 1, 10)
    node.disk.sync_directory("/data/t-0")
    oldest, *others = snapshots(node.disk)
    for offset in others:
        node.disk.remove(f"/data/t-0/{offset:020d}.snapshot")
    node.disk.sync_directory("/data/t-0")
    assert oldest < SEGMENTS - 1
    again = cut(node, 0, start_offset=SEGMENTS - 1)
    assert [one.last_sequence for one in again.producers.states.get(7).batches] == [SEGMENTS - 1]
    assert snapshots(again.segments.active.disk) == []


async def test_a_snapshot_is_taken_once_for_a_sweep_and_a_deletion_at_once(untold, monkeypatch):
    node = untold()
    monkeypatch.setattr("ottla.log.upkeep.snapshot_job.RECORDS_MIN", 1)
    node.clock.advance(61)
    sweep = asyncio.ensure_future(node.housekeeper.snapshot_producers())
    await asyncio.sleep(0)
    await delete(node, SEGMENTS - 1)
    await sweep
    assert snapshots(node.disk) == [SEGMENTS]
    assert node.partition().log.segment_count == 1
