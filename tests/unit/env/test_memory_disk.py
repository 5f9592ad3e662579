"""What a power cut leaves on a MemoryDisk, over many seeds."""

import errno

import pytest

from ottla.env.memory_disk import MemoryDisk
from ottla.env.memory_inode import SECTOR_BYTES
from ottla.env.rng import SeededRng

SEEDS = range(200)


@pytest.fixture
def disk():
    disk = MemoryDisk(durability=True)
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def survivors(disk):
    return [disk.crash(SeededRng(seed)) for seed in SEEDS]


def content(disk, path):
    file = disk.open_read_only(path)
    return file.read_at(0, file.size())


def synced_file(disk, path, data):
    file = disk.open(path, create=True)
    file.write_at(0, data)
    file.sync()
    disk.sync_directory("/data")
    return file


def test_synced_bytes_under_a_synced_name_always_survive(disk):
    synced_file(disk, "/data/log", b"safe")
    assert {content(after, "/data/log") for after in survivors(disk)} == {b"safe"}


def test_an_unsynced_name_may_be_lost_with_synced_bytes_in_it(disk):
    file = disk.open("/data/log", create=True)
    file.write_at(0, b"safe")
    file.sync()
    assert {after.exists("/data/log") for after in survivors(disk)} == {True, False}


def test_a_renamed_file_whose_bytes_were_not_synced_may_be_empty(disk):
    file = disk.open("/data/x.tmp", create=True)
    file.write_at(0, b"checkpoint")
    disk.rename("/data/x.tmp", "/data/x")
    disk.sync_directory("/data")
    contents = {content(after, "/data/x") for after in survivors(disk)}
    assert b"" in contents
    assert b"checkpoint" in contents


def test_unsynced_appends_leave_a_prefix_with_sectors_missing(disk):
    file = synced_file(disk, "/data/log", b"s" * 700)
    for number in range(8):
        file.write_at(700 + number * 400, bytes([65 + number]) * 400)
    whole = content(disk, "/data/log")
    lengths, torn = set(), 0
    for after in survivors(disk):
        left = content(after, "/data/log")
        lengths.add(len(left))
        assert left[:700] == b"s" * 700
        assert len(left) <= len(whole)
        assert all(byte in {0, whole[position]} for position, byte in enumerate(left))
        torn += left != whole[: len(left)]
    assert len(lengths) > 20
    assert min(lengths) < 1100, "of the eight appends none may have arrived whole"
    assert max(lengths) > 3000
    assert torn > 10, "some sectors must be missing"


def test_a_sector_is_missing_whole(disk):
    file = synced_file(disk, "/data/log", b"")
    file.write_at(0, b"x" * SECTOR_BYTES * 8)
    for after in survivors(disk):
        left = content(after, "/data/log")
        for start in range(0, len(left) // SECTOR_BYTES * SECTOR_BYTES, SECTOR_BYTES):
            assert set(left[start : start + SECTOR_BYTES]) in ({0}, {ord("x")})


def test_an_overwrite_that_was_not_synced_leaves_old_or_new(disk):
    file = synced_file(disk, "/data/log", b"old" * 10)
    file.write_at(0, b"new" * 10)
    assert {content(after, "/data/log")[:3] for after in survivors(disk)} >= {b"old", b"new"}


def test_an_unsynced_truncation_may_be_undone(disk):
    file = synced_file(disk, "/data/log", b"0123456789")
    file.truncate(3)
    assert {content(after, "/data/log") for after in survivors(disk)} == {b"012", b"0123456789"}
    file.sync()
    assert {content(after, "/data/log") for after in survivors(disk)} == {b"012"}


def test_an_unsynced_removal_may_come_back(disk):
    synced_file(disk, "/data/log", b"x")
    disk.remove("/data/log")
    assert {after.exists("/data/log") for after in survivors(disk)} == {True, False}
    disk.sync_directory("/data")
    assert {after.exists("/data/log") for after in survivors(disk)} == {False}


def test_a_rename_is_there_or_not_but_never_half(disk):
    synced_file(disk, "/data/a", b"x")
    disk.make_directory("/other")
    disk.sync_directory("/")
    disk.rename("/data/a", "/other/b")
    seen = {(after.exists("/data/a"), after.exists("/other/b")) for after in survivors(disk)}
    assert seen == {(True, False), (False, True)}
    disk.sync_directory("/other")
    seen = {(after.exists("/data/a"), after.exists("/other/b")) for after in survivors(disk)}
    assert seen == {(False, True)}


def test_steps_in_a_directory_survive_in_order(disk):
    for number in range(5):
        disk.open(f"/data/{number}", create=True)
    seen = {tuple(after.list_directory("/data")) for after in survivors(disk)}
    assert seen == {tuple(str(name) for name in range(count)) for count in range(6)}


def test_a_directory_that_was_not_synced_takes_its_files_with_it(disk):
    disk.make_directory("/data/t-0")
    disk.open("/data/t-0/log", create=True).sync()
    disk.sync_directory("/data/t-0")
    assert {after.exists("/data/t-0/log") for after in survivors(disk)} == {True, False}
    disk.sync_directory("/data")
    assert {after.exists("/data/t-0/log") for after in survivors(disk)} == {True}


def test_a_crash_leaves_the_disk_it_was_taken_from_alone(disk):
    synced_file(disk, "/data/log", b"x").write_at(1, b"y")
    after = disk.crash(SeededRng(1))
    after.open("/data/log").write_at(0, b"changed")
    assert content(disk, "/data/log") == b"xy"
    assert after.crash(SeededRng(1)).exists("/data/log"), "a survivor can crash again"


def test_another_chance_may_decide_of_the_names(disk):
    class Keeps:
        def random_below(self, limit):
            return limit - 1

    class Loses:
        def random_below(self, _):
            return 0

    file = disk.open("/data/log", create=True)
    file.write_at(0, b"unsynced")
    assert content(disk.crash(Loses(), Keeps()), "/data/log") == b""
    assert not disk.crash(Keeps(), Loses()).exists("/data/log")
    assert content(disk.crash(Keeps()), "/data/log") == b"unsynced"


def test_the_same_seed_crashes_the_same_way(disk):
    file = synced_file(disk, "/data/log", b"")
    file.write_at(0, b"x" * 10_000)
    lengths = {content(disk.crash(SeededRng(9)), "/data/log") for _ in range(5)}
    assert len(lengths) == 1


def test_locks_end_with_the_power(disk):
    disk.lock("/data/.lock")
    disk.sync_directory("/data")
    disk.crash(SeededRng(0)).lock("/data/.lock").release()


def test_a_plain_disk_cannot_crash():
    with pytest.raises(ValueError, match="durability"):
        MemoryDisk().crash(SeededRng(0))


def test_a_full_disk_refuses_and_recovers_when_space_is_freed():
    disk = MemoryDisk(capacity_bytes=1000)
    one, two = disk.open("/one", create=True), disk.open("/two", create=True)
    one.write_at(0, bytes(600))
    two.write_at(0, bytes(300))
    with pytest.raises(OSError, match="No space") as full:
        two.write_at(300, bytes(200))
    assert full.value.errno == errno.ENOSPC
    assert two.size() == 300
    two.write_at(0, b"x" * 300)  # No growth: allowed.
    assert disk.free_bytes("/") == 100
    one.truncate(100)
    assert disk.free_bytes("/") == 600
    disk.remove("/one")
    one.write_at(100, bytes(50))
    assert disk.free_bytes("/") == 700
    two.write_at(300, bytes(700))
    assert disk.free_bytes("/") == 0
