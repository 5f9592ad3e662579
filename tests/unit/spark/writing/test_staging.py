"""Staging without Spark or a cluster: what goes where, what is cleared, what fails."""

import errno
import os
import stat
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from ottla.ids import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.spark.writing import staging_place
from ottla.spark.writing.delivery import _clear
from ottla.spark.writing.staged_files import (
    ABANDONED_MS,
    MESSAGE_BYTES_MIN,
    attempt_directory,
    message_bytes_max,
    orphans,
    owner_directory,
)
from ottla.spark.writing.staging import Location, StagingWriter
from ottla.spark.writing.staging_place import (
    Attempt,
    Place,
    Proof,
    StagingError,
    holds,
    local_path,
    stage,
    without_secrets,
)

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("a topic", 9_999)


def batch(text):
    return build_batch([Record(value=text.encode())], transactional=True)


# -- how much may be in messages -----------------------------------------------------------------


@given(total=st.integers(0, 1 << 30), tasks=st.integers(1, 100_000))
@settings(max_examples=50)
def test_all_messages_together_are_bounded_however_many_tasks_there_are(total, tasks):
    """The driver's heap has to hold them all, and no task knows of the others."""
    sizes = [message_bytes_max(total, task) for task in range(tasks)]
    assert sum(size for size in sizes if size > MESSAGE_BYTES_MIN) <= total
    assert min(sizes) >= MESSAGE_BYTES_MIN
    assert sizes == sorted(sizes, reverse=True)


def test_the_first_tasks_may_say_most():
    assert message_bytes_max(16 << 20, 0) == message_bytes_max(16 << 20, 7) == 1 << 20
    assert message_bytes_max(16 << 20, 8) == message_bytes_max(16 << 20, 71) == 64 << 10
    assert message_bytes_max(16 << 20, 72) == 4 << 10
    assert message_bytes_max(16 << 20, 10_000) == MESSAGE_BYTES_MIN


# -- names, and what is cleared ------------------------------------------------------------------

NOW_MS = 1_800_000_000_000
ATTEMPT = Attempt(NOW_MS, "c0ffeec0ffee")
ONE = f"{owner_directory('owner')}/1-00000000001-{'a' * 12}"


def test_an_attempt_has_a_directory_of_its_own():
    one = attempt_directory(ATTEMPT, "ottla-spark-q", 7)
    assert one.endswith("/7-1a3185c5000-c0ffeec0ffee")
    assert attempt_directory(ATTEMPT, "other", 7) != one
    assert attempt_directory(ATTEMPT, None, None) == "jobs/job-1a3185c5000-c0ffeec0ffee"


@pytest.mark.parametrize("owner", ["../../etc", "a/b", "ü" * 300, "", ".", "x" * 300, "a b\n"])
def test_any_transactional_id_makes_one_name(owner):
    name = owner_directory(owner)
    assert "/" not in name
    assert len(os.fsencode(name)) < 100
    assert name not in (".", "..", "jobs")
    assert name != owner_directory(owner + "_")


def test_what_is_done_or_older_than_a_week_is_cleared_and_nothing_else():
    mine, yours = owner_directory("mine"), owner_directory("yours")
    fresh, old = f"{NOW_MS - 1000:x}", f"{NOW_MS - ABANDONED_MS - 1:x}"
    one = "a" * 12
    there = [
        f"{mine}/3-{fresh}-{one}",  # of another driver, or killed before
        f"{mine}/4-{fresh}-{one}",
        f"{mine}/5-{fresh}-{one}",  # perhaps under way
        f"{mine}/5-{old}-{one}",
        f"{mine}/notes",
        f"{mine}/3-{fresh}-xyz",
        f"{yours}/1-{fresh}-{one}",
        f"{yours}/1-{old}-{one}",
        f"jobs/job-{fresh}-{one}",
        f"jobs/job-{old}-{one}",
        "offsets/3",
        f"backups/1-{old}-{one}",
    ]
    aged = [f"{mine}/5-{old}-{one}", f"{yours}/1-{old}-{one}", f"jobs/job-{old}-{one}"]
    done = [f"{mine}/3-{fresh}-{one}", f"{mine}/4-{fresh}-{one}"]
    assert orphans(there, "mine", 4, NOW_MS) == sorted(aged + done)
    assert orphans(there, "mine", None, NOW_MS) == sorted(aged)
    assert orphans(there, None, None, NOW_MS) == sorted(aged)


@pytest.mark.parametrize(
    "directory",
    [
        "orders/2026-11-27",
        "orders-0123456789ab/2026-11-27",  # as an owner is named
        "jobs/2026-11-27",
        "jobs/00-1a3185c5000-c0ffee",
        f"orders/1-00000000001-{'a' * 12}",
        "0/0-0-0",
    ],
)
def test_other_peoples_data_in_the_location_is_left_alone(tmp_path, directory):
    """Days are written like attempts, and by that they would have been 56 years old."""
    kept = tmp_path / directory / "part-0.parquet"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"dear")
    file = write(tmp_path, [(FIRST, batch("a"))])
    _clear(str(tmp_path), [file], "owner", 1)
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [kept]


def test_a_location_that_cannot_be_listed_is_rid_of_what_was_staged_just_now(tmp_path, monkeypatch):
    file = write(tmp_path, [(FIRST, batch("a"))])

    def refuse(self):
        raise StagingError("listing is not allowed here")

    monkeypatch.setattr(Location, "directories", refuse)
    _clear(str(tmp_path), [file], "owner", 1)
    assert not (tmp_path / file.path).exists()


# -- a file --------------------------------------------------------------------------------------


def write(location, batches, directory=ONE, name="0"):
    writer = StagingWriter(Place(str(location)), directory, name)
    for partition, data in batches:
        writer.write(partition, memoryview(data))
    return writer.finish()


def test_what_is_written_is_read(tmp_path):
    batches = [(FIRST, batch("a")), (SECOND, batch("b" * 3_000_000)), (FIRST, batch(""))]
    file = write(tmp_path, batches)
    there = Location(str(tmp_path))
    assert list(there.batches(file)) == batches
    assert there.index(file).partitions() == {FIRST, SECOND}
    assert there.directories() == [ONE]
    assert (tmp_path / file.path).stat().st_size == file.size_bytes
    there.remove(ONE)
    there.remove(ONE)
    assert there.directories() == []
    assert Location(str(tmp_path / "nothing")).directories() == []


def test_a_file_is_read_a_batch_at_a_time(tmp_path):
    """However large it is: nothing of what was read is kept."""
    import tracemalloc

    file = write(tmp_path, [(FIRST, batch("x" * 1_000_000)) for _ in range(50)])
    tracemalloc.start()
    for _ in Location(str(tmp_path)).batches(file):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_two_attempts_of_a_task_do_not_meet(tmp_path):
    """Speculation: both write, one's message comes through, the other's file is cleared."""
    one = write(tmp_path, [(FIRST, batch("a"))], name="0-aa")
    other = write(tmp_path, [(FIRST, batch("a")), (FIRST, batch("b"))], name="0-bb")
    assert len(list(Location(str(tmp_path)).batches(one))) == 1
    assert len(list(Location(str(tmp_path)).batches(other))) == 2
    assert one.directory == other.directory


def test_a_task_that_fails_takes_its_file_away(tmp_path):
    writer = StagingWriter(Place(str(tmp_path)), ONE, "0")
    writer.write(FIRST, memoryview(batch("a")))
    writer.abandon()
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]
    file = write(tmp_path, [(FIRST, batch("a"))])
    assert (tmp_path / file.path).exists()


def test_a_file_that_cannot_be_closed_is_taken_away(tmp_path, monkeypatch):
    """A full disk says so at the end only, and the file is closed all the same."""
    finish = Location.finish

    def full(self, file):
        finish(self, file)
        raise StagingError("No space left on device")

    writer = StagingWriter(Place(str(tmp_path)), ONE, "0")
    with monkeypatch.context() as patch:
        patch.setattr(Location, "finish", full)
        with pytest.raises(StagingError):
            writer.finish()
    writer.abandon()
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


class Faulty(fs.FileSystemHandler):
    """A file system of which some calls fail; the others are those of this machine."""

    def __init__(self, directory, failing, error):
        self.inner = fs.SubTreeFileSystem(str(directory), fs.LocalFileSystem())
        self.failing, self.error = failing, error

    def _do(self, name, *arguments, **named):
        if name == self.failing:
            raise self.error
        return getattr(self.inner, name)(*arguments, **named)

    def get_type_name(self):
        return "faulty"

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return self._do("get_file_info", paths)

    def get_file_info_selector(self, selector):
        return self._do("get_file_info", selector)

    def create_dir(self, path, recursive):
        self._do("create_dir", path, recursive=recursive)

    def delete_dir(self, path):
        self._do("delete_dir", path)

    def delete_dir_contents(self, path, missing_dir_ok=False):
        raise NotImplementedError

    def delete_root_dir_contents(self):
        raise NotImplementedError

    def delete_file(self, path):
        self._do("delete_file", path)

    def move(self, src, dest):
        raise NotImplementedError

    def copy_file(self, src, dest):
        raise NotImplementedError

    def open_input_stream(self, path):
        return self._do("open_input_stream", path)

    def open_input_file(self, path):
        return self._do("open_input_file", path)

    def open_output_stream(self, path, metadata):
        return self._do("open_output_stream", path)

    def open_append_stream(self, path, metadata):
        raise NotImplementedError


ERRORS = {
    "create_dir": OSError(errno.EROFS, "Read-only file system"),
    "open_output_stream": PermissionError(errno.EACCES, "Permission denied"),
    "open_input_file": FileNotFoundError(errno.ENOENT, "No such file or directory"),
    "open_input_stream": OSError(errno.EIO, "Input/output error"),
    "get_file_info": OSError(errno.EIO, "Input/output error"),
    "delete_dir": OSError(errno.EROFS, "Read-only file system"),
    "delete_file": OSError(errno.EROFS, "Read-only file system"),
}


@pytest.mark.parametrize("failing", ERRORS)
def test_whatever_a_location_says_is_told_with_its_name(tmp_path, failing):
    file = write(tmp_path, [(FIRST, batch("a"))])
    system = fs.PyFileSystem(Faulty(tmp_path, failing, ERRORS[failing]))
    there = Location("faulty", system)
    there._base = ""
    calls = {
        "create_dir": lambda: there.create("a/b/c"),
        "open_output_stream": lambda: there.create("a/b/c"),
        "open_input_file": lambda: there.index(file),
        "open_input_stream": lambda: list(there.batches(file)),
        "get_file_info": there.directories,
        "delete_dir": lambda: there.remove(ONE),
        "delete_file": lambda: there.remove_file(file.path),
    }
    if failing == "delete_file":
        with pytest.raises(StagingError, match="cannot be removed"):
            calls[failing]()
        return
    with pytest.raises(StagingError) as caught:
        calls[failing]()
    assert str(caught.value).startswith("staging in faulty: ")
    assert ERRORS[failing].strerror in str(caught.value)
    assert "stagingLocation names a directory or URI" in str(caught.value)


def test_a_full_location_is_told():
    """The kernel's own full device."""
    file = fs.LocalFileSystem().open_output_stream("/dev/full", buffer_size=1)
    with pytest.raises(StagingError, match=r"a file cannot be written .*No space left"):
        Location("/dev").write(file, bytes(2 << 20))


@pytest.mark.parametrize("location", ["dbfs:/staging", "nowhere://bucket/x", "mem:x"])
def test_a_scheme_without_a_file_system_is_told(location):
    with pytest.raises(StagingError, match=r"cannot be used .*stagingLocation names"):
        StagingWriter(Place(location), "a/b", "0")


def test_secrets_of_a_location_are_not_told():
    location = "nowhere://key:secret@bucket/x?token=secret"
    assert without_secrets(location) == "nowhere://...@bucket/x"
    with pytest.raises(StagingError) as caught:
        Location(location)
    assert str(caught.value).startswith("staging in nowhere://...@bucket/x: ")


# -- where it is ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b c", "/a/b c"),
        ("file:///a%20b", "/a%20b"),
        ("s3://a/b", None),
        ("file", None),
        ("a/b", None),
        ("file://host/a", None),
    ],
)
def test_paths_of_this_machine(location, path):
    assert local_path(location) == path


@pytest.fixture
def checkpoint(tmp_path):
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    (directory / "metadata").write_text('{"id":"q"}')
    return directory


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """The directory of this machine, of the test's own."""
    monkeypatch.setattr(staging_place.tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path / f"ottla-staging-{os.getuid()}"


def test_the_option_goes_before_the_checkpoint(checkpoint):
    assert stage("s3://bucket/x", str(checkpoint)).place == Place("s3://bucket/x")


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_beside_a_checkpoint_that_is_seen_here(checkpoint, scheme):
    place = stage(None, f"{scheme}{checkpoint}").place
    proof = Proof(f"{checkpoint}/metadata", b'{"id":"q"}')
    assert place == Place(f"{checkpoint}/ottla-staging", proof)
    assert holds(place.proof)
    (checkpoint / "metadata").write_text('{"id":"another"}')
    assert not holds(place.proof)
    with pytest.raises(StagingError, match=r"driver is not there on .*stagingLocation names"):
        StagingWriter(place, "o/a", "0")


def test_a_relative_checkpoint_becomes_absolute(checkpoint, monkeypatch):
    """Executors have other working directories."""
    monkeypatch.chdir(checkpoint.parent)
    assert stage(None, "checkpoint").place.location == f"{checkpoint}/ottla-staging"


def test_beside_a_checkpoint_that_is_a_uri():
    place = stage(None, "s3a://bucket/checkpoints/q/").place
    assert place == Place("s3a://bucket/checkpoints/q/ottla-staging")


@pytest.mark.parametrize("checkpoint", [None, "/not/there", "not/there"])
def test_else_on_this_machine_with_a_proof(machine, checkpoint):
    """A path without a scheme may be of a file system that Spark alone knows."""
    place = stage(None, checkpoint).place
    assert place.location == str(machine)
    assert stat.S_IMODE(machine.stat().st_mode) == 0o700
    assert holds(place.proof)
    assert stage(None, checkpoint).place == place
    Path(place.proof.path).unlink()
    assert not holds(place.proof)


def test_a_proof_that_a_power_cut_has_left_empty_is_made_anew(machine):
    proof = stage(None, None).place.proof
    Path(proof.path).write_bytes(b"")
    place = stage(None, None).place
    assert place is not None
    assert holds(place.proof)


def test_a_directory_that_others_may_look_into_is_none(machine):
    machine.mkdir()
    machine.chmod(0o755)
    assert stage(None, None).place is None
    with pytest.raises(StagingError, match=r"there is no place for that\. .*stagingLocation names"):
        StagingWriter(None, "o/a", "0")


def test_each_attempt_is_another(machine):
    assert stage(None, None).attempt != stage(None, None).attempt
