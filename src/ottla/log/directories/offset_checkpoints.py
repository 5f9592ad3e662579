"""The offset checkpoints of all log directories: who writes them, and when a name is free again.

Kafka's checkpoint files go by topic and partition, a name that can come back: they cannot tell a
deleted topic from a new one that bears its name. So an entry may be believed only because of an
order, which whoever makes and deletes logs has to keep:

    1  loop        the log leaves ``LogManager.logs``: no later job tells of it
    2  any thread  its directory is renamed to ``-delete``, durably
    3  any thread  ``forget``: no entry of that name is on disk, and no job on its way writes one
    4  any thread  a directory of that name is made (a new log's, or a copy's that takes its place)
    5  loop        the new log is among ``LogManager.logs``

A crash between any two steps leaves a directory without an entry (nothing is known: all of it is
verified) or an entry without a directory (nobody reads it, and the next ``forget`` knows of it:
a start tells here what it has read). ``forget`` takes all names of a change at once and writes
nothing for names without an entry, so that it costs at most one write of each file.

Between log.manager and log.checkpoints. Source: reliability rules 4, 5, 18 and 21.
"""

from collections.abc import Callable, Collection, Mapping
from posixpath import dirname

from ottla.env.disk import Disk
from ottla.env.executor import new_lock
from ottla.ids import TopicPartition
from ottla.log.directories.directory import LogDirectory
from ottla.log.files.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from ottla.log.files.faults import is_out_of_space
from ottla.log.files.layout import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)

OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
)

Offsets = dict[TopicPartition, int]
HighWatermarkOf = Callable[[TopicPartition], int | None]
"""Gives what is committed of a partition now; None: as far as it is flushed."""


def as_flushed(_: TopicPartition) -> int | None:
    """Stand for nobody knowing better than the log."""
    return None


class CheckpointJob:
    """Offsets as of one moment, on their way to the disk. Made on the loop, run in an executor."""

    __slots__ = ("_owner", "failures", "files", "filled", "passed_over")

    def __init__(self, owner: "OffsetCheckpoints", files: dict[str, Offsets]) -> None:
        self._owner = owner
        self.files = files
        """By path. Invariant: loses the names that are forgotten before it runs."""
        self.failures: dict[str, OSError] = {}
        """By log directory: why its checkpoints are not what they should be."""
        self.filled: set[str] = set()
        """Log directories that were full, whether the reserve helped or not."""
        self.passed_over: set[str] = set()
        """Log directories that are offline, where names that were to be forgotten are told of."""

    def run(self) -> None:
        """Write the checkpoints. Blocks; on any thread.

        A directory that refuses does not stop the others: see ``failures``.
        """
        self._owner.run(self)


class OffsetCheckpoints:
    """What the checkpoint files say, and the only way to write them."""

    def __init__(self, disk: Disk, directories: Mapping[str, LogDirectory]) -> None:
        self._disk = disk
        self._directories = directories
        self._lock = new_lock()
        """Use: held while files are written, so that none is written by two threads."""
        self._jobs: set[CheckpointJob] = set()
        """The jobs that have not run. The loop adds without the lock; removal takes the lock."""
        self._on_disk: dict[str, Offsets] = {}
        """What each file says, by its path. Use: values are replaced, never changed. Invariant: has
        every entry that is on disk, and after a write that was refused those that may be, with
        the higher offset; a file that could not be read has none."""
        self._doubtful: set[str] = set()
        """Paths of files whose last write was refused: they may say the old or the new."""
        self._kept: dict[str, Offsets] = {}
        """The entries of offline partitions, by path: written again until they are back."""

    # -- on the loop, or before there is one --------------------------------------------------

    def read(self, log_dir: str) -> dict[str, Offsets]:
        """Read the files of a log directory; return what they say, by file name. Blocks.

        An absent or unreadable one says nothing. Raises OSError.
        """
        points: dict[str, Offsets] = {}
        for name in OFFSET_CHECKPOINTS:
            path = f"{log_dir}/{name}"
            offsets = read_offset_checkpoint(self._disk, path)
            points[name] = offsets or {}
            if offsets is not None:
                self._on_disk[path] = offsets
        return points

    def says(self, path: str) -> Mapping[TopicPartition, int] | None:
        """Return what the file ``path`` says; None when that is not known for sure."""
        return None if path in self._doubtful else self._on_disk.get(path)

    def keep(self, log_dir: str, where: TopicPartition) -> None:
        """Let the entries of an offline partition in ``log_dir`` stay as they are."""
        for name in OFFSET_CHECKPOINTS:
            path = f"{log_dir}/{name}"
            offset = self._on_disk.get(path, {}).get(where)
            if offset is not None:
                self._kept.setdefault(path, {})[where] = offset

    def kept(self, log_dir: str, where: TopicPartition) -> dict[str, int]:
        """Return what the files of ``log_dir`` said of an offline partition, by file name."""
        found = {name: self._kept.get(f"{log_dir}/{name}", {}) for name in OFFSET_CHECKPOINTS}
        return {name: offsets[where] for name, offsets in found.items() if where in offsets}

    def keep_no_more(self, where: TopicPartition) -> None:
        """Let the entries of a partition that is not offline any more be what they will be."""
        for offsets in self._kept.values():
            offsets.pop(where, None)

    def begin(self, *names: str) -> dict[str, Offsets]:
        """Return the files of these names, by path, with what every new content has to hold."""
        return {
            path: dict(self._kept.get(path, {}))
            for directory in self._directories.values()
            if directory.is_online
            for path in (f"{directory.path}/{name}" for name in names)
        }

    def job(self, files: dict[str, Offsets]) -> CheckpointJob:
        """Return the work that makes ``files``, by path, say just that. It has to be run."""
        job = CheckpointJob(self, files)
        self._jobs.add(job)  # Without the lock, which a job may hold for long.
        return job

    # -- on any thread ------------------------------------------------------------------------

    def run(self, job: CheckpointJob) -> None:
        """Do a job; see ``CheckpointJob.run``."""
        with self._lock:
            for path, offsets in job.files.items():
                self._write(path, offsets, job)
            self._jobs.discard(job)

    def forget(
        self, names: Collection[TopicPartition], *, log_dir: str | None = None
    ) -> CheckpointJob:
        """Make ``names`` free: durably, no checkpoint tells of a partition of such a name.

        In ``log_dir``, None: everywhere; no log or offline partition there has such a name. Blocks
        when something is to be written: at most once each file. The names are free if the job
        returned, which has run, has no ``failures``; hand it to ``LogManager.checkpointed`` on the
        loop. A log directory that is offline is passed over: nothing may be made there before a
        start.
        """
        outcome = CheckpointJob(self, {})
        if not self.tells_of(names):
            return outcome
        with self._lock:
            for job in list(self._jobs):
                for path, offsets in job.files.items():
                    for name in names if log_dir in (None, dirname(path)) else ():
                        offsets.pop(name, None)
            gone = set(names)
            for path, offsets in list(self._on_disk.items()):
                is_meant = log_dir in (None, dirname(path))
                if not is_meant or not any(name in offsets for name in gone):
                    continue
                if not self._directories[dirname(path)].is_online:
                    outcome.passed_over.add(dirname(path))
                else:
                    left = {where: offset for where, offset in offsets.items() if where not in gone}
                    outcome.files[path] = left
                    self._write(path, left, outcome)
        return outcome

    def lower(
        self, where: TopicPartition, log_dir: str, offset: int, *, committed: int
    ) -> CheckpointJob:
        """Let a partition in ``log_dir`` be called neither durable nor clean above ``offset``.

        Nor committed above ``committed``: what takes the place of what is cut may not be. Durably:
        neither on disk nor in a job on its way. Blocks when it is to be written. The job returned
        has run: hand it to ``LogManager.checkpointed`` on the loop. It holds if there are no
        ``failures``.
        """
        outcome = CheckpointJob(self, {})
        highest = {
            RECOVERY_POINT_CHECKPOINT: offset,
            CLEANER_CHECKPOINT: offset,
            HIGH_WATERMARK_CHECKPOINT: committed,
        }
        with self._lock:
            for name, limit in highest.items():
                path = f"{log_dir}/{name}"
                for job in list(self._jobs):
                    offsets = job.files.get(path, {})
                    if offsets.get(where, 0) > limit:
                        offsets[where] = limit
                offsets = self._on_disk.get(path, {})
                if offsets.get(where, 0) > limit:
                    outcome.files[path] = {**offsets, where: limit}
                    self._write(path, outcome.files[path], outcome)
        return outcome

    def tells_of(self, names: Collection[TopicPartition]) -> bool:
        """Tell whether an entry of one of ``names`` is on disk, or may be on its way there.

        Without the lock, which a job may hold for long: an entry is on disk before its job goes.
        """
        told = [offsets for job in list(self._jobs) for offsets in list(job.files.values())]
        told += list(self._on_disk.values())
        return any(name in offsets for offsets in told for name in names)

    def _write(self, path: str, offsets: Offsets, job: CheckpointJob) -> None:
        log_dir = dirname(path)
        try:
            try:
                write_offset_checkpoint(self._disk, path, offsets)
            except OSError as error:
                if not is_out_of_space(error):
                    raise
                job.filled.add(log_dir)
                self._directories[log_dir].free_reserve()
                write_offset_checkpoint(self._disk, path, offsets)
        except OSError as error:
            job.failures[log_dir] = error
            # Renamed into place or not, synced or not: what it says may be the old or the new.
            may_be = dict(self._on_disk.get(path, {}))
            for where, offset in offsets.items():
                may_be[where] = max(offset, may_be.get(where, offset))
            self._on_disk[path] = may_be
            self._doubtful.add(path)
        else:
            self._on_disk[path] = offsets
            self._doubtful.discard(path)
