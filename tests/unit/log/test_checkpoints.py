import pytest

from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import CorruptFile
from ottla.ids import TopicId, TopicPartition
from ottla.log.files import checkpoints
from ottla.log.files.checkpoints import EpochStart, MetaProperties


@pytest.fixture
def disk():
    return MemoryDisk(durability=True)


def text_of(disk, path):
    file = disk.open(path)
    return file.read_at(0, file.size()).decode()


def put(disk, path, text):
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write_at(0, text.encode())


def test_offset_checkpoints_are_kafkas(disk):
    offsets = {TopicPartition("a", 0): 7, TopicPartition("b-c", 12): 2**40}
    checkpoints.write_offset_checkpoint(disk, "/c", offsets)
    assert text_of(disk, "/c") == f"0\n2\na 0 7\nb-c 12 {2**40}\n"
    assert checkpoints.read_offset_checkpoint(disk, "/c") == offsets


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0\n",
        "1\n1\na 0 7\n",
        "0\n2\na 0 7\n",
        "0\n1\na 0 7\nb 0 8\n",
        "0\n1\na 0\n",
        "0\n1\na 0 x\n",
        "0\n1\na 0 -7\n",
        "0\n1\na 0 07\n",
        "0\n1\na  0 7\n",
        "0\n2\na 0 7\na 0 8\n",
        "\0" * 14,
        "0\n1\na 0 7\n\0\0",
    ],
)
def test_a_checkpoint_that_does_not_parse_exactly_is_absent(disk, text):
    put(disk, "/c", text)
    assert checkpoints.read_offset_checkpoint(disk, "/c") is None


def test_a_missing_or_binary_checkpoint_is_absent(disk):
    assert checkpoints.read_offset_checkpoint(disk, "/c") is None
    disk.open("/c", create=True).write_at(0, b"\xff\xfe0\n")
    assert checkpoints.read_offset_checkpoint(disk, "/c") is None


def test_epoch_checkpoints_are_kafkas(disk):
    entries = [EpochStart(0, 0), EpochStart(3, 170)]
    checkpoints.write_epoch_checkpoint(disk, "/e", entries)
    assert text_of(disk, "/e") == "0\n2\n0 0\n3 170\n"
    assert checkpoints.read_epoch_checkpoint(disk, "/e") == entries


@pytest.mark.parametrize("text", ["0\n2\n3 0\n3 9\n", "0\n2\n3 9\n4 8\n", "0\n1\n3\n"])
def test_epochs_that_do_not_ascend_are_absent(disk, text):
    put(disk, "/e", text)
    assert checkpoints.read_epoch_checkpoint(disk, "/e") is None


def test_partition_metadata_is_kafkas(disk):
    topic_id = TopicId(bytes(range(16)))
    checkpoints.write_partition_metadata(disk, "/m", topic_id)
    assert text_of(disk, "/m") == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    assert checkpoints.read_partition_metadata(disk, "/m") == topic_id
    put(disk, "/m", "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    assert checkpoints.read_partition_metadata(disk, "/m") == topic_id


@pytest.mark.parametrize(
    "text", ["version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "version: 0", "x"]
)
def test_unreadable_partition_metadata_is_absent(disk, text):
    put(disk, "/m", text)
    assert checkpoints.read_partition_metadata(disk, "/m") is None


def test_meta_properties_read_back(disk):
    meta = MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", 1, "dir-id")
    checkpoints.write_meta_properties(disk, "/p", meta)
    assert "version=1\n" in text_of(disk, "/p")
    assert checkpoints.read_meta_properties(disk, "/p") == meta


def test_meta_properties_as_kafka_writes_them(disk):
    put(
        disk,
        "/p",
        "#\n#Sat Nov 21 11:00:00 UTC 2026\ncluster.id=AAAAAAAAQACAAAAAAAAAAQ\n"
        "directory.id=bx\\=y\nnode.id=1\nversion=1\n",
    )
    expected = MetaProperties("AAAAAAAAQACAAAAAAAAAAQ", 1, "bx=y")
    assert checkpoints.read_meta_properties(disk, "/p") == expected


@pytest.mark.parametrize("text", ["version=0\nbroker.id=1\n", "version=1\nnode.id=x\n", "hello"])
def test_a_foreign_identity_is_named_not_replaced(disk, text):
    put(disk, "/p", text)
    with pytest.raises(CorruptFile):
        checkpoints.read_meta_properties(disk, "/p")


def test_an_identity_that_was_never_written_is_absent(disk):
    assert checkpoints.read_meta_properties(disk, "/p") is None
    disk.open("/p", create=True)
    assert checkpoints.read_meta_properties(disk, "/p") is None


def test_a_replaced_file_is_old_or_new_after_a_power_cut_never_empty():
    for seed in range(40):
        disk = MemoryDisk(durability=True)
        checkpoints.replace_file(disk, "/f", "old")
        checkpoints.replace_file(disk, "/f", "new")
        assert checkpoints.read_file(disk.crash(SeededRng(seed)), "/f") == "new"


def test_a_leftover_temporary_file_does_not_stop_a_replacement(disk):
    put(disk, "/f.tmp", "half")
    checkpoints.replace_file(disk, "/f", "whole")
    assert text_of(disk, "/f") == "whole"
    assert not disk.exists("/f.tmp")
