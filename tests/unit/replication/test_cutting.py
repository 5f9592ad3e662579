"""A follower's log is cut, or begins anew, off the loop; a power cut leaves one or the other."""

import asyncio
import errno
from functools import partial

import pytest

from ottla.env.clock import ManualClock
from ottla.env.faulty_disk import CHANGES, DiskKilled, FaultyDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, InvariantBroken, KafkaError
from ottla.ids import NodeId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.cutting import LogCuts
from ottla.log.directories.manager import LogManager
from ottla.log.files.checkpoints import read_offset_checkpoint
from ottla.log.files.layout import LOG_START_CHECKPOINT
from ottla.log.upkeep.front import raise_start_offset
from ottla.metadata.image import PartitionChange
from ottla.pending import pending_of
from ottla.replication.cutting import Cutting

T0 = TopicPartition("t", 0)
CLEANED = "/data/cleaner-offset-checkpoint"
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100)


def filled(make_node, words, *, epochs=3, **fields):
    """Return a node of which partition 0 follows, with four batches of each leader epoch."""
    node = make_node(**CONFIG._asdict(), **fields)
    sequence = 0
    for epoch in range(epochs):
        node.change(node.led(0, epoch=epoch, old=node.partition().state))
        for _ in range(4):
            batch = words.batch(
                b"a" * 60, b"b" * 60, producer_id=7, producer_epoch=0, base_sequence=sequence
            )
            node.append((0, batch))
            node.executor.run_all()
            sequence += 2
    run_checkpoint(node)
    node.change(node.led(0, leader=NodeId(2), epoch=epochs, old=node.partition().state))
    return node


def run_checkpoint(node):
    job = node.log_manager.checkpoint_job()
    job.run()
    node.log_manager.checkpointed(job)


def cutting_of(node):
    return Cutting(LogCuts(node.log_manager, node.clock), node.executor, node.clock)


async def finish(node, work):
    pending = pending_of(work)
    for _ in range(500):
        for _ in range(5):
            await asyncio.sleep(0)
        if pending.is_done:
            if pending.error is not None:
                raise pending.error
            return
        if not node.executor.run_next():
            node.clock.advance(0.05)
    pytest.fail("it never ends")


def cut(node, offset):
    return finish(node, cutting_of(node).truncate(node.partition(), offset))


def anew(node, offset):
    return finish(node, cutting_of(node).begin_anew(node.partition(), offset))


def stored(log):
    return b"".join(segment.file.read_at(0, segment.size_bytes) for segment in log.segments)


def restart(disk):
    manager = LogManager(
        disk=disk,
        clock=ManualClock(),
        rng=SeededRng(2),
        log_dirs=["/data"],
        cluster_id="cluster",
        node_id=1,
        config_for=lambda topic: CONFIG,
    )
    manager.start()
    return manager


@pytest.mark.parametrize(
    ("offset", "end", "epochs"),
    [
        (24, 24, [(0, 0), (1, 8), (2, 16)]),
        (99, 24, [(0, 0), (1, 8), (2, 16)]),
        (20, 20, [(0, 0), (1, 8), (2, 16)]),
        (19, 18, [(0, 0), (1, 8), (2, 16)]),
        (16, 16, [(0, 0), (1, 8)]),
        (9, 8, [(0, 0)]),
        (0, 0, []),
    ],
)
async def test_a_cut_log_is_a_prefix_and_goes_on(make_node, words, offset, end, epochs):
    node = filled(make_node, words)
    before = stored(node.partition().log)
    await cut(node, offset)
    partition = node.partition()
    log = partition.log
    assert not partition.is_held
    assert log.log_end_offset == log.flushed_offset == end
    assert before.startswith(stored(log))
    assert [tuple(one) for one in log.leader_epochs.entries] == epochs
    assert node.log_manager.get(T0) is log
    log.check()
    partition.check()
    # The producer's sequence is what is left of it.
    node.change(node.led(0, epoch=4, old=partition.state))
    batch = words.batch(b"x", b"y", producer_id=7, producer_epoch=0, base_sequence=end)
    answer = node.append((0, batch))
    node.executor.run_all()
    assert words.codes(answer) == [ErrorCode.NONE]
    assert words.result_of(answer)[0].base_offset == end
    log.check()


def clean_to(node, offset):
    """Let a checkpoint say that T0 is clean below ``offset``; return the cleaner, which knows."""
    node.log_manager.checkpoints.job({CLEANED: {T0: offset}}).run()
    cleaner = node.housekeeper.cleaner
    cleaner._take_checkpoints()
    return cleaner


async def test_what_comes_after_a_cut_is_not_taken_for_clean(make_node, words):
    """Else it would keep several records of a key until the next ones of that key come."""
    node = filled(make_node, words)
    cleaner = clean_to(node, 22)
    assert cleaner._cleaned_to_of(node.partition()) == 22
    await cut(node, 10)
    node.change(node.led(0, epoch=4, old=node.partition().state))
    for _ in range(20):
        node.append((0, words.batch(b"x")))
        node.executor.run_all()
    assert cleaner._cleaned_to_of(node.partition()) <= 10
    assert read_offset_checkpoint(node.disk.inner.crash(SeededRng(3)), CLEANED)[T0] <= 10


async def test_the_cleaning_of_another_log_does_not_call_a_cut_one_clean_again(make_node, words):
    node = filled(make_node, words)
    cleaner = clean_to(node, 22)
    await cut(node, 10)
    await finish(node, cleaner._note(node.partition(1), 0))
    assert cleaner._cleaned_to_of(node.partition()) <= 10
    assert read_offset_checkpoint(node.disk.inner.crash(SeededRng(3)), CLEANED)[T0] <= 10


async def test_a_replica_that_comes_back_is_not_taken_for_clean(make_node, words):
    """What it has is copied again, by a leader that may not have compacted it."""
    node = filled(make_node, words)
    cleaner = clean_to(node, 22)
    before = node.partition()
    assert cleaner._cleaned_to_of(before) == 22
    here = before.state
    away = here._replace(replicas=(NodeId(2),), left=(NodeId(1),), partition_epoch=100)
    back = here._replace(partition_epoch=101)
    for old, new in ((here, away), (away, back)):
        node.change(PartitionChange("t", before.topic_id, 0, old, new))
    assert node.partition() is not before
    assert cleaner._cleaned_to_of(node.partition()) is None
    cleaner._take_checkpoints()
    assert not cleaner._cleaned_to, "nor does it keep what is gone"


async def test_a_log_begins_anew_with_nothing_of_what_it_knew(make_node, words):
    node = filled(make_node, words)
    await anew(node, 1000)
    partition = node.partition()
    log = partition.log
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (1000, 1000, 1000)
    assert partition.high_watermark == 1000
    assert log.leader_epochs.entries == []
    assert len(log.producers.states) == 0
    assert log.topic_id == partition.topic_id
    log.check()
    partition.check()
    names = node.disk.list_directory("/data/t-0")
    assert not [name for name in names if name.endswith("snapshot")]
    node.log_manager.remove_deleted()
    assert not [name for name in node.disk.list_directory("/data") if name.endswith("delete")]
    node.change(node.led(0, epoch=4, old=partition.state))
    node.append((0, words.batch(b"x")))
    node.executor.run_all()
    run_checkpoint(node)
    again = restart(node.disk.inner.crash(SeededRng(3))).get(T0)
    assert (again.log_start_offset, again.log_end_offset) == (1000, 1001)


@pytest.mark.parametrize("change", [partial(cut, offset=10), partial(anew, offset=50)])
async def test_the_loop_calls_no_disk_while_the_log_is_cut(make_node, words, change):
    node = filled(make_node, words)
    running = pending_of(change_of(node, change))
    for _ in range(20):
        await asyncio.sleep(0)
    before = dict(node.disk.counts)
    assert node.partition().is_held
    waiting = node.append((0, words.batch(b"late")), acks=1)
    fetched = node.fetch((0, 0), max_wait_ms=0)
    assert not fetched[0].region
    for _ in range(20):
        await asyncio.sleep(0)
    assert node.disk.counts == before
    node.executor.run_all()
    before = dict(node.disk.counts)
    for _ in range(20):
        await asyncio.sleep(0)
    assert node.disk.counts == before
    assert running.is_done
    assert running.error is None
    assert words.codes(waiting) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def change_of(node, change):
    offset = change.keywords["offset"]
    one = cutting_of(node)
    work = one.truncate if change.func is cut else one.begin_anew
    return work(node.partition(), offset)


async def test_it_waits_for_the_cleaner_and_for_a_flush(make_node, words):
    node = filled(make_node, words)
    log = node.partition().log
    log.is_swapping = True
    running = pending_of(cutting_of(node).truncate(node.partition(), 10))
    for _ in range(50):
        await asyncio.sleep(0)
        node.clock.advance(0.05)
        node.executor.run_all()
    assert not running.is_done
    assert log.log_end_offset == 24
    log.is_swapping = False
    for _ in range(50):
        await asyncio.sleep(0)
        node.clock.advance(0.05)
        node.executor.run_all()
    assert running.is_done
    assert node.partition().log.log_end_offset == 10


async def test_a_checkpoint_on_its_way_does_not_raise_the_recovery_point_again(make_node, words):
    node = filled(make_node, words)
    late = node.log_manager.checkpoint_job()  # It still says 24, and is written last.
    await cut(node, 10)
    late.run()
    node.log_manager.checkpointed(late)
    again = restart(node.disk.inner.crash(SeededRng(3)))
    assert again.offline == {}
    assert again.get(T0).log_end_offset == 10


@pytest.mark.parametrize(("change", "offset"), [(cut, -1), (anew, 23)])
async def test_what_makes_no_sense_changes_nothing(make_node, words, change, offset):
    node = filled(make_node, words)
    with pytest.raises(InvariantBroken):
        await change(node, offset)
    assert not node.partition().is_held
    assert node.partition().log.log_end_offset == 24


async def test_a_log_out_of_service_is_not_cut(make_node, words):
    node = filled(make_node, words)
    node.log_manager.fail_directory("/data", OSError(errno.EIO, "Input/output error"))
    for change, offset in ((cut, 10), (anew, 50)):
        with pytest.raises(KafkaError) as refused:
            await change(node, offset)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "outcomes"),
    [
        # A cut takes segments from the end, one by one: what is found is a prefix.
        (partial(cut, offset=9), {(0, end) for end in range(8, 25, 2)}),
        (partial(anew, offset=1000), {(0, 24), (1000, 1000)}),
    ],
)
async def test_a_power_cut_at_any_call_leaves_the_old_log_or_the_new_one(
    make_node, words, change, outcomes
):
    found, nth = set(), 0
    while True:
        nth += 1
        node = filled(make_node, words)
        before = stored(node.partition().log)
        batch_bytes = len(before) // 12
        node.disk.kill_at(nth)
        with_power = False
        try:
            await change(node)
            with_power = not node.disk.killed
        except (DiskKilled, KafkaError):
            pass
        for seed in range(3):
            manager = restart(FaultyDisk(node.disk.inner.crash(SeededRng(nth * 3 + seed))))
            assert manager.offline == {}, nth
            log = manager.get(T0)
            log.check(are_indexes_sure=False)
            start, end = log.log_start_offset, log.log_end_offset
            found.add((start, end))
            assert (start, end) in outcomes, nth
            if not start:
                assert end >= 8, nth
                assert stored(log) == before[: batch_bytes * end // 2], nth
                known = log.producers.states.get(7)
                assert known.batches[-1].last_offset == end - 1
            else:
                assert len(log.producers.states) == 0
                assert log.leader_epochs.entries == []
            if with_power:
                assert end in {8, 1000}
            manager.remove_deleted()
            names = manager.disk.list_directory("/data")
            held = sorted(name for name in names if name.startswith("t-"))
            assert held == ["t-0", "t-1"], nth
            manager.stop()
        if with_power:
            break
    assert nth > 5
    assert {(0, 24), max(found)} <= found
    assert len(found) > 1


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", sorted(CHANGES, key=str))
@pytest.mark.parametrize("change", [partial(cut, offset=9), partial(anew, offset=1000)])
async def test_a_refused_call_leaves_a_log_that_serves_or_one_that_a_restart_opens(
    make_node, words, change, call, code
):
    for nth in range(1, 12):
        node = filled(make_node, words)
        before = stored(node.partition().log)
        node.disk.fail(call, nth=nth, errno=code)
        refused = False
        try:
            await change(node)
        except KafkaError:
            refused = True
        node.disk.heal()
        partition = node.partition()
        assert not partition.is_held
        log = partition.log
        if log.is_in_service and not refused:
            log.check(are_indexes_sure=False)
        if log.is_in_service and refused:
            assert (log.log_end_offset, stored(log)) == (24, before)
            await change(node)
            assert node.partition().log.log_end_offset in {8, 1000}
        again = restart(node.disk.inner.crash(SeededRng(nth)))
        assert again.offline == {}
        end = again.get(T0).log_end_offset
        assert end == 1000 or stored(again.get(T0)) == before[: len(before) * end // 24]
        assert end >= 8


async def test_a_power_cut_amid_a_cut_brings_no_deleted_records_back(make_node, words):
    """A checkpoint that was made meanwhile said that the log starts where it was flushed to."""
    node = filled(make_node, words)
    log = node.partition().log
    base = log.segments.holding(16).base_offset
    assert base < 14
    raise_start_offset(log, 14)
    run_checkpoint(node)
    LogCuts(node.log_manager, node.clock).cut_job(log, 16)
    run_checkpoint(node)
    path = f"/data/{LOG_START_CHECKPOINT}"
    assert read_offset_checkpoint(node.disk, path) == {T0: 14}
    again = restart(node.disk.inner.crash(SeededRng(3))).get(T0)
    assert again.log_start_offset == 14
