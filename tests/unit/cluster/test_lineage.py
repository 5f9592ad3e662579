"""Directories and metadata of one history belong together; of two, they are refused."""

import pytest

from ottla.cluster.lineage import (
    Remembered,
    newest_of,
    next_stamps,
    parted,
    read_lineage,
    write_lineage,
)
from ottla.env.memory_disk import MemoryDisk
from ottla.metadata.values import Stamp, UnreadableValue, decode_stamps, encode_stamps

FIRST, SECOND, THIRD = (Stamp(number, f"{number}" * 32) for number in (1, 2, 3))
PATH = "/d/.ottla-lineage"


def test_a_new_directory_belongs_to_any_metadata():
    assert parted(None, (), 0) is None
    assert parted(None, (SECOND, FIRST), 7) is None


def test_a_node_that_ended_between_both_sides_goes_on():
    assert parted(Remembered(FIRST), (SECOND, FIRST), 7) is None
    assert parted(Remembered(SECOND), (SECOND, FIRST), 7) is None


@pytest.mark.parametrize("known", [(), (FIRST,), (Stamp(2, "2" * 31 + "x"), FIRST)])
def test_metadata_from_before_the_last_stamp_is_refused_whatever_its_revision(known):
    found = parted(Remembered(SECOND), known, 1 << 40)
    assert "does not know what this node has acted on" in found.why
    assert "put a newer backup of etcd back" in found.fix


def test_an_old_copy_of_the_directory_is_refused():
    found = parted(Remembered(FIRST), (THIRD, SECOND), 7)
    assert "its stamp 1 is older than the metadata's, 3" in found.why
    assert "put the newer directory back" in found.fix


def test_metadata_behind_what_was_acted_on_without_a_stamp_is_refused():
    remembered = Remembered(SECOND, acted=10)
    assert parted(remembered, (SECOND, FIRST), 10) is None
    found = parted(remembered, (SECOND, FIRST), 9)
    assert "has acted on revision 10, and the metadata is at 9" in found.why


def test_a_stamp_whose_commit_nobody_knows_of_is_replaced_by_a_higher_one():
    assert next_stamps(None, (), "a") == (Stamp(1, "a"),)
    assert next_stamps(Remembered(FIRST), (SECOND, FIRST), "a") == (Stamp(3, "a"), FIRST)
    assert next_stamps(None, (SECOND, FIRST), "a") == (Stamp(3, "a"),)


def test_a_directory_that_was_away_does_not_count():
    assert newest_of([]) is None
    assert newest_of([Remembered(FIRST), Remembered(THIRD), Remembered(SECOND, 4)])[0] == THIRD


def test_what_is_written_is_read():
    disk = MemoryDisk()
    disk.make_directory("/d")
    assert read_lineage(disk, PATH) is None
    for remembered in (Remembered(FIRST), Remembered(SECOND, 1 << 40)):
        write_lineage(disk, PATH, remembered)
        assert read_lineage(disk, PATH) == remembered


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"version=2\nnumber=1\ntoken=" + b"1" * 32 + b"\nacted=0\n",
        b"version=1\nnumber=1\ntoken=" + b"1" * 32 + b"\n",
        b"version=1\nnumber=1\ntoken=" + b"1" * 31 + b"\nacted=0\n",
        b"version=1\nnumber=-1\ntoken=" + b"1" * 32 + b"\nacted=0\n",
        b"version=1\nnumber=1\ntoken=" + b"1" * 32 + b"\nacted=x\n",
        b"\xff\xfe",
    ],
)
def test_what_is_not_exactly_right_counts_as_absent(text):
    disk = MemoryDisk()
    disk.make_directory("/d")
    file = disk.open(PATH, create=True, exclusive=True)
    file.write_at(0, text)
    file.close()
    assert read_lineage(disk, PATH) is None


def test_the_stores_value_is_read_as_it_was_written():
    assert decode_stamps(encode_stamps((SECOND, FIRST))) == (SECOND, FIRST)
    with pytest.raises(UnreadableValue):
        decode_stamps(b'{"v":1,"stamps":[[1]]}')
