"""A partition without a log: it answers KAFKA_STORAGE_ERROR, and the others go on."""

import pytest

from ottla.env.faulty_disk import DiskCall
from ottla.errors import CorruptFile, ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.pending import Pending

LOST = TopicPartition("t", 5)


@pytest.fixture
def node(make_node, words):
    """Partition 5 was found unreadable at the start; 0 and 1 are as ever."""
    node = make_node(flush_messages=words.ASYNC_FLUSH)
    node.log_manager.offline[LOST] = CorruptFile("/data/t-5/00.log", "bit rot", 7)
    node.change(node.led(5))
    return node


def only(answer):
    assert not isinstance(answer, Pending)
    (found,) = answer
    return found


def test_every_request_is_a_storage_error(node, words):
    assert only(node.append((5, words.batch()))).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert only(node.fetch((5, 0))).code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError) as caught:
        node.replica_manager.leader_of(LOST)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_large_batch_is_refused_too(node, words):
    answer = node.append((5, words.large_batch()))
    node.executor.run_all()
    assert words.codes(answer) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_the_others_serve(node, words):
    lost, kept = node.append((5, words.batch()), (0, words.batch()))
    assert (lost.code, kept.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
    assert node.read(0)


def test_the_reason_is_kept(node):
    offline = node.replica_manager.offline
    assert "bit rot" in offline(LOST)
    assert offline(TopicPartition("t", 0)) is None
    assert offline(TopicPartition("absent", 0)) is None


def test_a_log_that_fails_later_is_offline_as_well(make_node, words):
    node = make_node()
    node.append((0, words.batch()))
    node.disk.fail(DiskCall.SYNC)
    node.executor.run_all()
    assert node.replica_manager.offline(TopicPartition("t", 0)) is not None


def test_a_topic_that_the_disk_refused_comes_with_the_next_change(make_node, words):
    node = make_node(partitions=0)
    node.disk.fail(DiskCall.MAKE_DIRECTORY)
    node.change(node.led(0))
    assert node.replica_manager.offline(TopicPartition("t", 0)) is not None
    node.change(node.led(0, epoch=1))
    assert node.replica_manager.offline(TopicPartition("t", 0)) is None
    assert isinstance(node.append((0, words.batch())), Pending)


def test_deleting_it_deletes_no_file(node):
    before = node.disk.list_directory("/data")
    node.change(node.led(5)._replace(new=None))
    assert node.replica_manager.get(LOST) is None
    assert node.replica_manager.offline(LOST) is None
    assert node.disk.list_directory("/data") == before


def test_a_directory_of_an_older_topic_survives_the_newer_ones_deletion(node, words):
    node.append((0, words.batch()))
    newer = node.led(0)._replace(topic_id=b"another topic id")
    manager = node.replica_manager
    del manager._partitions[newer.topic, 0]
    node.change(newer)
    assert "t-0" in manager.offline(TopicPartition("t", 0))
    node.change(newer._replace(new=None))
    assert "t-0" in node.disk.list_directory("/data")


async def test_a_stop_does_not_stumble_over_it(node):
    await node.replica_manager.settle()
    node.log_manager.stop()
