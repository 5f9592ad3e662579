"""What an export has written: a directory's commits, each a range of offsets and the files it made.

    DIRECTORY/_ottla/lock                 one export at a time
    DIRECTORY/_ottla/commits/00000001.json ...    what counts; the form is in docs/formats
    DIRECTORY/_ottla/staging/00000002-5a...c1/    files of the commit that is being made
    DIRECTORY/date=2013-01-01/part-0-00000000000000000000.parquet    what readers see

A commit is made when its JSON has its name, durably; its files get theirs after that, and the next
export finishes what a crash left undone. So readers see whole files only, and no record twice.
The driver's side: knows no Parquet, no Spark, no network. Readers skip names that begin with ``_``.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.env.disk import Disk, Lock
from ottla.env.rng import Rng, SystemRng
from ottla.errors import CorruptFile, OttlaError
from ottla.spark.offsets import OffsetRange

VERSION = 1
PRIVATE = "_ottla"
SIZE_BYTES_MAX = 1 << 30
NAME_BYTES_MAX = 255
"""The longest name of a file or directory that every common file system takes."""
RAW = "binary"


class ExportError(OttlaError):
    """An export that cannot be made or continued; the text says why."""


class ExportedFile(NamedTuple):
    """One Parquet file of a commit, durable under its first name."""

    staged: str
    """The file's name in the staging directory."""
    path: str
    """The file's name in the export, with ``/`` between directories."""
    partition: int
    start: int
    """Where the range begins whose records it holds: all of them, or those of its directory."""
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """What every commit of an export has in common: a continued export must agree."""

    topic: str
    topic_id: str
    """In hexadecimal; empty where the cluster has none."""
    columns: tuple[str, ...]
    partition_by: tuple[str, ...]
    value: str | None = RAW
    """The type of the column value, in Spark's words; None: a commit that does not tell it."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Ranges of offsets, and the files that hold all their records."""

    number: int
    layout: Layout
    ranges: tuple[OffsetRange, ...]
    files: tuple[ExportedFile, ...]
    staging: str = ""
    """The name of its staging directory; ``ExportLog.add`` knows it."""

    def to_json(self) -> bytes:
        """Return the commit as its file holds it."""
        value = {
            "version": VERSION,
            "number": self.number,
            "topic": self.layout.topic,
            "topic_id": self.layout.topic_id,
            "columns": self.layout.columns,
            "partition_by": self.layout.partition_by,
            "value": self.layout.value,
            "staging": self.staging,
            "ranges": [[each.partition, each.start, each.end] for each in self.ranges],
            "files": [each._asdict() for each in self.files],
        }
        return json.dumps(value, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes, path: str) -> "Commit":
        """Return the commit that ``data`` holds. Raises CorruptFile."""
        try:
            value = json.loads(data)
            if value["version"] != VERSION:
                raise CorruptFile(path, f"version {value['version']}, expected {VERSION}")
            layout = Layout(
                topic=value["topic"],
                topic_id=value["topic_id"],
                columns=tuple(value["columns"]),
                partition_by=tuple(value["partition_by"]),
                value=value.get("value"),
            )
            ranges = tuple(
                OffsetRange(layout.topic, int(partition), int(start), int(end))
                for partition, start, end in value["ranges"]
            )
            files = tuple(ExportedFile(**each) for each in value["files"])
            number = int(value["number"])
            return cls(number, layout, ranges, files, value.get("staging", f"{number:08}"))
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFile(path, f"no commit of an export: {error}") from error


class ExportLog:
    """The commits of one directory, and the only way to add one. Blocks.

    ``open`` takes the directory's lock and finishes the last commit; ``close`` gives the lock up.
    """

    def __init__(self, disk: Disk, directory: str, rng: Rng) -> None:
        """Use ``open``. ``directory`` is absolute."""
        self.directory = directory.rstrip("/")
        self.commits: list[Commit] = []
        self._disk = disk
        self._lock: Lock | None = None
        self._private = f"{self.directory}/{PRIVATE}"
        self._rng = rng
        self._staging = ""

    @classmethod
    def open(cls, disk: Disk, directory: str, rng: Rng | None = None) -> "ExportLog":
        """Return the log of ``directory``, made if it is new. Raises ExportError, CorruptFile."""
        log = cls(disk, directory, rng or SystemRng())
        for part in ("", "/commits", "/staging"):
            log._make(log._private + part)
        try:
            log._lock = disk.lock(f"{log._private}/lock")
        except BlockingIOError as error:
            message = f"another export is at work in {directory}"
            raise ExportError(message) from error
        try:
            log.commits = read_commits(disk, directory)
            if log.commits:
                log._publish(log.commits[-1])
            log._sweep()
        except BaseException:
            log.close()
            raise
        return log

    def close(self) -> None:
        """Give the lock up. Harmless when closed already."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def ends(self) -> dict[int, int]:
        """Return the offset to go on with, by partition."""
        return {one.partition: one.end for commit in self.commits for one in commit.ranges}

    def begin(self) -> tuple[int, str]:
        """Return the next commit's number and an empty directory for its files.

        No other attempt at this commit has or had that directory: tasks of an export whose driver
        died go on for a while, and must not write into this one's files.
        """
        number = self.commits[-1].number + 1 if self.commits else 1
        self._sweep()
        self._staging = f"{number:08}-{self._rng.random_bytes(8).hex()}"
        staging = f"{self._private}/staging/{self._staging}"
        self._make(staging)
        return number, staging

    def add(self, commit: Commit) -> None:
        """Make ``commit`` count: its files lie in staging, durable. Returns when all is durable.

        After an error it may count or not; ``open`` tells. Raises ExportError, before it counts,
        for a file whose name no file system takes.
        """
        _require_names(commit)
        commit = replace(commit, staging=self._staging)
        assert commit.number == (self.commits[-1].number + 1 if self.commits else 1)
        path = f"{self._private}/commits/{commit.number:08}.json"
        file = self._disk.open(f"{path}.new", create=True)
        try:
            file.truncate(0)
            file.write_at(0, commit.to_json())
            file.sync()
        finally:
            file.close()
        self._disk.rename(f"{path}.new", path)
        self._disk.sync_directory(f"{self._private}/commits")
        self.commits.append(commit)
        self._publish(commit)
        self._sweep()

    def _publish(self, commit: Commit) -> None:
        """Give the files of ``commit`` their names. Does what is left to do of it."""
        staging = f"{self._private}/staging/{commit.staging}"
        parents: dict[str, None] = {}
        for each in commit.files:
            target = f"{self.directory}/{each.path}"
            source = f"{staging}/{each.staged}"
            parent = target.rpartition("/")[0]
            if self._disk.exists(source):
                self._make(parent)
                self._disk.rename(source, target)
            elif not self._disk.exists(target):
                raise CorruptFile(target, f"commit {commit.number} names it, and it is not there")
            parents[parent] = None
        for parent in parents:
            self._disk.sync_directory(parent)

    def _sweep(self) -> None:
        """Remove what no commit names: files of an export that did not come to its end.

        A task that outlived its export may write there still: the next sweep takes that.
        """
        root = f"{self._private}/staging"
        for name in self._disk.list_directory(root):
            with suppress(OSError):
                for file in self._disk.list_directory(f"{root}/{name}"):
                    self._disk.remove(f"{root}/{name}/{file}")
                self._disk.remove_directory(f"{root}/{name}")

    def _make(self, path: str) -> None:
        """Make a directory and those above it, durably."""
        if self._disk.exists(path):
            return
        parent = path.rpartition("/")[0]
        if parent:
            self._make(parent)
        with suppress(FileExistsError):  # another export was quicker; the lock decides between them
            self._disk.make_directory(path)
        self._disk.sync_directory(parent or "/")


def _require_names(commit: Commit) -> None:
    """Raise ExportError unless every file can get its name: the commit would never be finished."""
    for file in commit.files:
        for name in file.path.split("/"):
            if len(name.encode()) > NAME_BYTES_MAX:
                message = f"{name!r} has more than {NAME_BYTES_MAX} bytes: no name for a directory"
                raise ExportError(message)


def read_commits(disk: Disk, directory: str) -> list[Commit]:
    """Return the commits of ``directory`` in order; none where nothing was exported.

    Raises CorruptFile, also for a missing number or ranges that overlap.
    """
    root = f"{directory.rstrip('/')}/{PRIVATE}/commits"
    if not disk.exists(root):
        return []
    commits: list[Commit] = []
    names = [name for name in disk.list_directory(root) if name.endswith(".json")]
    for number, name in enumerate(names, 1):
        path = f"{root}/{name}"
        file = disk.open_read_only(path)
        try:
            commit = Commit.from_json(file.read_at(0, min(file.size(), SIZE_BYTES_MAX)), path)
        finally:
            file.close()
        if commit.number != number or name != f"{number:08}.json":
            raise CorruptFile(path, f"commit {commit.number} stands where {number} is expected")
        _check_ranges(commit, commits, path)
        commits.append(commit)
    return commits


def _check_ranges(commit: Commit, before: Iterable[Commit], path: str) -> None:
    ends = {one.partition: one.end for each in before for one in each.ranges}
    for one in commit.ranges:
        if ends.get(one.partition, one.start) > one.start or one.start > one.end:
            raise CorruptFile(path, f"{one} does not follow offset {ends.get(one.partition)}")
        ends[one.partition] = one.end


def waves(parts: Sequence[OffsetRange], records_max: int) -> list[list[OffsetRange]]:
    """Return the parts divided into commits of about ``records_max`` offsets, in order.

    Partitions go side by side, so that each commit has work for many tasks.
    """
    queues: dict[int, list[OffsetRange]] = {}
    for each in parts:
        queues.setdefault(each.partition, []).append(each)
    turns = max(map(len, queues.values()), default=0)
    found: list[list[OffsetRange]] = []
    size = records_max
    for each in (
        queue[turn] for turn in range(turns) for queue in queues.values() if turn < len(queue)
    ):
        if size + (each.end - each.start) > records_max:
            found.append([])
            size = 0
        found[-1].append(each)
        size += each.end - each.start
    return found


def with_begins(
    ranges: Iterable[OffsetRange], all_of_them: Iterable[OffsetRange], known: Collection[int]
) -> tuple[OffsetRange, ...]:
    """Return ``ranges``, and an empty one where each partition begins that is not ``known`` yet.

    Without it, the next export would not know where a partition began that had nothing so far, or
    whose turn did not come: it would read what was left out, and not see what retention took.
    """
    there = tuple(ranges)
    told = {one.partition for one in there} | set(known)
    begins = (one._replace(end=one.start) for one in all_of_them if one.partition not in told)
    return tuple(sorted((*there, *begins)))


def joined(parts: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Return the parts with those put together that follow each other, one range a partition."""
    found: dict[int, OffsetRange] = {}
    for each in sorted(parts):
        before = found.get(each.partition)
        assert before is None or before.end == each.start, f"{each} does not follow {before}"
        found[each.partition] = each if before is None else before._replace(end=each.end)
    return tuple(found.values())
