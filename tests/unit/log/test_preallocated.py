"""Preallocated segments: the same log as any other, whatever moment it is looked at."""

import errno
import shutil
from pathlib import Path

import pytest

from ottla.env.disk import MAP_UNIT_BYTES
from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.real_disk import RealDisk
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.log.segment.mapped import SMALL_BYTES_MAX, STRETCH_BYTES, MappedEnd

SEGMENT_BYTES = 4096
CONFIG = {"segment_bytes": SEGMENT_BYTES, "index_interval_bytes": 200, "is_preallocated": True}


def log_files(log):
    return sorted(Path(log.directory).glob("*.log"))


def everything(log):
    """All bytes that a reader gets, segment by segment."""
    found, offset = b"", 0
    while offset < log.log_end_offset:
        result = log.read(
            offset, max_bytes=10**6, upper_offset=log.log_end_offset, min_one_message=True
        )
        found += result.region.read()
        offset = next(
            (s.base_offset for s in log.segments if s.base_offset > result.segment_base_offset),
            log.log_end_offset,
        )
    return found


def fill(log, batch, count=60):
    for index in range(count):
        log.append(batch(1 + index % 3, size=30 + index * 7 % 100), leader_epoch=0)


@pytest.fixture
def home(tmp_path):
    (tmp_path / "data").mkdir()
    return str(tmp_path / "data")


def test_a_new_segment_has_its_full_size_and_gives_it_back(place, open_partition, batch):
    disk, directory = place
    log = open_partition(disk, directory, **CONFIG)
    assert disk.size_of(log.segments[0].path) == SEGMENT_BYTES
    fill(log, batch)
    *full, active = log.segments
    assert len(full) > 1
    assert [disk.size_of(segment.path) for segment in full] == [s.size_bytes for s in full]
    assert disk.size_of(active.path) == SEGMENT_BYTES
    log.check()
    log.close()
    assert disk.size_of(active.path) == active.size_bytes


def test_its_bytes_are_those_of_a_plain_log(place, open_partition, batch):
    disk, directory = place
    other = f"{directory}/other"
    disk.make_directory(other)
    mapped = open_partition(disk, directory, **CONFIG)
    plain = open_partition(disk, other, **(CONFIG | {"is_preallocated": False}))
    for log in (mapped, plain):
        fill(log, batch)
    assert everything(mapped) == everything(plain)
    assert [s.base_offset for s in mapped.segments] == [s.base_offset for s in plain.segments]
    for log in (mapped, plain):
        log.close()
    again = open_partition(disk, directory, clean=True, **CONFIG)
    assert again.log_end_offset == plain.log_end_offset
    assert again.append(batch(), leader_epoch=0).base_offset == plain.log_end_offset


def test_after_a_kill_the_zeros_behind_the_last_batch_go(home, tmp_path, open_partition, batch):
    log = open_partition(RealDisk(), home, **CONFIG)
    fill(log, batch)
    log.flush()
    expected, end = everything(log), log.log_end_offset
    shutil.copytree(home, tmp_path / "killed")
    again = open_partition(RealDisk(), str(tmp_path / "killed"), recovery_point=end, **CONFIG)
    assert (again.log_end_offset, everything(again)) == (end, expected)
    active = again.segments[-1]
    assert Path(active.path).stat().st_size == active.size_bytes
    again.check()


def test_a_full_segment_whose_length_was_lost_with_the_power_is_whole(
    home, tmp_path, open_partition, batch
):
    """Not synced when rolled (flush.messages is not 1): zeros behind it must not cost the rest."""
    log = open_partition(RealDisk(), home, flush_messages=10**9, **CONFIG)
    fill(log, batch)
    expected, end = everything(log), log.log_end_offset
    shutil.copytree(home, tmp_path / "cut")
    for path in sorted((tmp_path / "cut").rglob("*.log"))[:-1]:
        with path.open("r+b") as file:
            file.truncate(SEGMENT_BYTES)
    again = open_partition(RealDisk(), str(tmp_path / "cut"), **CONFIG)
    assert (again.log_end_offset, everything(again)) == (end, expected)
    assert all(Path(s.path).stat().st_size == s.size_bytes for s in again.segments)


@pytest.mark.parametrize("position", [0, -1])
def test_other_bytes_behind_a_full_segment_are_a_torn_tail_as_ever(
    home, open_partition, batch, position
):
    log = open_partition(RealDisk(), home, **CONFIG)
    fill(log, batch)
    log.close()
    first, second = log_files(log)[:2]
    size = first.stat().st_size
    with first.open("r+b") as file:
        file.truncate(SEGMENT_BYTES)
        file.seek(size if position == 0 else SEGMENT_BYTES - 1)
        file.write(b"\1")
    next_base = int(second.stem)
    again = open_partition(RealDisk(), home, **CONFIG)
    assert again.log_end_offset == next_base


def test_a_power_cut_at_any_time_leaves_what_was_flushed(open_partition, batch):
    for seed in range(30):
        disk = MemoryDisk(durability=True)
        disk.make_directory("/data")
        disk.sync_directory("/")
        log = open_partition(disk, "/data", **CONFIG)
        fill(log, batch, 20 + seed)
        log.flush()
        expected, end = everything(log), log.log_end_offset
        fill(log, batch, seed)
        survivor = disk.crash(SeededRng(seed))
        again = open_partition(survivor, "/data", recovery_point=end, **CONFIG)
        assert again.log_end_offset >= end
        assert everything(again)[: len(expected)] == expected


def test_truncation_and_appends_after_it(place, open_partition, batch):
    disk, directory = place
    log = open_partition(disk, directory, **CONFIG)
    fill(log, batch, 6)
    log.truncate_to(3)
    fill(log, batch, 6)
    log.check()
    assert everything(log)
    log.close()


@pytest.mark.parametrize("nth", range(1, 12))
def test_no_room_for_a_segment_refuses_the_batch_and_leaves_a_good_log(open_partition, batch, nth):
    """Every write of a roll that finds the device full, the allocation among them."""
    disk = FaultyDisk(MemoryDisk(durability=True))
    disk.make_directory("/data")
    log = open_partition(disk, "/data", **CONFIG)
    while log.segments[-1].size_bytes < SEGMENT_BYTES - 300:
        log.append(batch(), leader_epoch=0)
    acknowledged = log.log_end_offset
    disk.fail(DiskCall.WRITE, nth=nth, errno=errno.ENOSPC)
    refused = []
    for _ in range(8):
        try:
            log.append(batch(), leader_epoch=0)
        except KafkaError as error:
            refused.append(error.code)
    assert log.log_end_offset == acknowledged + 8 - len(refused)
    assert set(refused) <= {ErrorCode.KAFKA_STORAGE_ERROR}
    disk.heal()
    log.check()
    log.abandon()
    again = open_partition(disk, "/data", **CONFIG)
    assert again.log_end_offset == log.log_end_offset
    assert again.append(batch(), leader_epoch=0).base_offset == log.log_end_offset


class Sizes:
    """A file of which only mappings are asked."""

    def __init__(self):
        self.mapped = []

    def map_at(self, position, length):
        self.mapped.append((position, length))
        return memoryview(bytearray(length))


def test_a_stretch_moves_along_and_never_past_what_is_allocated():
    limit = 3 * STRETCH_BYTES
    end, file = MappedEnd(limit), Sizes()
    position = 0
    for size in [100, 4096, 1] * 90:
        assert end.put(file, position, b"x" * size)
        position += size
    assert position < limit
    assert len(file.mapped) == 2 * position // STRETCH_BYTES
    assert end.put(file, limit - 10, b"x" * 10)
    assert not end.put(file, limit - 10, b"x" * 11)
    for start, length in file.mapped:
        assert start % MAP_UNIT_BYTES == 0
        assert start + length <= limit


def test_a_large_batch_is_written_wherever_the_stretch_is():
    end, file = MappedEnd(10**6), Sizes()
    assert not end.put(file, 0, bytes(SMALL_BYTES_MAX + 1))
    assert file.mapped == []
    assert end.put(file, 500_000, b"x")
    assert end.put(file, 100, b"x"), "back again, after a truncation"
    assert [start for start, _ in file.mapped] == [458_752, 0]


def test_a_file_without_mappings_is_written(home):
    class NoMemory(Sizes):
        def map_at(self, position, length):
            return None

    assert not MappedEnd(100).put(NoMemory(), 0, b"x")
