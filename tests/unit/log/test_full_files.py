"""A log of many segments keeps few files open, and who reads them does not notice."""

import os
import sys

import pytest

from ottla.env.memory_disk import MemoryDisk
from ottla.env.real_disk import RealDisk
from ottla.log.segment.full_files import FULL_SEGMENTS_OPEN_MAX
from ottla.log.segment.time_lookup import run_here

NOW = 1_700_000_000_000


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts in /proc")
def test_reading_a_thousand_segments_does_not_use_up_the_files(
    tmp_path, open_partition, batch, read_all
):
    size_bytes = len(batch())
    config = {"segment_bytes": size_bytes, "flush_messages": 10**9}
    log = open_partition(RealDisk(), str(tmp_path), **config)
    for _ in range(40):
        log.append(batch(), leader_epoch=0)
    log.close()
    log = open_partition(RealDisk(), str(tmp_path), clean=True, recovery_point=40)
    before = len(os.listdir("/proc/self/fd"))
    regions = [
        log.read(offset, max_bytes=1000, upper_offset=40, min_one_message=True).region
        for offset in range(3)
    ]
    assert [offset for offset, _, _ in read_all(log)] == list(range(40))
    held = len(os.listdir("/proc/self/fd")) - before
    assert 0 < held <= FULL_SEGMENTS_OPEN_MAX + len(regions) + 1
    assert all(len(region.read()) == size_bytes for region in regions), "still open for these"
    log.close()


def test_a_segment_that_is_full_does_not_stay_open_for_ever(place, open_partition, batch):
    """Each roll left a descriptor behind, until a restart."""
    log = open_partition(*place, segment_bytes=len(batch()))
    for _ in range(20):
        log.append(batch(), leader_epoch=0)
        log.flush()
    assert len(log.segments) == 20
    still = [segment for segment in log.segments if segment.is_file_open]
    assert still == log.segments[-1 - FULL_SEGMENTS_OPEN_MAX :]


def test_a_segment_that_is_not_synced_stays_open(place, open_partition, batch):
    """Another descriptor might not be told of what the device has refused meanwhile."""
    log = open_partition(*place, segment_bytes=len(batch()), flush_messages=10**9)
    for _ in range(20):
        log.append(batch(), leader_epoch=0)
    assert all(segment.is_file_open for segment in log.segments)
    log.flush()
    assert sum(segment.is_file_open for segment in log.segments) == 1 + FULL_SEGMENTS_OPEN_MAX


def many_segments(place, open_partition, batch, count=40):
    """A log of ``count`` segments as a start after a clean stop finds it: none is open."""
    size_bytes = len(batch())
    log = open_partition(*place, segment_bytes=size_bytes)
    for number in range(count):
        log.append(batch(timestamp=NOW + number), leader_epoch=0)
        log.flush()
    log.close()
    log = open_partition(*place, clean=True, recovery_point=count, segment_bytes=size_bytes)
    assert not any(segment.is_file_open for segment in log.segments)
    return log


def open_in(log):
    return sum(segment.is_file_open for segment in log.segments)


@pytest.mark.parametrize("timestamp", [NOW + 100_000, NOW + 39, NOW + 20, None])
def test_a_look_up_by_time_does_not_use_up_the_files(place, open_partition, batch, timestamp):
    """One ListOffsets after a restart opened every segment there was, for good."""
    log = many_segments(place, open_partition, batch)
    found = run_here(log.search_timestamp(timestamp))
    wanted = 39 if timestamp is None else timestamp - NOW
    assert found == (None if wanted > 39 else (NOW + wanted, wanted))
    assert open_in(log) <= 1 + FULL_SEGMENTS_OPEN_MAX
    assert sum(segment.has_loaded_indexes for segment in log.segments) <= 2 + FULL_SEGMENTS_OPEN_MAX


def test_whatever_opens_segments_does_not_keep_them_open(place, open_partition, batch):
    log = many_segments(place, open_partition, batch)
    assert [segment.last_offset() for segment in log.segments] == list(range(40))
    assert open_in(log) <= 1 + FULL_SEGMENTS_OPEN_MAX


def test_indexes_of_full_segments_do_not_fill_the_memory(place, open_partition, batch, read_all):
    """They stayed for ever: 5 MiB for each GiB that was ever written or read."""
    log = open_partition(*place, segment_bytes=3 * len(batch()), index_interval_bytes=1)
    for _ in range(60):
        log.append(batch(), leader_epoch=0)
        log.flush()
    assert len(log.segments) == 20
    most = 1 + FULL_SEGMENTS_OPEN_MAX
    assert sum(segment.has_loaded_indexes for segment in log.segments) == most
    assert [offset for offset, _, _ in read_all(log)] == list(range(60))
    assert sum(segment.has_loaded_indexes for segment in log.segments) <= most
    log.check()


def test_an_index_that_a_full_disk_refused_stays_in_memory(open_partition, batch):
    """Else each read would make it anew from the whole segment."""
    disk = MemoryDisk(durability=True)
    disk.make_directory("/data")
    log = many_segments((disk, "/data"), open_partition, batch, count=3)
    segment = log.segments[0]
    indexes = segment.indexes
    segment.rebuild_indexes()
    indexes = segment.indexes
    indexes.offsets.forget_file()
    segment.rest()
    assert not segment.is_file_open
    assert segment.indexes is indexes
    indexes.write()
    segment.rest()
    assert not segment.has_loaded_indexes


def test_reading_does_not_close_what_is_not_synced(place, open_partition, batch):
    """With flush.messages above 1 readers get there before the sync does."""
    log = open_partition(*place, segment_bytes=len(batch()), flush_messages=10**9)
    for _ in range(20):
        log.append(batch(), leader_epoch=0)
    for offset in range(20):
        log.read(offset, max_bytes=1000, upper_offset=20, min_one_message=True)
    assert all(segment.is_file_open for segment in log.segments)
