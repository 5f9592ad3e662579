import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.log.files import layout


@pytest.mark.parametrize("topic", ["flights", "a-1", "__consumer_offsets", "a.b_c-d", "x" * 249])
def test_a_partition_directory_reads_back(topic):
    topic_partition = TopicPartition(topic, 17)
    name = layout.partition_directory(topic_partition)
    assert name == f"{topic}-17"
    assert layout.parse_partition_directory(name) == topic_partition


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "../x", "a/b", "a b", "a\0b", "é", "x" * 250, "a\n"]
)
def test_a_hostile_topic_name_never_becomes_a_path(topic):
    with pytest.raises(KafkaError) as caught:
        layout.partition_directory(TopicPartition(topic, 0))
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_negative_partition_never_becomes_a_path():
    with pytest.raises(KafkaError):
        layout.partition_directory(TopicPartition("t", -1))


@pytest.mark.parametrize(
    "name", ["flights", "flights-", "flights-x", "-1", "flights-01", "a b-0", "lost+found", "..-1"]
)
def test_other_directories_are_no_partitions(name):
    assert layout.parse_partition_directory(name) is None


def test_a_deleted_directory_is_recognised_and_no_partition():
    name = layout.deleted_directory(TopicPartition("flights", 3), bytes(range(16)))
    assert name == "flights-3.000102030405060708090a0b0c0d0e0f-delete"
    assert layout.is_deleted_directory(name)
    assert layout.parse_partition_directory(name) is None
    assert not layout.is_deleted_directory("flights-3")


def test_the_longest_topic_still_has_a_deleted_name_the_file_system_takes():
    name = layout.deleted_directory(TopicPartition("x" * 249, 2**31 - 1), bytes(16))
    assert len(name) == 255
    assert layout.is_deleted_directory(name)


def test_a_stray_directory_is_no_partition_and_not_to_be_removed():
    name = layout.stray_directory(TopicPartition("flights", 3), bytes(range(16)))
    assert name == "flights-3.000102030405060708090a0b0c0d0e0f-stray"
    assert layout.parse_partition_directory(name) is None
    assert not layout.is_deleted_directory(name)
    assert len(layout.stray_directory(TopicPartition("x" * 249, 2**31 - 1), bytes(16))) == 255


def test_segment_files_read_back():
    assert layout.segment_file(170, ".log") == "00000000000000000170.log"
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        assert layout.parse_segment_file(layout.segment_file(170, suffix)) == (170, suffix)


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000170.log.deleted",
        "170.log",
        "00000000000000000170.snapshot",
        "99999999999999999999.log",
        "partition.metadata",
    ],
)
def test_other_files_are_no_segment_files(name):
    assert layout.parse_segment_file(name) is None
