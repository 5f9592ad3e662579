"""A segment that was found to be well is looked at again as soon as one of its bytes is another."""

import pytest

from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.recovery import open_log
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
