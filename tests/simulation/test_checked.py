"""A segment that was found to be well is looked at again as soon as one of its bytes is another."""

import pytest

from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.recovery import open_log
from ottla.log.upkeep.cleaned_segment import CleanedSegment
from ottla.log.upkeep.compaction import Source
from ottla.log.upkeep.swap import Swap
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.simulation import checked
from tests.simulation.checked import CheckedSegments

DIRECTORY = "/a/t-0"


@pytest.fixture
def disk():
    disk = MemoryDisk(durability=True)
    disk.make_directory("/a")
    disk.make_directory(DIRECTORY)
    return disk


def opened(disk, recovery_point=0):
    return open_log(
        disk,
        ManualClock(1_000),
        DIRECTORY,
        TopicPartition("t", 0),
        LogConfig(segment_bytes=300, index_interval_bytes=100),
        recovery_point=recovery_point,
        log_start_offset=0,
        is_clean=False,
    )


@pytest.fixture
def log(disk):
    log = opened(disk)
    for number in range(12):
        batch = build_batch([Record(timestamp=1_000 + number, value=b"v" * 40)])
        log.append(memoryview(batch), leader_epoch=0)
    assert len(list(log.segments)) > 2
    return log


@pytest.fixture
def looks(monkeypatch):
    """The base offsets of segments that were looked at."""
    looked_at, check = [], checked.check_segment

    def look(segment, **how):
        looked_at.append(segment.base_offset)
        return check(segment, **how)

    monkeypatch.setattr(checked, "check_segment", look)
    return looked_at


def test_what_is_as_it_was_is_looked_at_once(disk, log, looks):
    known = CheckedSegments()
    known.check(log, disk)
    bases = [segment.base_offset for segment in log.segments]
    assert looks == bases
    known.check(log, disk)
    assert looks == bases
    batch = build_batch([Record(timestamp=2_000, value=b"v")])
    log.append(memoryview(batch), leader_epoch=0)
    known.check(log, disk)
    assert looks[len(bases) :] == [log.segments[-1].base_offset]


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_byte_that_has_turned_over_is_found(disk, log, suffix):
    log.close()
    log = opened(disk, recovery_point=log.log_end_offset)
    known = CheckedSegments()
    for _ in range(2):
        known.check(log, disk, are_indexes_sure=True)
    segment = log.segments[0]
    segment.let_go()  # Else its indexes stay in memory as they were.
    file = disk.open(segment.path_of(suffix))
    file.write_at(file.size() - 1, b"\x55")
    with pytest.raises((AssertionError, KeyError)):
        known.check(log, disk, are_indexes_sure=True)


def swapping(count, *, are_renamed):
    """Return a node's disk and its log, of which the first ``count`` segments are swapped for one.

    That one has the first batch of them and the last; it has not got its names yet.
    """
    disk = MemoryDisk(durability=True)
    for directory in ("/a", DIRECTORY):
        disk.make_directory(directory)
    log = opened(disk)
    for _ in range(12):
        batch = build_batch([Record(timestamp=1_000, value=b"v" * 40)])
        log.append(memoryview(batch), leader_epoch=0)
    old = list(log.segments.with_ends(log.log_end_offset))[:count]
    data = b"".join(segment.file.read_at(0, segment.size_bytes) for segment, _ in old)
    out = bytearray(data[: len(batch)] + data[-len(batch) :])
    group = [Source(one.base_offset, end, one.size_bytes) for one, end in old]
    new = CleanedSegment(disk, DIRECTORY, group, 4_096)
    new.write(out, len(out))
    swap = Swap(disk, new.finish([]))
    swap.commit()
    swap.put_in_place(log, 2_000)
    if are_renamed:
        for one, _ in old:
            disk.rename(one.path, one.path + ".deleted")
    return disk, log


@pytest.mark.parametrize("are_renamed", [False, True])
def test_a_segment_that_is_swapped_in_is_not_taken_for_the_one_of_another_node(are_renamed):
    known = CheckedSegments()
    for count in (2, 1):  # Of the same size, with the same largest timestamp.
        disk, log = swapping(count, are_renamed=are_renamed)
        known.check(log, disk)


@pytest.mark.parametrize("are_renamed", [False, True])
def test_a_byte_that_has_turned_over_is_found_while_the_segment_is_swapped_in(are_renamed):
    disk, log = swapping(2, are_renamed=are_renamed)
    known = CheckedSegments()
    known.check(log, disk)
    file = disk.open(log.segments[0].path + ".swap")
    file.write_at(file.size() - 1, b"\x55")
    with pytest.raises(AssertionError):
        known.check(log, disk)
