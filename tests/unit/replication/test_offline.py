"""A partition without a log: it answers KAFKA_STORAGE_ERROR, and the others go on."""

import asyncio

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
    node.disk.fail(DiskCall.MAKE_DIRECTORY, errno=28)
    node.change(node.led(0))
    assert node.replica_manager.offline(TopicPartition("t", 0)) is not None
    node.change(node.led(0, epoch=1))
    assert node.replica_manager.offline(TopicPartition("t", 0)) is None
    node.measure_space()
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


@pytest.fixture
def two_disks(make_node):
    """Partition 0 in /a, partition 1 in /b."""
    return make_node(log_dirs=("/a", "/b"))


def test_a_lost_disk_costs_its_partitions_and_no_others(two_disks, words):
    node = two_disks
    lost, waiting = node.append((1, words.batch())), node.fetch((1, 0))
    node.disk.fail(DiskCall.SYNC)
    node.executor.run_all()
    node.clock.advance(0)
    assert words.codes(lost) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert words.codes(waiting) == [ErrorCode.KAFKA_STORAGE_ERROR]
    kept = node.append((0, words.batch()))
    node.executor.run_all()
    assert words.codes(kept) == [ErrorCode.NONE]
    assert node.read(0)


def test_who_waits_for_a_neighbour_on_the_lost_disk_is_told(make_node, words):
    node = make_node()
    node.append((1, words.batch()))
    node.executor.run_all()
    waiting = node.fetch((1, 1))
    node.append((0, words.batch()))
    node.disk.fail(DiskCall.SYNC)
    node.executor.run_all()
    node.clock.advance(0)
    assert words.codes(waiting) == [ErrorCode.KAFKA_STORAGE_ERROR]


async def test_deletion_goes_on_where_the_disk_works(two_disks, words):
    node = two_disks
    for index in (0, 1):
        node.append((index, words.batch()))
    node.executor.run_all()
    node.log_manager.fail_directory("/b", OSError(5, "Input/output error"))
    deleted = node.housekeeper.deletion.delete_records(
        [(TopicPartition("t", 0), 1), (TopicPartition("t", 1), 1)]
    )
    while not deleted.is_done:
        await asyncio.sleep(0)
        node.executor.run_all()
    low, error = deleted.value
    assert (low, error.code) == (1, ErrorCode.KAFKA_STORAGE_ERROR)


def test_a_partition_that_may_lie_on_a_lost_disk_is_not_made_anew(two_disks):
    node = two_disks
    node.log_manager.fail_directory("/b", OSError(5, "Input/output error"))
    known = node.led(7)
    node.change(known._replace(old=known.new))
    assert "offline: /b" in node.replica_manager.offline(TopicPartition("t", 7))
    node.change(node.led(8))
    assert node.replica_manager.offline(TopicPartition("t", 8)) is None
