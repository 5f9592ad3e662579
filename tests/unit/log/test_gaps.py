"""Gaps between offsets are legal in any log; a lost end of a full segment is found all the same."""

import pytest

from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.log.replicated import append_replicated, check_replicated


def copied(open_partition, disk, batch, offsets, **config):
    """Return a log that a leader's batches at these offsets were copied to, none of it flushed."""
    disk.make_directory("/data")
    disk.sync_directory("/")
    log = open_partition(disk, "/data", **config)
    for offset in offsets:
        append_replicated(log, check_replicated(batch(2, base_offset=offset)))
    return log


def test_a_copy_of_a_once_compacted_log_starts_after_a_crash(open_partition, batch, read_all):
    disk = MemoryDisk(durability=True)
    offsets = [3, 5, 40, 42, 44, 1000, 2000, 2002, 2**31 - 2, 2**31 + 5, 2**40, 2**40 + 9]
    log = copied(open_partition, disk, batch, offsets, segment_bytes=300)
    records, bases = read_all(log), [one.base_offset for one in log.segments]
    log.flush()
    for recovery_point in (0, 5, 41, 1001, 2**40):
        again = open_partition(
            disk.crash(SeededRng(1)), "/data", recovery_point=recovery_point, segment_bytes=300
        )
        again.check()
        assert read_all(again) == records
        assert [one.base_offset for one in again.segments] == bases


@pytest.mark.parametrize("gap", [0, 1, 50, 2**31 + 5])
def test_no_gap_covers_up_for_the_lost_end_of_a_full_segment(open_partition, batch, read_all, gap):
    for seed in range(20):
        disk = MemoryDisk(durability=True)
        offsets = [0, 2, 4 + gap, 6 + gap, 8 + 2 * gap]
        log = copied(open_partition, disk, batch, offsets, segment_bytes=200)
        records = read_all(log)
        assert log.segment_count >= 3
        again = open_partition(disk.crash(SeededRng(seed)), "/data", segment_bytes=200)
        # Behind a jump the last segment may be empty: what was before it is durable.
        last = max((one.last_offset() for one in again.segments if one.size_bytes), default=-1)
        found = read_all(again, upper=last + 1)
        assert found == records[: len(found)], seed
