"""What a refused write left is cut off in the page cache only: a power cut may bring it back."""

import errno

import pytest

from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import CorruptFile, KafkaError

ALL = 1 << 20


@pytest.fixture
def memory():
    memory = MemoryDisk(durability=True)
    memory.make_directory("/data")
    memory.sync_directory("/")
    return memory


@pytest.fixture
def refused(memory, open_partition, batch):
    """Make a log that ends at 4, all durable; a batch of three was refused after ``torn`` bytes."""

    def make(torn, **config):
        disk = FaultyDisk(memory)
        log = open_partition(disk, "/data", **config)
        log.append(batch(4), leader_epoch=3)
        log.flush()
        disk.tear_write(torn)
        with pytest.raises(KafkaError):
            log.append(batch(3), leader_epoch=3)
        return log

    return make


@pytest.mark.parametrize("torn", [1, 30, ALL])
@pytest.mark.parametrize("count", [1, 2])
def test_a_roll_makes_the_cut_durable(memory, refused, open_partition, batch, torn, count):
    """World s1129m.691: whole, it lay behind where the next segment began. No start opened that."""
    log = refused(torn)
    if count == 2:
        log.append(batch(1), leader_epoch=3)  # In its place, and smaller.
    log.roll()
    log.append(batch(1), leader_epoch=3)
    for seed in range(40):
        again = open_partition(memory.crash(SeededRng(seed)), "/data", recovery_point=4)
        assert again.log_end_offset <= 4 + count
        again.check()


def test_where_the_cut_cannot_be_synced_the_log_fails(refused, batch):
    log = refused(ALL)
    log.segments.active.disk.fail(DiskCall.SYNC, errno=errno.EIO)
    with pytest.raises(KafkaError):
        log.roll()
    assert not log.is_in_service


@pytest.mark.parametrize("torn", [1, 30, ALL])
def test_after_a_kill_and_a_clean_stop_it_may_come_back(memory, refused, open_partition, torn):
    """The start found nothing in doubt, so that nothing was synced."""
    refused(torn).abandon()
    open_partition(memory, "/data", recovery_point=4).close()
    for seed in range(40):
        left = memory.crash(SeededRng(seed))
        log = open_partition(left, "/data", recovery_point=4, clean=True)
        assert log.log_end_offset == 4 or torn == ALL
        log.check()
        log.abandon()
        open_partition(left, "/data", recovery_point=4, clean=True).check()


def test_less_than_the_recovery_point_after_a_clean_stop_is_corruption(
    place, open_partition, batch
):
    disk, directory = place
    log = open_partition(disk, directory)
    log.append(batch(4), leader_epoch=3)
    log.append(batch(3), leader_epoch=3)
    log.close()
    file = disk.open(log.segments[0].path)
    file.truncate(file.size() - 1)
    with pytest.raises(CorruptFile, match="after a clean stop"):
        open_partition(disk, directory, recovery_point=7, clean=True)


@pytest.mark.parametrize("offset", [4, 5, 12])
def test_a_damaged_offset_at_the_end_of_a_full_segment_takes_nothing(
    place, open_partition, batch, offset
):
    """It looks like a batch behind the segment's end. All is acknowledged."""
    disk, directory = place
    log = open_partition(disk, directory)
    log.append(batch(2), leader_epoch=3)
    log.append(batch(2), leader_epoch=3)
    size = log.size_bytes
    log.roll()
    log.append(batch(1), leader_epoch=3)
    log.close()
    disk.open(log.segments[0].path).write_at(size // 2, offset.to_bytes(8, "big"))
    with pytest.raises(CorruptFile):
        open_partition(disk, directory, recovery_point=2)
    assert disk.size_of(log.segments[0].path) == size


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


def test_a_roll_after_a_refused_one_cuts_off_what_was_preallocated(memory, open_partition, batch):
    disk = FaultyDisk(memory)
    log = open_partition(disk, "/data", is_preallocated=True, segment_bytes=5000)
    log.append(batch(4), leader_epoch=3)
    disk.fail(DiskCall.TRUNCATE, errno=errno.ENOSPC)
    with pytest.raises(KafkaError):
        log.roll()
    log.roll()
    log.append(batch(1), leader_epoch=3)
    log.flush()
    assert disk.size_of(log.segments[0].path) == log.segments[0].size_bytes
    log.abandon()
    open_partition(memory, "/data", recovery_point=5).check()
