"""How far readers of committed records see, and when they hear of more."""

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.apis.list_offsets import ListOffsets
from ottla.ids import TopicPartition
from ottla.log.append import own
from ottla.protocol.messages.list_offsets import LATEST
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from ottla.replication.fetch import FetchLimits, FetchSpec, Isolation

WHERE = TopicPartition("t", 0)


@pytest.fixture
def transact(words):
    """Append a transactional batch of a producer, with its next sequence."""
    sequences = {}

    def append(node, producer_id, count=1, **fields):
        first = sequences.get(producer_id, 0)
        sequences[producer_id] = first + count
        return node.append(
            (
                0,
                words.batch(
                    *[b"v"] * count,
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=first,
                    transactional=True,
                    **fields,
                ),
            )
        )

    return append


def end(node, producer_id, kind, **options):
    marker = build_end_transaction_marker(
        EndTransactionMarker(kind, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=1_700_000_000_000,
    )
    analysed = own(memoryview(marker), **options)
    return node.replica_manager.appends.many([(WHERE, analysed)], acks=-1, timeout_ms=1000)


def fetch(node, offset, isolation=Isolation.READ_COMMITTED, *, max_wait_ms=500):
    limits = FetchLimits(max_wait_ms, 1, 10**6, isolation)
    return node.replica_manager.fetch([FetchSpec(WHERE, offset, 10**6)], limits)


def at_once(node, offset, isolation=Isolation.READ_COMMITTED):
    (fetched,) = fetch(node, offset, isolation, max_wait_ms=0)
    return fetched


def test_they_see_up_to_the_oldest_open_transaction_and_hear_of_its_end(node, transact, words):
    node.append((0, words.batch()))
    transact(node, 7)
    node.append((0, words.batch()))
    node.executor.run_all()
    partition = node.partition()
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 3)
    fetched = at_once(node, 0)
    assert fetched.region.length_bytes == len(words.batch())
    assert (fetched.last_stable_offset, fetched.high_watermark) == (1, 3)
    assert at_once(node, 0, Isolation.READ_UNCOMMITTED).last_stable_offset == 1
    waiting = fetch(node, 1)
    ended = end(node, 7, ControlType.COMMIT)
    assert partition.last_stable_offset == 1
    assert not waiting.is_done, "the marker is not durable yet"
    assert not ended.is_done
    node.executor.run_all()
    assert partition.last_stable_offset == 4
    assert words.codes(ended) == [ErrorCode.NONE]
    (fetched,) = words.result_of(waiting)
    assert fetched.last_stable_offset == 4
    assert not fetched.aborted


def test_a_later_append_wakes_nobody_while_the_transaction_is_open(node, transact, words):
    transact(node, 7)
    node.executor.run_all()
    waiting, other = fetch(node, 0), fetch(node, 1, Isolation.READ_UNCOMMITTED)
    node.append((0, words.batch()))
    node.executor.run_all()
    assert other.is_done
    assert not waiting.is_done
    node.clock.advance(0.6)
    (fetched,) = words.result_of(waiting)
    assert fetched.region is None
    assert fetched.code is ErrorCode.NONE


def test_they_are_told_what_was_aborted(make_node, transact, words):
    node = make_node(flush_messages=words.ASYNC_FLUSH)
    transact(node, 7)
    transact(node, 8)
    end(node, 8, ControlType.ABORT)
    end(node, 7, ControlType.ABORT)
    assert node.partition().last_stable_offset == 4
    told = [(one.producer_id, one.first_offset) for one in at_once(node, 0).aborted]
    assert told == [(7, 0), (8, 1)]
    assert not at_once(node, 0, Isolation.READ_UNCOMMITTED).aborted
    assert not at_once(node, 4).aborted


def test_records_behind_the_last_stable_offset_may_be_asked_for_but_are_not_given(node, transact):
    transact(node, 7, 3)
    node.executor.run_all()
    for offset in (1, 3):
        fetched = at_once(node, offset)
        assert (fetched.code, fetched.region) == (ErrorCode.NONE, None)
    assert at_once(node, 4).code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_transaction_is_stable_only_below_the_high_watermark(node, transact):
    transact(node, 7)
    partition = node.partition()
    assert partition.last_stable_offset == partition.high_watermark == 0
    end(node, 7, ControlType.COMMIT)
    assert partition.last_stable_offset == 0
    node.executor.run_all()
    assert partition.last_stable_offset == partition.high_watermark == 2


def test_delete_records_in_an_open_transaction_moves_what_is_seen_along(node, transact, words):
    transact(node, 7, 4)
    node.executor.run_all()
    assert node.partition().delete_records(3) == 3
    assert node.partition().last_stable_offset == 3
    node.check()


def look_up(node, timestamp, isolation):
    """Return what ListOffsets finds; a small batch is searched at once."""
    steps = ListOffsets(node.replica_manager)._find(node.partition(), timestamp, isolation)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def test_the_latest_offset_for_them_is_the_last_stable_one(node, transact, words):
    node.append((0, words.batch()))
    transact(node, 7)
    node.executor.run_all()
    latest = {isolation: look_up(node, LATEST, isolation).offset for isolation in Isolation}
    assert latest == {Isolation.READ_UNCOMMITTED: 2, Isolation.READ_COMMITTED: 1}
    late = {isolation: look_up(node, 1_700_000_000_000, isolation) for isolation in Isolation}
    assert {found.offset for found in late.values()} == {0}


def test_a_coordinators_refused_marker_is_an_outcome(node, transact, words):
    transact(node, 7)
    node.executor.run_all()
    refused = end(node, 7, ControlType.COMMIT, transaction_version=2)
    assert words.codes(refused) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert node.partition().log.log_end_offset == 1
    for junk in (b"", b"junk"):
        with pytest.raises(KafkaError, match="no whole batch"):
            own(memoryview(junk))
