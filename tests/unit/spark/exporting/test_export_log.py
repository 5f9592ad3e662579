"""What counts of an export, whatever moment it is killed at."""

import json

import pytest

from ottla.env.faulty_disk import DiskKilled, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.errors import CorruptFile
from ottla.spark.exporting import export_log
from ottla.spark.exporting.export_log import Commit, ExportedFile, ExportError, ExportLog, Layout
from ottla.spark.offsets import OffsetRange

LAYOUT = Layout("t", "ab", ("key", "value"), ("date",))
ROOT = "/out"


def stage(disk, staging, name):
    """Write a file as a task does: durable under its first name."""
    file = disk.open(f"{staging}/{name}", create=True)
    file.write_at(0, name.encode())
    file.sync()
    file.close()
    disk.sync_directory(staging)


def add(disk, log, *, days=("1", "2")):
    number, staging = log.begin()
    files = []
    for day in days:
        stage(disk, staging, f"s{number}-{day}")
        path = f"date={day}/part-0-{number}.parquet"
        files.append(ExportedFile(f"s{number}-{day}", path, 0, number * 10, 5, 9))
    one = OffsetRange("t", 0, number * 10, number * 10 + 10)
    log.add(Commit(number, LAYOUT, (one,), tuple(files)))


def visible(disk):
    """Every file that a reader sees, with its content."""
    found = {}
    if not disk.exists(ROOT):
        return found
    for name in disk.list_directory(ROOT):
        if not name.startswith("_"):
            for file in disk.list_directory(f"{ROOT}/{name}"):
                opened = disk.open_read_only(f"{ROOT}/{name}/{file}")
                found[f"{name}/{file}"] = opened.read_at(0, 100).decode()
    return found


def promised(log):
    return {file.path: file.staged for commit in log.commits for file in commit.files}


def test_of_two_first_exports_at_once_the_lock_decides(monkeypatch):
    """One of them ended with FileExistsError: it saw no directory, and then could not make it."""
    disk = MemoryDisk()
    other, exists = [], disk.exists

    def slow(path):
        found = exists(path)
        if not found and not other:
            other.append(None)
            other.append(ExportLog.open(disk, ROOT))
        return found

    monkeypatch.setattr(disk, "exists", slow)
    with pytest.raises(ExportError, match="another export is at work"):
        ExportLog.open(disk, ROOT)
    other[1].close()
    add(disk, ExportLog.open(disk, ROOT))


def test_commits_follow_each_other_and_are_read_again():
    disk = MemoryDisk()
    log = ExportLog.open(disk, ROOT)
    add(disk, log)
    add(disk, log)
    log.close()
    again = ExportLog.open(disk, ROOT)
    assert [commit.number for commit in again.commits] == [1, 2]
    assert again.commits == log.commits
    assert again.ends() == {0: 30}
    assert visible(disk) == promised(again)
    assert len(visible(disk)) == 4


def test_one_export_at_a_time():
    disk = MemoryDisk()
    log = ExportLog.open(disk, ROOT)
    with pytest.raises(ExportError, match="another export"):
        ExportLog.open(disk, ROOT)
    log.close()
    ExportLog.open(disk, ROOT).close()


def test_what_a_dead_export_left_in_staging_is_swept():
    disk = MemoryDisk()
    log = ExportLog.open(disk, ROOT)
    _, staging = log.begin()
    stage(disk, staging, "half")
    log.close()
    ExportLog.open(disk, ROOT).close()
    assert disk.list_directory(f"{ROOT}/_ottla/staging") == []
    assert visible(disk) == {}


def steps_of_an_export(disk):
    log = ExportLog.open(disk, ROOT)
    try:
        add(disk, log)
        add(disk, log, days=("2", "3"))
    finally:
        log.close()  # as the end of a process does, however it ends


def count_steps():
    for nth in range(1, 1000):
        counted = FaultyDisk(MemoryDisk())
        counted.kill_at(nth)
        try:
            steps_of_an_export(counted)
        except DiskKilled:
            continue
        return nth
    raise AssertionError


@pytest.mark.parametrize("power_cut", [False, True])
def test_killed_at_any_step_nothing_half_is_seen_and_nothing_counts_twice(power_cut):
    steps = count_steps()
    assert steps > 30
    seen = set()
    for nth in range(1, steps):
        memory = MemoryDisk(durability=power_cut)
        faulty = FaultyDisk(memory)
        faulty.kill_at(nth)
        with pytest.raises(DiskKilled):
            steps_of_an_export(faulty)
        disk = memory.crash(SeededRng(nth)) if power_cut else memory
        # Before anybody comes back: what readers see is whole, and belongs to a commit.
        before = visible(disk)
        commits = export_log.read_commits(disk, ROOT)
        named = {file.path: file.staged for commit in commits for file in commit.files}
        assert before.items() <= named.items(), nth
        log = ExportLog.open(disk, ROOT)
        assert visible(disk) == promised(log), nth
        assert disk.list_directory(f"{ROOT}/_ottla/staging") == []
        seen.add(len(log.commits))
        add(disk, log, days=("9",))
        assert visible(disk) == promised(log)
    assert seen == {0, 1, 2}


def test_a_file_that_a_commit_names_and_that_is_gone_is_told():
    disk = MemoryDisk()
    log = ExportLog.open(disk, ROOT)
    add(disk, log)
    log.close()
    disk.remove(f"{ROOT}/date=1/part-0-1.parquet")
    with pytest.raises(CorruptFile, match=r"part-0-1\.parquet"):
        ExportLog.open(disk, ROOT)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b"\xff", b'{"version": 9}', b'{"version": 1, "number": 1}']
)
def test_a_commit_that_is_none_is_told(text):
    disk = MemoryDisk()
    log = ExportLog.open(disk, ROOT)
    add(disk, log)
    log.close()
    file = disk.open(f"{ROOT}/_ottla/commits/00000001.json")
    file.truncate(0)
    file.write_at(0, text)
    file.close()
    with pytest.raises(CorruptFile, match=r"00000001\.json"):
        ExportLog.open(disk, ROOT)


def test_overlapping_ranges_are_told():
    disk = MemoryDisk()
    log = ExportLog.open(disk, ROOT)
    log.begin()
    one = OffsetRange("t", 0, 0, 10)
    log.add(Commit(1, LAYOUT, (one,), ()))
    log.begin()
    log.add(Commit(2, LAYOUT, (one._replace(start=9, end=20),), ()))
    log.close()
    with pytest.raises(CorruptFile, match="does not follow offset 10"):
        ExportLog.open(disk, ROOT)


def r(partition, start, end):
    return OffsetRange("t", partition, start, end)


def test_neighbouring_parts_are_one_range():
    assert export_log.joined([r(0, 8, 15), r(1, 0, 3), r(0, 5, 8)]) == (r(0, 5, 15), r(1, 0, 3))


def test_waves_take_partitions_side_by_side_and_each_partition_in_order():
    parts = [r(0, 0, 10), r(0, 10, 20), r(0, 20, 30), r(1, 0, 10)]
    assert export_log.waves(parts, 20) == [[r(0, 0, 10), r(1, 0, 10)], [r(0, 10, 20), r(0, 20, 30)]]
    assert export_log.waves(parts, 1) == [[each] for each in (parts[0], parts[3], *parts[1:3])]
    assert export_log.waves([], 1) == []


def test_a_task_that_outlives_its_driver_cannot_write_into_the_next_ones_files():
    """Attempt numbers begin at 0 with each driver: the names of files would be the same."""
    disk = MemoryDisk()
    log = ExportLog.open(disk, ROOT, SeededRng(1))
    _, of_the_dead = log.begin()
    log.close()
    log = ExportLog.open(disk, ROOT, SeededRng(2))
    _, staging = log.begin()
    assert staging != of_the_dead
    with pytest.raises(FileNotFoundError):
        stage(disk, of_the_dead, "0-0-0-0")
    assert log.begin()[1] != staging  # after an error in the same driver, too


def test_a_commit_of_an_older_version_is_finished():
    """Its staging directory had no random part, and it told no type."""
    disk = MemoryDisk()
    log = ExportLog.open(disk, ROOT)
    add(disk, log)
    log.close()
    path = f"{ROOT}/_ottla/commits/00000001.json"
    file = disk.open(path)
    value = json.loads(file.read_at(0, 1 << 16))
    del value["staging"], value["value"]
    file.truncate(0)
    file.write_at(0, json.dumps(value).encode())
    file.close()
    disk.make_directory(f"{ROOT}/_ottla/staging/00000001")
    disk.rename(f"{ROOT}/date=1/part-0-1.parquet", f"{ROOT}/_ottla/staging/00000001/s1-1")
    log = ExportLog.open(disk, ROOT)
    assert log.commits[0].layout.value is None
    assert visible(disk) == promised(log)


@pytest.mark.parametrize("name", ["k" * 256, "é" * 128])
def test_a_name_that_no_file_system_takes_is_refused_before_the_commit_counts(name):
    disk = MemoryDisk()
    log = ExportLog.open(disk, ROOT)
    with pytest.raises(ExportError, match="more than 255 bytes"):
        add(disk, log, days=("1", name))
    log.close()
    log = ExportLog.open(disk, ROOT)
    assert (log.commits, visible(disk)) == ([], {})
    add(disk, log)
    assert visible(disk) == promised(log)


def test_where_a_partition_begins_is_kept_once():
    every = [r(0, 0, 10), r(1, 5, 5), r(2, 7, 9)]
    begins = export_log.with_begins([r(0, 0, 10)], every, {})
    assert begins == (r(0, 0, 10), r(1, 5, 5), r(2, 7, 7))
    assert export_log.with_begins([], every, {0: 10, 1: 5, 2: 7}) == ()
    disk = MemoryDisk()
    log = ExportLog.open(disk, ROOT)
    log.begin()
    log.add(Commit(1, LAYOUT, begins, ()))
    assert log.ends() == {0: 10, 1: 5, 2: 7}
    log.close()
    assert ExportLog.open(disk, ROOT).ends() == {0: 10, 1: 5, 2: 7}
