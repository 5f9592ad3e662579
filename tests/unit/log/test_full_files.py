"""A log of many segments keeps few files open, and who reads them does not notice."""

import os
import sys

import pytest

from ottla.env.real_disk import RealDisk
from ottla.log.segment.full_files import FULL_SEGMENTS_OPEN_MAX


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
