"""One flush of a log as a job for an executor: which files to sync, and what that proves.

Made by ``Log.begin_flush`` on the loop, run anywhere, handed back to ``Log.finish_flush`` on the
loop. It holds its files open by itself and carries the generation of the log it was made for, so
that a late sync can never raise the flushed offset of a log that was truncated meanwhile
(reliability rules 1 and 19).
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.env.disk import Disk, File
from ottla.env.executor import Executor
from ottla.env.sync_queue import SyncJob
from ottla.log.files.checkpoints import EpochStart, write_epoch_checkpoint
from ottla.log.files.faults import sync, sync_directory, sync_failed
from ottla.log.files.layout import (
    LEADER_EPOCH_CHECKPOINT,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file,
)
from ottla.log.files.tenancy import Tenancy, TenancyOver
from ottla.log.segment.segment import Segment, with_ends


class Before(NamedTuple):
    """Files and names that must be durable before the active file is. Most flushes have none."""

    rolled: Sequence[Segment]
    """Segments that are full, and were not durable when the flush began."""
    files: Sequence[File]
    """Their log files: kept open."""
    paths: Sequence[str]
    """Other files that rolls have written: indexes, snapshots of producers. They may be gone."""
    synced: list[str]
    """Use: those of ``paths`` that were there; ``run`` appends them."""
    epochs: list[EpochStart] | None
    """For the leader epoch checkpoint; None: it is as it should be."""
    disk: Disk
    directory: str
    tenancy: Tenancy


class FlushJob(SyncJob):
    """Everything appended before ``target_offset`` is durable once ``run`` has returned."""

    __slots__ = ("before", "generation", "owner", "target_offset")

    def __init__(
        self,
        active: File,
        target_offset: int,
        generation: int,
        before: Before | None = None,
        place: str = "",
    ) -> None:
        self.file = active
        self.place = place
        self.is_told = False
        self.target_offset = target_offset
        """Exclusive: the log end offset when the flush began."""
        self.generation = generation
        self.before = before
        self.owner: Any = None
        """Use: that of who submits it, to know it again."""

    @property
    def rolled(self) -> Sequence[Segment]:
        """Segments that are full, and were not durable when the flush began."""
        return () if self.before is None else self.before.rolled

    @property
    def saves_epochs(self) -> bool:
        """Whether the leader epoch checkpoint is written, too."""
        return self.before is not None and self.before.epochs is not None

    def submit(
        self,
        executor: Executor,
        told: "Callable[[deque[FlushJob], BaseException | None], None]",
        owner: object = None,
    ) -> None:
        """Have it done by ``executor``, then tell with others of the kind; see ``Told``. Once.

        The error told may be another file's, too: ``sync_error`` says what it means to this log.
        """
        self.owner = owner
        if self.before is None:
            self.told = told
            executor.submit_sync(self)
        else:
            executor.submit(
                self.run, lambda _, error: told(deque((self,)), error), place=self.place
            )

    def sync_error(self, error: OSError) -> OSError:
        """Return what an error means that this file's sync, or a common one, has met.

        Where nothing was to be done before the sync, it was the sync that failed.
        """
        return error if self.before is not None else sync_failed(error, self.file)

    def run(self) -> None:
        """Sync. Blocks; on any thread. Raises SyncFailed: the data's fate is unknown then.

        Any other OSError comes before the first sync: nothing has happened. Does nothing when the
        log has given its directory up.
        """
        before = self.before
        if before is not None:
            if before.tenancy.is_over:
                return
            if before.epochs is not None:
                path = f"{before.directory}/{LEADER_EPOCH_CHECKPOINT}"
                try:
                    with before.tenancy.inside():
                        write_epoch_checkpoint(before.disk, path, before.epochs)
                except TenancyOver:
                    return
            for file in before.files:
                sync(file)
            if before.rolled:
                try:
                    with before.tenancy.inside():
                        _sync_names(before)
                except TenancyOver:
                    return
        sync(self.file)


def _sync_names(before: Before) -> None:
    """Make durable what rolls have written beside the log files, and the names of new segments."""
    for path in before.paths:
        try:
            file = before.disk.open(path)
        except FileNotFoundError:
            continue  # Compaction or deletion took it; a full disk refused it.
        try:
            sync(file)
        finally:
            file.close()
        before.synced.append(path)
    sync_directory(before.disk, before.directory)


def paths_beside(rolled: Sequence[Segment], active: Segment, directory: str) -> list[str]:
    """Return the paths of what a roll writes beside the log file, for each of ``rolled``.

    ``active``: the segment behind the last of them.
    """
    paths = []
    for segment, end in with_ends(rolled, active.base_offset):
        paths += [segment.path_of(suffix) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
        paths.append(f"{directory}/{segment_file(end, SNAPSHOT_SUFFIX)}")
    return paths
