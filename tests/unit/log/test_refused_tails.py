"""Whole batches of a refused write, back behind the end of a full segment after a power cut.

They were cut off, the next batch began a segment, and the power went before the sync of the cut.
"""

import pytest

from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import CorruptFile


@pytest.fixture
def back(place, open_partition, batch):
    """Make a log of segments [0, 4) and from 4 on, with ``left`` behind the end of the first."""

    def make(*left, followers=1):
        disk, directory = place
        log = open_partition(disk, directory)
        for _ in range(2):
            log.append(batch(2), leader_epoch=3)
        log.flush()
        log.roll()
        for _ in range(followers):
            log.append(batch(1), leader_epoch=3)
        path, size = log.segments[0].path, log.segments[0].size_bytes
        log.abandon()
        file = disk.open(path)
        for one in left:
            file.write_at(file.size(), bytes(one))
        return disk, directory, path, size

    return make


@pytest.mark.parametrize("recovery_point", [0, 2, 4])
@pytest.mark.parametrize("epoch", [3, 7])
def test_they_are_cut_off_and_what_came_in_their_place_stays(
    back, open_partition, batch, read_all, recovery_point, epoch
):
    left = [batch(3, base_offset=4, leader_epoch=epoch), batch(1, base_offset=7, leader_epoch=9)]
    disk, directory, path, size = back(*left)
    log = open_partition(disk, directory, recovery_point=recovery_point)
    assert (log.log_end_offset, log.segment_count) == (5, 2)
    assert log.leader_epochs.entries == [(3, 0)]
    assert [record[0] for record in read_all(log)] == [0, 1, 2, 3, 4]
    assert disk.size_of(path) == size
    log.check()


@pytest.mark.parametrize("torn", [1, 30, 80])
def test_with_a_torn_one_behind_them_too(back, open_partition, batch, read_all, torn):
    left = [batch(1, base_offset=4, leader_epoch=3), batch(1, base_offset=5, leader_epoch=3)[:torn]]
    disk, directory, _, _ = back(*left)
    log = open_partition(disk, directory, recovery_point=4)
    found = [record[0] for record in read_all(log)]
    assert found in ([0, 1, 2, 3, 4], [0, 1, 2, 3])
    log.check()


@pytest.mark.parametrize("size", [0, 1, 5000])
def test_what_a_failed_roll_left_takes_nothing_of_the_segment_before(
    place, open_partition, batch, read_all, size
):
    """It was preallocated, and its removal never durable; the segment before it went on."""
    disk, directory = place
    log = open_partition(disk, directory)
    log.append(batch(4), leader_epoch=3)
    log.append(batch(3), leader_epoch=3)
    log.flush()
    log.abandon()
    disk.open(f"{log.directory}/{4:020d}.log", create=True).write_at(0, bytes(size))
    log = open_partition(disk, directory, recovery_point=4)
    assert [record[0] for record in read_all(log)] == [*range(7)]
    assert log.segment_count == 1
    log.check()


@pytest.mark.parametrize("damaged", [0, 7, 20, 65])
def test_a_damaged_batch_after_it_takes_nothing_of_the_segment_before(
    place, open_partition, batch, damaged
):
    disk, directory = place
    log = open_partition(disk, directory)
    log.append(batch(4), leader_epoch=3)
    log.append(batch(3), leader_epoch=3)
    log.abandon()
    file = disk.open(f"{log.directory}/{4:020d}.log", create=True)
    data = bytearray(batch(1, base_offset=4, leader_epoch=3))
    data[damaged or 16] ^= 0xFF
    file.write_at(0, bytes(data))
    size = disk.size_of(log.segments[0].path)
    with pytest.raises(CorruptFile, match="begins before offset 7"):
        open_partition(disk, directory, recovery_point=4)
    assert disk.size_of(log.segments[0].path) == size


def test_a_batch_that_goes_over_the_border_is_corruption(place, open_partition, batch):
    """Its offset is damaged, or the next one's."""
    disk, directory = place
    log = open_partition(disk, directory)
    log.append(batch(2), leader_epoch=3)
    log.append(batch(3), leader_epoch=3)
    log.abandon()
    file = disk.open(f"{log.directory}/{4:020d}.log", create=True)
    file.write_at(0, bytes(batch(1, base_offset=4, leader_epoch=3)))
    with pytest.raises(CorruptFile, match="begins before offset 5"):
        open_partition(disk, directory, recovery_point=2)


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_amid_such_a_start_changes_nothing(open_partition, batch, read_all, seed):
    disk = MemoryDisk(durability=True)
    disk.make_directory("/data")
    disk.sync_directory("/")
    log = open_partition(disk, "/data")
    log.append(batch(2), leader_epoch=3)
    log.roll()
    log.append(batch(1), leader_epoch=3)
    log.flush()
    path = log.segments[0].path
    log.abandon()
    file = disk.open(path)
    file.write_at(file.size(), bytes(batch(3, base_offset=2, leader_epoch=3)))
    file.sync()
    again = open_partition(disk, "/data", recovery_point=2)
    again.abandon()
    log = open_partition(disk.crash(SeededRng(seed)), "/data", recovery_point=2)
    assert [record[0] for record in read_all(log)] == [0, 1, 2]
    log.check()
