"""Snapshots of producers between rolls: when they are due, what they hold, what can go wrong."""

import asyncio
import errno

import pytest

from ottla.env.faulty_disk import DiskCall
from ottla.env.rng import SeededRng
from ottla.housekeeping.snapshot_sweep import SnapshotSweep
from ottla.log.append import own
from ottla.log.directories.recovery import open_log
from ottla.log.producers.snapshot import decode_snapshot, encode_snapshot
from ottla.log.upkeep.snapshot_job import AGE_MS_MAX, RECORDS_MAX, RECORDS_MIN, SnapshotJob, is_due
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker

LATER = AGE_MS_MAX / 1000 + 1


@pytest.fixture
def grow(words):
    """Append ``count`` records of a producer, with its next sequences; flush."""
    sequences = {}

    def append(node, count, producer_id=7, **fields):
        first = sequences.get(producer_id, 0)
        sequences[producer_id] = first + count
        node.append(
            (
                0,
                words.batch(
                    *[b"v"] * count,
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=first,
                    **fields,
                ),
            )
        )
        node.executor.run_all()

    return append


def snapshots(node):
    names = node.disk.list_directory("/data/t-0")
    assert not [name for name in names if name.endswith(".tmp")]
    return [int(name[:20]) for name in names if name.endswith(".snapshot")]


async def sweep(node, between=lambda: None):
    """Run a sweep to its end; ``between`` is called before each step of the executor."""
    task = asyncio.ensure_future(node.housekeeper.snapshot_producers())
    while not task.done():
        await asyncio.sleep(0)
        if node.executor.waiting:
            between()
            node.executor.run_next()
    task.result()


def content(node, offset):
    file = node.disk.open_read_only(f"/data/t-0/{offset:020d}.snapshot")
    return file.read_at(0, file.size())


async def test_a_log_is_due_after_a_minute_or_after_many_records(node, grow):
    log = node.partition().log
    grow(node, RECORDS_MIN - 1)
    node.clock.advance(LATER)
    await sweep(node)
    assert snapshots(node) == [], "too few records to be worth it"
    grow(node, 1)
    await sweep(node)
    assert snapshots(node) == [RECORDS_MIN]
    grow(node, RECORDS_MIN)
    await sweep(node)
    assert snapshots(node) == [RECORDS_MIN], "a minute has not passed"
    node.clock.advance(LATER)
    await sweep(node)
    assert snapshots(node) == [RECORDS_MIN, 2 * RECORDS_MIN]
    assert content(node, 2 * RECORDS_MIN) == encode_snapshot(log.producers.states)
    node.clock.advance(LATER)
    await sweep(node)
    assert snapshots(node) == [RECORDS_MIN, 2 * RECORDS_MIN], "nothing was appended since"
    grow(node, RECORDS_MAX // 2)
    grow(node, RECORDS_MAX // 2)
    assert is_due(log, int(node.clock.monotonic() * 1000))
    await sweep(node)
    assert snapshots(node) == [2 * RECORDS_MIN, 2 * RECORDS_MIN + RECORDS_MAX]


async def test_without_producers_there_is_none(node, words):
    node.append((0, words.batch(*[b"v"] * RECORDS_MIN)))
    node.executor.run_all()
    node.clock.advance(LATER)
    await sweep(node)
    assert snapshots(node) == []


async def test_it_holds_what_was_known_when_it_began_whatever_is_appended_meanwhile(node, grow):
    grow(node, RECORDS_MIN)
    for producer_id in range(500):
        grow(node, 1, producer_id)
    known = encode_snapshot(node.partition().log.producers.states)
    end = node.partition().log.log_end_offset
    node.clock.advance(LATER)
    task = asyncio.ensure_future(node.housekeeper.snapshot_producers())
    for producer_id in (7, 0, 499, 1000, 3):
        await asyncio.sleep(0)
        grow(node, 2, producer_id, transactional=producer_id != 7)
    while not task.done():
        await asyncio.sleep(0)
        node.executor.run_all()
    assert snapshots(node) == [end]
    assert content(node, end) == known


@pytest.mark.parametrize("what", ["truncate", "delete"])
async def test_of_a_history_that_is_cut_off_meanwhile_nothing_stays(node, grow, what):
    grow(node, RECORDS_MIN)
    node.clock.advance(LATER)
    log = node.partition().log

    def cut():
        if what == "truncate":
            log.truncate_to(0)
            node.partition().high_watermark = 0
        elif log.is_in_service:
            log.abandon()

    await sweep(node, between=cut)
    assert snapshots(node) == []


@pytest.mark.parametrize("call", [DiskCall.WRITE, DiskCall.RENAME, DiskCall.OPEN])
async def test_a_full_disk_costs_the_snapshot_and_nothing_else(node, grow, call):
    grow(node, RECORDS_MIN)
    node.clock.advance(LATER)
    node.disk.fail(call, errno=errno.ENOSPC)
    await sweep(node)
    assert snapshots(node) == []
    assert node.partition().log.is_in_service
    await sweep(node)
    assert snapshots(node) == [RECORDS_MIN]


async def test_a_failed_sync_is_told(node, grow):
    grow(node, RECORDS_MIN)
    node.clock.advance(LATER)
    told = []
    node.partition().log.on_disk_error = told.append
    node.disk.fail(DiskCall.SYNC, errno=errno.EIO)
    await sweep(node)
    assert snapshots(node) == []
    assert len(told) == 1


async def test_a_stop_waits_for_the_one_under_way_and_begins_no_other(node, grow):
    grow(node, RECORDS_MIN)
    node.clock.advance(LATER)
    task = asyncio.ensure_future(node.housekeeper.snapshot_producers())
    await asyncio.sleep(0)
    stop = asyncio.ensure_future(node.housekeeper.settle())
    await asyncio.sleep(0)
    assert not stop.done()
    while not task.done():
        await asyncio.sleep(0)
        node.executor.run_all()
    await stop
    assert snapshots(node) == [RECORDS_MIN]
    await node.housekeeper.snapshot_producers()


async def test_older_ones_stay_until_two_newer_ones_are_flushed(make_node, grow, words):
    node = make_node(flush_messages=words.ASYNC_FLUSH)
    for _ in range(4):
        grow(node, RECORDS_MIN)
        node.clock.advance(LATER)
        await sweep(node)
    assert snapshots(node) == [RECORDS_MIN * n for n in (1, 2, 3, 4)]
    node.partition().flush()
    node.executor.run_all()
    grow(node, RECORDS_MIN)
    node.clock.advance(LATER)
    await sweep(node)
    assert snapshots(node) == [RECORDS_MIN * n for n in (3, 4, 5)]


async def test_a_roll_leaves_many_producers_to_the_sweep(node, grow, monkeypatch):
    monkeypatch.setattr("ottla.log.producers.producers.PRODUCERS_PER_ROLL_MAX", 1)
    grow(node, RECORDS_MIN // 2)
    grow(node, RECORDS_MIN // 2, 8)
    log = node.partition().log
    log.roll()
    assert snapshots(node) == []
    node.clock.advance(LATER)
    await sweep(node)
    assert snapshots(node) == [RECORDS_MIN]


@pytest.mark.parametrize("seed", range(8))
async def test_aborts_that_a_snapshot_spares_the_replay_survive_a_power_cut(node, grow, seed):
    grow(node, RECORDS_MIN, transactional=True)
    marker = build_end_transaction_marker(
        EndTransactionMarker(ControlType.ABORT, 0),
        producer_id=7,
        producer_epoch=0,
        timestamp_ms=1_700_000_000_000,
    )
    where = node.partition().topic_partition
    node.replica_manager.appends.many([(where, own(memoryview(marker)))], acks=-1, timeout_ms=1)
    node.executor.run_all()
    node.clock.advance(LATER)
    await sweep(node)
    assert snapshots(node) == [RECORDS_MIN + 1]
    disk = node.disk._inner.crash(SeededRng(seed))
    assert disk.size_of(f"/data/t-0/{0:020d}.txnindex") == 34
    log = open_log(
        disk,
        node.clock,
        "/data/t-0",
        where,
        node.settings.log,
        recovery_point=RECORDS_MIN + 1,
        log_start_offset=0,
        is_clean=False,
    )
    (segment,) = log.segments
    found = [tuple(one) for one in segment.transaction_index.entries()]
    assert found == [(7, 0, RECORDS_MIN, RECORDS_MIN + 1)]


def test_a_job_between_two_rolls_keeps_the_order(node, grow):
    grow(node, 5)
    log = node.partition().log
    job = SnapshotJob(log, node.disk)
    while not job.encode(1):
        pass
    grow(node, 5)
    log.roll()
    job.run()
    assert job.publish(0)
    job.clean_up()
    assert log.producers.snapshots.offsets == [5, 10]
    states = decode_snapshot(content(node, 5), 0)
    assert [state.batches[-1].last_offset for _, state in states] == [4]


async def test_the_clock_is_read_once_in_a_turn_however_many_logs_there_are(node, monkeypatch):
    logs = [node.partition().log] * 300
    looks = []
    monkeypatch.setattr(node.clock, "monotonic", lambda: looks.append(1) or 0.0)
    await SnapshotSweep(node.disk, node.clock, node.executor, lambda: logs).take_due()
    assert len(looks) == 1
