"""A log that is cut back to what is committed knows its producers, and its epochs, up to there."""

import asyncio
import contextlib

import pytest

from ottla.env.faulty_disk import DiskKilled, FaultyDisk
from ottla.log.directories.cutting import LogCuts
from ottla.log.replicated import append_replicated, check_replicated
from ottla.log.upkeep.front import is_told_durably, raise_start_offset
from ottla.records.batch import patch_offsets
from ottla.records.builder import build_batch
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from ottla.records.record import Record
from tests.ended_process import give_locks_back
from tests.property.log.compacting import read_committed
from tests.unit.replication.conftest import Node
from tests.unit.replication.test_compacted_epochs import held, write
from tests.unit.replication.test_following import Pair

PRODUCER = {"producer_id": 7, "producer_epoch": 0}


@pytest.fixture
def pair(make_node):
    def make(**config):
        compacted = {"is_compacted": True, "min_cleanable_dirty_ratio": 0.0}
        return make_node(**{**config, **compacted, "segment_bytes": 100_000})

    return Pair(make)


def send(node, words, key, **fields):
    """Append a record, synced; return its offset, or that of what it repeats."""
    batch = build_batch([Record(key=key, value=b"v", timestamp=1_700_000_000_000)], **fields)
    pending = node.append((0, batch), acks=1)
    node.executor.run_all()
    (result,) = words.result_of(pending)
    return result.base_offset


def append(node, words, sequence):
    return send(node, words, b"k", base_sequence=sequence, **PRODUCER)


def checkpoint(node):
    job = node.log_manager.checkpoint_job()
    job.run()
    node.log_manager.checkpointed(job)


def roll(node):
    node.partition().log.roll()
    node.partition().flush()
    node.executor.run_all()


async def clean(node):
    cleaning = asyncio.ensure_future(node.housekeeper.cleaner.clean())
    while not cleaning.done():
        for _ in range(5):
            await asyncio.sleep(0)
        if not node.executor.run_next():
            node.clock.advance(1)
    await cleaning


@pytest.mark.parametrize("committed_batches", [1, 2])
async def test_a_producer_is_known_by_what_is_committed(pair, words, committed_batches):
    """Once a batch was taken twice there, or the next one was refused: clean elections, no crash.

    Compaction left the producer its last batch, which was not committed, and rolls above the high
    watermark had removed the snapshots below it.
    """
    for sequence in range(committed_batches):
        append(pair.leading, words, sequence)
    write_more(pair.leading, words, 3)
    roll(pair.leading)
    write_more(pair.leading, words, 3)
    await pair.catch_up()
    former, other = pair.leading, pair.following
    append(former, words, committed_batches)  # The follower does not get it.
    for _ in range(4):
        roll(former)
        write_more(former, words, 1)
    await clean(former)
    pair.lead(1, 2)
    await pair.catch_up()
    pair.lead(0, 3)
    assert pair.leading is former
    assert held(former) == held(other) or len(held(former)) < len(held(other)), "compacted"
    last = committed_batches - 1
    assert append(former, words, last) == last, "a resend: it has that offset"
    end = former.partition().log.log_end_offset
    assert append(former, words, committed_batches) == end


def write_more(node, words, count):
    for _ in range(count):
        send(node, words, b"k")


async def test_segments_stay_until_a_snapshot_of_what_is_committed_tells_of_them(pair, words):
    append(pair.leading, words, 0)
    roll(pair.leading)
    write_more(pair.leading, words, 1)
    log = pair.leading.partition().log
    (snapshot,) = log.producers.snapshots.offsets
    assert not is_told_durably(log, snapshot), "the follower has nothing of it"
    await pair.catch_up()
    assert is_told_durably(log, snapshot)


async def test_one_replica_commits_alone(make_node, words):
    node = make_node(partitions=1)
    state = node.partition().state
    node.partition().apply_state(
        state._replace(replicas=(1,), partition_epoch=state.partition_epoch + 1)
    )
    append(node, words, 0)
    roll(node)
    write_more(node, words, 1)
    log = node.partition().log
    assert log.sure_offset == log.flushed_offset == 2
    assert is_told_durably(log, 1)


def test_a_killed_node_knows_the_epochs_from_where_it_starts_again(make_node, words):
    """Once it started where it had before, and its checkpoint had lost the epochs of that part.

    As a leader it took a former leader's tail, which was never committed, for its own.
    """
    config = {"partitions": 1, "index_interval_bytes": 100}
    node = make_node(**config)
    written = [(at, 1 + at // 20, "v") for at in range(60)]
    write(node, words, written)
    node.partition().log.roll()
    write(node, words, [(60, 3, "v")])
    node.partition().configure(node.settings)  # Which looks how far it is committed.
    checkpoint(node)
    log = node.partition().log
    raise_start_offset(log, 50)
    write(node, words, [(61, 4, "v")])  # A flush that saves the epochs.
    assert [entry.epoch for entry in log.leader_epochs.entries] == [3, 4]
    give_locks_back(node.disk.inner, "/data")
    again = Node(disk=node.disk, **config).partition().log
    assert again.log_start_offset == 0
    assert again.leader_epochs.entries == [(1, 0), (2, 20), (3, 40), (4, 61)]


@pytest.mark.parametrize("call", range(1, 30))
def test_a_log_that_is_killed_amid_a_cut_shows_no_aborted_record(make_node, words, call):
    """Once a segment's transaction index was gone before the segment was."""
    node = make_node(partitions=1)
    log = node.partition().log
    write(node, words, [(0, 1, "committed")])
    log.roll()
    aborted = words.batch(b"aborted", base_offset=1, leader_epoch=1, transactional=True, **PRODUCER)
    marker = bytearray(
        build_end_transaction_marker(
            EndTransactionMarker(ControlType.ABORT, 0), timestamp_ms=1_700_000_000_000, **PRODUCER
        )
    )
    patch_offsets(memoryview(marker), 2, 1)
    for batch in (aborted, marker):
        append_replicated(log, check_replicated(memoryview(batch)))
    log.roll()
    write(node, words, [(3, 1, "last")])
    checkpoint(node)
    cut = LogCuts(node.log_manager, node.clock).cut_job(log, 1)
    node.disk.kill_at(call)
    with contextlib.suppress(DiskKilled):
        cut.run()
    node.disk.kill()
    disk = node.disk.inner
    give_locks_back(disk, "/data")
    log = Node(disk=FaultyDisk(disk), partitions=1).partition().log
    log.producers.transactions.commit_to(log.log_end_offset)
    assert log.log_end_offset in (1, 3, 4)
    found = [record.value for record in read_committed(log, 10**6)]
    assert found == [b"committed" * 20, *[b"last" * 20] * (log.log_end_offset == 4)]


def test_a_log_that_is_cut_knows_its_latest_record(make_node, words):
    """Its indexes were in memory only: a time index of before made the segment look older."""
    node = make_node(partitions=1, index_interval_bytes=0)
    log = node.partition().log
    for offset, timestamp in enumerate((5, 9, 3, 4, 6)):
        record = Record(timestamp=1_700_000_000_000 + timestamp, value=b"v")
        batch = build_batch([record], base_offset=offset, leader_epoch=1)
        append_replicated(log, check_replicated(memoryview(bytearray(batch))))
        if offset == 3:  # The two files are written by themselves: one is behind.
            log.segments.active.indexes.offsets.write()
    log.flush()
    job = LogCuts(node.log_manager, node.clock).cut_job(log, 4)
    job.run()
    assert job.log.segments.active.largest_timestamp() == (1_700_000_000_009, 1)
    job.log.check()
    log.abandon()
    node.log_manager.put(job.log)
