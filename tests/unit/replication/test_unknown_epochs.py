"""A follower whose last records are of an epoch that its leader has deleted all records of."""

import pytest

from ottla.ids import TopicPartition
from ottla.log.append import own
from ottla.log.upkeep.front import drop_segments_below, raise_start_offset
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from tests.unit.replication.test_following import Pair, fill, stored

PRODUCER = 7
WHERE = TopicPartition("t", 0)


@pytest.fixture
def pair(make_node):
    return Pair(make_node)


def begin(node, words):
    batch = words.batch(
        b"v", producer_id=PRODUCER, producer_epoch=0, base_sequence=0, transactional=True
    )
    node.append((0, batch))
    node.executor.run_all()


def abort(node):
    marker = build_end_transaction_marker(
        EndTransactionMarker(ControlType.ABORT, 0),
        producer_id=PRODUCER,
        producer_epoch=0,
        timestamp_ms=1_700_000_000_000,
    )
    analysed = own(memoryview(marker))
    node.replica_manager.appends.many([(WHERE, analysed)], acks=-1, timeout_ms=1000)
    node.executor.run_all()


def delete_all(node):
    """Let the log start at its end, and its next records be of the next epoch."""
    log = node.partition().log
    raise_start_offset(log, log.log_end_offset)
    drop_segments_below(log, node.disk, log.log_start_offset, 100)
    return log.log_start_offset


@pytest.mark.parametrize("alone", [3, 4, 20], ids=["below", "at", "above"])
async def test_it_forgets_a_transaction_that_ended_in_what_is_deleted(pair, words, alone):
    """Its readers of committed records once waited for ever, as soon as it led."""
    begin(pair.leading, words)
    fill(pair.leading, words, 10)
    await pair.catch_up()
    fill(pair.leading, words, alone)
    pair.lead(1, 2, isr=(1,))
    abort(pair.leading)
    fill(pair.leading, words, 3)
    start = delete_all(pair.leading)
    assert start == 15
    pair.lead(1, 3, isr=(1,))
    fill(pair.leading, words, 2)
    await pair.catch_up()
    partition, leaders = pair.following.partition(), pair.leading.partition().log
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (15, 17)
    assert partition.last_stable_offset == partition.high_watermark == 17
    assert stored(leaders).endswith(stored(partition.log))
    assert partition.log.leader_epochs.entries == leaders.leader_epochs.entries
    assert not list(partition.log.producers.states)


@pytest.mark.parametrize("is_in_sync", [False, True])
async def test_one_in_sync_keeps_what_it_knows_of_producers(pair, words, is_in_sync):
    begin(pair.leading, words)
    abort(pair.leading)
    await pair.catch_up()
    for node in (pair.leading, pair.following):
        delete_all(node)
    pair.lead(0, 2, isr=(1, 2) if is_in_sync else (1,))
    fill(pair.leading, words, 2)
    await pair.catch_up()
    log = pair.following.partition().log
    assert (log.log_start_offset, log.log_end_offset) == (2, 4)
    assert [producer for producer, _ in log.producers.states] == [PRODUCER] * is_in_sync
