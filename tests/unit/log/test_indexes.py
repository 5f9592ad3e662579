import struct

import pytest

from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.errors import CorruptFile
from ottla.log.segment.offset_index import OffsetIndex, OffsetPosition
from ottla.log.segment.time_index import TimeIndex, TimestampOffset


@pytest.fixture
def disk():
    return MemoryDisk()


def content(disk, path):
    file = disk.open(path)
    return file.read_at(0, file.size())


def test_offset_entries_are_two_big_endian_words(disk):
    index = OffsetIndex(disk, "/i", 1000)
    index.append(1007, 4200)
    index.append(1019, 9000)
    index.write()
    assert content(disk, "/i") == struct.pack(">IIII", 7, 4200, 19, 9000)


def test_offset_lookup_is_the_floor(disk):
    index = OffsetIndex(disk, "/i", 1000)
    for offset, position in [(1007, 4200), (1019, 9000), (1040, 14000)]:
        index.append(offset, position)
    assert index.lookup(1006) is None
    assert index.lookup(1007) == OffsetPosition(1007, 4200)
    assert index.lookup(1018) == OffsetPosition(1007, 4200)
    assert index.lookup(10**9) == OffsetPosition(1040, 14000)


def test_an_offset_that_does_not_rise_adds_nothing(disk):
    index = OffsetIndex(disk, "/i", 0)
    index.append(7, 4200)
    index.append(7, 9000)
    assert index.count == 1


def test_keep_below_drops_the_offset_itself(disk):
    index = OffsetIndex(disk, "/i", 0)
    for offset in (10, 20, 30):
        index.append(offset, offset * 100)
    index.write()
    index.keep_below(20)
    assert [index.entry(n).offset for n in range(index.count)] == [10]
    index.append(25, 2500)
    index.write()
    assert content(disk, "/i") == struct.pack(">IIII", 10, 1000, 25, 2500)


def test_time_entries_are_a_long_and_a_word(disk):
    index = TimeIndex(disk, "/t", 50)
    index.append(1_700_000_000_000, 57)
    index.write()
    assert content(disk, "/t") == struct.pack(">qI", 1_700_000_000_000, 7)


def test_time_lookup_is_the_floor_and_entries_only_rise(disk):
    index = TimeIndex(disk, "/t", 0)
    for timestamp, offset in [(100, 5), (100, 9), (90, 12), (200, 20), (-1, 30)]:
        index.append(timestamp, offset)
    assert index.count == 2
    assert index.lookup(99) is None
    assert index.lookup(150) == TimestampOffset(100, 5)
    assert index.lookup(200) == TimestampOffset(200, 20)


def test_no_timestamp_makes_no_entry(disk):
    index = TimeIndex(disk, "/t", 0)
    index.append(-1, 5)
    assert index.count == 0


def test_an_index_loads_what_was_written(disk):
    index = OffsetIndex(disk, "/i", 5)
    for n in range(1, 200):
        index.append(5 + n * 3, n * 5000)
    index.write()
    loaded = OffsetIndex(disk, "/i", 5)
    loaded.load(200 * 5000)
    assert loaded.entries == index.entries
    loaded.append(5 + 900, 999_999)
    loaded.write()
    assert len(content(disk, "/i")) == 200 * 8


def test_the_zeros_of_a_preallocated_file_are_no_entries(disk):
    file = disk.open("/i", create=True)
    file.write_at(0, struct.pack(">IIII", 256, 4096, 512, 65536) + bytes(8 * 1000))
    index = OffsetIndex(disk, "/i", 0)
    index.load(100_000)
    assert [index.entry(n) for n in range(index.count)] == [(256, 4096), (512, 65536)]
    index.append(600, 80_000)
    index.write()
    assert len(content(disk, "/i")) == 24


@pytest.mark.parametrize("size", [1, 7, 9, 20])
def test_a_torn_index_is_named(disk, size):
    disk.open("/i", create=True).write_at(0, b"\x01" * size)
    with pytest.raises(CorruptFile):
        OffsetIndex(disk, "/i", 0).load(1 << 30)


def test_an_index_that_points_behind_its_log_is_named(disk):
    disk.open("/i", create=True).write_at(0, struct.pack(">II", 5, 5000))
    with pytest.raises(CorruptFile):
        OffsetIndex(disk, "/i", 0).load(5000)


def test_entries_are_written_behind_in_groups_and_a_full_disk_loses_none():
    disk = FaultyDisk(MemoryDisk())
    index = OffsetIndex(disk, "/i", 0)
    disk.fail(DiskCall.WRITE, lasting=True)
    for n in range(1, 101):
        index.append(n, n * 5000)
    assert index.count == 100
    disk.heal()
    index.write()
    loaded = OffsetIndex(disk, "/i", 0)
    loaded.load(1 << 30)
    assert loaded.count == 100
