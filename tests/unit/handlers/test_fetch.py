"""Fetch: codes and fields as a live Kafka answers."""

from types import GeneratorType

import pytest

from ottla.errors import ErrorCode
from ottla.handlers.follower_fetch import FollowerFetch
from ottla.ids import TopicId
from ottla.log.append import own
from ottla.pending import Pending
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from ottla.sliced import STRIDE


def part(index, offset=0, **fields):
    fields.setdefault("partition_max_bytes", 10**6)
    return FetchPartition(partition=index, fetch_offset=offset, **fields)


def request(*parts, topics=None, **fields):
    if topics is None:
        topics = [FetchTopic(topic="t", partitions=list(parts))]
    return FetchRequest(**{"max_wait_ms": 500, "min_bytes": 1, "topics": topics, **fields})


def parts_of(response):
    if isinstance(response, Pending):
        assert response.is_done
        response = response.value
    return [part for topic in response.responses for part in topic.partitions]


@pytest.fixture
def broker(serve, words):
    """Three batches in partition 0, none in partition 1, all committed at once."""
    broker = serve(flush_messages=words.ASYNC_FLUSH)
    for _ in range(3):
        broker.node.append((0, words.batch(b"x" * 1000)))
    return broker


@pytest.fixture
def size(words):
    return len(words.batch(b"x" * 1000))


def length(part):
    return part.records.length_bytes if part.records else 0


def test_records_and_watermarks(broker, size):
    (found,) = parts_of(broker.fetch(request(part(0)), 12))
    assert found.error_code == 0
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (3, 3, 0)
    assert length(found) == 3 * size
    assert found.aborted_transactions is None, "null for read_uncommitted"


def test_read_committed_names_aborted_transactions(broker, size):
    (found,) = parts_of(broker.fetch(request(part(0), isolation_level=1), 12))
    assert (found.aborted_transactions, length(found)) == ([], 3 * size)


def test_read_committed_names_what_was_aborted_and_ends_at_what_is_open(broker, words, size):
    for producer_id in (7, 8):
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        broker.node.append((0, words.batch(transactional=True, **fields)))
    marker = build_end_transaction_marker(
        EndTransactionMarker(ControlType.ABORT, 0),
        producer_id=7,
        producer_epoch=0,
        timestamp_ms=1_700_000_000_000,
    )
    where = broker.node.partition().topic_partition
    broker.node.replica_manager.appends.many(
        [(where, own(memoryview(marker)))], acks=-1, timeout_ms=1
    )
    (found,) = parts_of(broker.fetch(request(part(0), isolation_level=1), 12))
    assert (found.high_watermark, found.last_stable_offset) == (6, 4)
    told = [(one.producer_id, one.first_offset) for one in found.aborted_transactions]
    assert told == [(7, 3)]
    assert 3 * size < length(found) < 4 * size
    (found,) = parts_of(broker.fetch(request(part(0, 4), isolation_level=1, max_wait_ms=0), 12))
    assert (found.aborted_transactions, length(found), found.error_code) == ([], 0, 0)
    (found,) = parts_of(broker.fetch(request(part(0)), 12))
    assert (found.aborted_transactions, found.last_stable_offset) == (None, 4)


@pytest.mark.parametrize("offset", [4, -1, -5, 2**62])
def test_out_of_range(broker, offset):
    (found,) = parts_of(broker.fetch(request(part(0, offset)), 12))
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (-1, -1, -1)
    assert (found.records, found.aborted_transactions) == (b"", None)


@pytest.mark.parametrize(
    ("topic", "index"), [("nope", 0), ("../x", 0), ("", 0), ("t", 9), ("t", -1)]
)
def test_unknown_topics_and_partitions(broker, topic, index):
    asked = request(topics=[FetchTopic(topic=topic, partitions=[part(index)])])
    (found,) = parts_of(broker.fetch(asked, 12))
    assert (found.partition_index, found.error_code, found.high_watermark) == (index, 3, -1)
    assert found.aborted_transactions == []


def test_an_unknown_partition_does_not_end_the_wait_of_another(broker):
    answer = broker.fetch(request(part(0, 3), part(7)), 12)
    assert not answer.is_done
    broker.node.clock.advance(0.6)
    assert [p.error_code for p in parts_of(answer)] == [0, 3]


def test_a_partition_out_of_range_ends_the_wait_of_another(broker):
    answer = broker.fetch(request(part(1), part(0, 99)), 12)
    assert [p.error_code for p in parts_of(answer)] == [0, 1]


def test_from_version_13_topics_have_ids(broker, topic_id, size):
    topics = [
        FetchTopic(topic_id=topic_id, partitions=[part(0), part(9)]),
        FetchTopic(topic_id=TopicId(b"?" * 16), partitions=[part(0)]),
    ]
    response = broker.fetch(request(topics=topics), 13)
    assert [t.topic_id for t in response.responses] == [topic_id, b"?" * 16]
    assert [p.error_code for p in parts_of(response)] == [0, 3, ErrorCode.UNKNOWN_TOPIC_ID]
    assert length(parts_of(response)[0]) == 3 * size


def test_if_a_partition_is_asked_for_twice_the_last_time_counts(broker, size):
    (found,) = parts_of(broker.fetch(request(part(0, 0), part(0, 1)), 12))
    assert length(found) == 2 * size


def test_the_order_of_the_request_is_the_order_of_the_answer(broker):
    answer = broker.fetch(request(part(1), part(7), part(0)), 12)
    assert [p.partition_index for p in parts_of(answer)] == [1, 7, 0]


@pytest.mark.parametrize(("epoch", "code"), [(0, 0), (-1, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_the_leader_epoch(broker, epoch, code):
    (found,) = parts_of(broker.fetch(request(part(0, current_leader_epoch=epoch)), 12))
    assert found.error_code == code


def test_an_isolation_level_that_does_not_exist(broker):
    response = broker.fetch(request(part(0), part(1), isolation_level=7), 12)
    assert response.error_code == -1
    assert [p.error_code for p in parts_of(response)] == [-1, -1]


def test_followers_are_refused(broker):
    (found,) = parts_of(broker.fetch(request(part(0), replica_id=5), 12))
    assert (found.error_code, found.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
    state = ReplicaState(replica_id=5)
    (found,) = parts_of(broker.fetch(request(part(0), replica_state=state), 15))
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    (found,) = parts_of(broker.fetch(request(part(0), replica_id=-2), 12))
    assert found.error_code == 0


def test_a_follower_that_names_many_partitions_is_refused_in_slices(broker):
    manager = broker.node.replica_manager
    fetch = FollowerFetch(manager, broker.image, response_bytes_max=10**6, wait_ms_max=1000)
    state = ReplicaState(replica_id=5)
    steps = fetch.handle(request(*map(part, range(5_000)), replica_state=state))
    assert isinstance(steps, GeneratorType)
    assert sum(one is None for one in steps) >= 5_000 // STRIDE - 1


def test_no_topics(broker):
    assert broker.fetch(request(topics=[]), 12).responses == []


def test_the_broker_bounds_size_and_wait(serve, words, size):
    broker = serve(flush_messages=words.ASYNC_FLUSH, response_bytes_max=10, wait_ms_max=1000)
    for _ in range(3):
        broker.node.append((0, words.batch(b"x" * 1000)))
    (found,) = parts_of(broker.fetch(request(part(0), max_bytes=2**31 - 1), 12))
    assert length(found) == size
    answer = broker.fetch(request(part(1), max_wait_ms=2**31 - 1), 12)
    broker.node.clock.advance(1.01)
    assert answer.is_done


@pytest.mark.parametrize("max_bytes", [10, 0])
def test_one_whole_batch_comes_however_little_is_asked_for(broker, max_bytes, size):
    (found,) = parts_of(broker.fetch(request(part(0, partition_max_bytes=max_bytes)), 4))
    assert length(found) == size
