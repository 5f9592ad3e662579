"""Planned failures strike when planned, and leave behind what a real device leaves."""

import errno

import pytest

from ottla.env.faulty_disk import DiskCall, DiskKilled, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng


@pytest.fixture
def memory():
    return MemoryDisk(durability=True)


@pytest.fixture
def disk(memory):
    return FaultyDisk(memory)


@pytest.fixture
def file(disk):
    file = disk.open("/log", create=True)
    disk.sync_directory("/")
    return file


def test_the_nth_call_of_its_kind_fails_once(disk, file):
    disk.fail(DiskCall.SYNC, nth=2, errno=errno.EIO)
    file.sync()
    file.write_at(0, b"x")
    with pytest.raises(OSError, match="/log") as failure:
        file.sync()
    assert failure.value.errno == errno.EIO
    file.sync()


def test_a_lasting_fault_ends_when_healed(disk, file):
    disk.fail(DiskCall.WRITE, errno=errno.ENOSPC, lasting=True)
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            file.write_at(0, b"x")
    disk.heal()
    file.write_at(0, b"x")
    assert file.size() == 1


def test_a_failed_sync_never_makes_those_bytes_durable(disk, memory, file):
    file.write_at(0, b"lost")
    disk.fail(DiskCall.SYNC)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()  # A kernel says all is well: the pages are clean.
    assert file.read_at(0, 9) == b"lost", "the page cache still has them"
    sizes = {memory.crash(SeededRng(seed)).size_of("/log") for seed in range(50)}
    assert sizes == {0}


def test_a_torn_write_leaves_its_prefix(disk, file):
    disk.tear_write(2, nth=2)
    file.write_at(0, b"first")
    with pytest.raises(OSError, match="No space"):
        file.write_at(5, b"second")
    assert file.read_at(0, 99) == b"firstse"
    file.write_at(5, b"second")
    assert file.read_at(0, 99) == b"firstsecond"


def test_calls_are_counted_by_kind(disk, file):
    file.write_at(0, b"x")
    file.write_at(1, b"y")
    file.read_at(0, 2)
    disk.exists("/log")
    assert disk.counts[DiskCall.WRITE] == 2
    assert disk.counts[DiskCall.READ] == 1
    assert disk.counts[DiskCall.OPEN] == 1
    assert disk.counts[DiskCall.LOOK] == 1


def test_nothing_happens_after_the_death(disk, memory, file):
    disk.kill()
    assert disk.killed
    for use in (
        lambda: file.write_at(0, b"x"),
        file.sync,
        lambda: file.read_at(0, 1),
        lambda: disk.open("/new", create=True),
        lambda: disk.exists("/log"),
        lambda: disk.rename("/log", "/gone"),
    ):
        with pytest.raises(DiskKilled):
            use()
    file.close()
    assert memory.list_directory("/") == ["log"]
    assert memory.size_of("/log") == 0


def test_death_at_each_changing_call_stops_right_before_it():
    def story(disk):
        file = disk.open("/x.tmp", create=True)
        file.write_at(0, b"x")
        file.read_at(0, 1)
        file.sync()
        disk.rename("/x.tmp", "/x")
        disk.sync_directory("/")

    after_death = []
    for nth in range(1, 6):
        memory = MemoryDisk(durability=True)
        disk = FaultyDisk(memory)
        disk.kill_at(nth)
        with pytest.raises(DiskKilled):
            story(disk)
        names = memory.list_directory("/")
        after_death.append([(name, memory.size_of(f"/{name}")) for name in names])
    assert after_death == [[], [("x.tmp", 0)], [("x.tmp", 1)], [("x.tmp", 1)], [("x", 1)]]
    disk = FaultyDisk(MemoryDisk())
    disk.kill_at(6)
    story(disk)
    assert not disk.killed


def test_a_fault_of_two_kinds_of_calls_strikes_once(disk, memory):
    volume = disk.open_volume("/")
    file = disk.open("/other", create=True)
    for first, second in ((file.sync, lambda: volume.sync([file])),) * 2:
        disk.fail(DiskCall.SYNC, or_call=DiskCall.SYNC_VOLUME, nth=2)
        first()
        with pytest.raises(OSError, match="Input/output"):
            second()
        second()
        first()
