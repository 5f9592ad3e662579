"""Produce: codes and fields as a live Kafka answers, and when it answers."""

import pytest

from ottla.env.faulty_disk import DiskCall
from ottla.errors import CloseConnection, ErrorCode
from ottla.ids import TopicId
from ottla.pending import Pending
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.records.compression import Codec


def request(*parts, acks=-1, topic="t", topic_id=None, transactional_id=None):
    """``parts``: (partition, records) of one topic."""
    data = TopicProduceData(
        name=topic,
        partition_data=[
            PartitionProduceData(
                index=index,
                records=None if records is None else memoryview(bytearray(records)),
            )
            for index, records in parts
        ],
    )
    if topic_id is not None:
        data.topic_id = topic_id
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[data]
    )


def only(response):
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition


@pytest.fixture
def broker(serve, words):
    return serve(flush_messages=words.ASYNC_FLUSH)


def test_a_good_batch_tells_its_offset(broker, words):
    broker.produce(request((0, words.batch(b"a", b"b"))), 9)
    part = only(broker.produce(request((0, words.batch())), 9))
    assert (part.index, part.error_code, part.base_offset) == (0, 0, 2)
    assert (part.log_append_time_ms, part.log_start_offset) == (-1, 0)
    assert (part.record_errors, part.error_message) == ([], None)


def test_acks_all_answers_when_the_flush_is_done(serve, words):
    broker = serve()
    answer = broker.produce(request((0, words.batch())), 9)
    assert isinstance(answer, Pending)
    assert answer.overlaps
    broker.node.executor.run_all()
    assert only(answer.value).error_code == 0


def test_a_failed_fsync_is_a_storage_error(serve, words):
    broker = serve()
    answer = broker.produce(request((0, words.batch())), 9)
    broker.node.disk.fail(DiskCall.SYNC)
    broker.node.executor.run_all()
    part = only(answer.value)
    assert (part.error_code, part.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


@pytest.mark.parametrize("acks", [5, 2, -2])
def test_acks_that_do_not_exist(broker, words, acks):
    part = only(broker.produce(request((0, words.batch()), acks=acks), 9))
    assert (part.error_code, part.base_offset, part.log_start_offset) == (21, -1, -1)
    assert broker.node.partition().log.log_end_offset == 0


@pytest.mark.parametrize("records", [None, b"", b"0123456789"])
def test_bytes_that_are_no_records(broker, records):
    """A live Kafka never answers null records: the client times out. We do."""
    part = only(broker.produce(request((0, records)), 9))
    assert (part.error_code, part.log_start_offset) == (ErrorCode.INVALID_RECORD, -1)


@pytest.mark.parametrize(("topic", "index"), [("nope", 0), ("../x", 0), ("t", 9), ("t", -1)])
def test_unknown_topics_and_partitions(broker, words, topic, index):
    part = only(broker.produce(request((index, words.batch()), topic=topic), 9))
    assert (part.index, part.error_code, part.log_start_offset) == (index, 3, -1)


def test_from_version_13_topics_have_ids(broker, words, topic_id):
    part = only(broker.produce(request((0, words.batch()), topic="", topic_id=topic_id), 13))
    assert part.error_code == 0
    for unknown in (TopicId(b"?" * 16), TopicId(bytes(16))):
        asked = request((0, words.batch()), topic="", topic_id=unknown)
        assert only(broker.produce(asked, 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    asked = request((9, words.batch()), topic="", topic_id=topic_id)
    response = broker.produce(asked, 13)
    assert only(response).error_code == 3
    assert response.responses[0].topic_id == topic_id


def test_answers_stand_in_the_order_of_the_request(broker, words):
    broken = words.batch()
    broken[-1] ^= 1
    asked = request((1, broken), (0, words.batch()), (7, words.batch()), (1, None))
    (topic,) = broker.produce(asked, 9).responses
    found = [(part.index, part.error_code) for part in topic.partition_responses]
    assert found == [(1, 2), (0, 0), (7, 3), (1, 87)]


def test_a_transactional_batch_needs_a_transactional_id(broker, words):
    batch = words.batch(transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    part = only(broker.produce(request((0, batch)), 9))
    assert (part.error_code, part.log_start_offset) == (53, -1)


def test_a_plain_batch_may_come_with_a_transactional_id(broker, words):
    asked = request((0, words.batch()), transactional_id="x")
    assert only(broker.produce(asked, 9)).error_code == 0


@pytest.mark.parametrize(("version", "code"), [(6, 76), (7, 0)])
def test_zstd_needs_version_7(broker, words, version, code):
    part = only(broker.produce(request((0, words.batch(codec=Codec.ZSTD))), version))
    assert part.error_code == code


def test_no_topics_and_no_partitions(broker):
    empty = ProduceRequest(acks=-1, timeout_ms=0, topic_data=[])
    assert broker.produce(empty, 9).responses == []


def test_acks_none_gets_no_answer(broker, words):
    assert broker.produce(request((0, words.batch()), acks=0), 9) is None
    assert broker.node.partition().log.log_end_offset == 1


def test_a_failed_produce_with_acks_none_closes_the_connection(broker, words):
    broken = words.batch()
    broken[-1] ^= 1
    for asked in (
        request((0, broken), acks=0),
        request((0, words.batch()), acks=0, topic="nope"),
        request((0, None), acks=0),
    ):
        with pytest.raises(CloseConnection):
            broker.produce(asked, 9)


def test_a_large_batch_with_acks_none_that_fails_closes_the_connection_later(broker, words):
    broken = words.large_batch()
    broken[-5] ^= 0xFF
    answer = broker.produce(request((0, broken), acks=0), 9)
    broker.node.executor.run_all()
    assert isinstance(answer.error, CloseConnection)


def test_a_large_batch_with_acks_none_that_is_good_gets_no_answer(broker, words):
    answer = broker.produce(request((0, words.large_batch()), acks=0), 9)
    broker.node.executor.run_all()
    assert answer.is_done
    assert (answer.value, answer.error) == (None, None)


# Who leads.


@pytest.mark.parametrize("version", range(9, 14))
def test_a_client_at_the_wrong_node_is_told_who_leads(broker, words, topic_id, version):
    broker.node.change(broker.node.led(0, epoch=3, leader=2))
    asked = request((0, words.batch()), topic_id=topic_id if version >= 13 else None)
    if version >= 13:
        asked.topic_data[0].name = ""
    answer = broker.produce(asked, version)
    part = only(answer)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version < 10:
        assert (part.current_leader, answer.node_endpoints) == (None, [])
        return
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (2, 3)
    assert [(node.node_id, node.host) for node in answer.node_endpoints] == [(2, "second")]


def test_without_a_leader_nobody_is_named(broker, words):
    broker.node.change(broker.node.led(0, epoch=3, leader=-1))
    answer = broker.produce(request((0, words.batch())), 12)
    assert only(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (only(answer).current_leader, answer.node_endpoints) == (None, [])


def test_leadership_that_moves_while_waiting_is_told(serve, words):
    broker = serve()
    answer = broker.produce(request((0, words.batch())), 12)
    broker.node.change(broker.node.led(0, epoch=3, leader=2))
    broker.node.executor.run_all()
    part = only(answer.value)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (2, 3)
