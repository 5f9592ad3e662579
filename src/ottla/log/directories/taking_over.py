"""A complete copy of a log takes the log's place: the part that blocks.

A job, made on the loop while the log is held, run in an executor; its outcome is taken on the loop
by ``LogCopies.taken``. Nothing is appended to the log, flushed or swapped meanwhile. In order:

    1  the rest is copied; what stands beside the segments, too; all of it is durable
    2  the copy is opened once: it would be too late to find it bad below
    3  the log's directory is renamed to ``-delete``, durably
    4  the copy's is renamed to the partition's name, durably, and opened

A start that finds only 3 done does 4. What the disk refuses is taken back, and the log goes on.
What cannot be taken back costs the log its service until a restart. Below log.copies, above
log.copying and log.recovery. Source: reliability rules 3, 14 and 15.
"""

import logging
from contextlib import suppress
from posixpath import basename, dirname
from typing import Protocol

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.errors import CorruptFile, OttlaError
from ottla.log.directories.copying import SourceUnreadable
from ottla.log.directories.recovery import open_log
from ottla.log.files.faults import SyncFailed, sync_directory
from ottla.log.files.layout import deleted_directory, unique_part
from ottla.log.log import Log

logger = logging.getLogger(__name__)


class Copy(Protocol):
    """What takes the place of ``log``."""

    log: Log
    directory: str

    def complete(self) -> None:
        """Make it whole and durable. Blocks. Raises OSError or SourceUnreadable."""

    @property
    def start_offset(self) -> int:
        """Where the log starts then."""

    @property
    def end_offset(self) -> int:
        """Where it ends, once it is complete."""


class TakeOver:
    """Completes ``copy`` and gives it the name of its log."""

    def __init__(self, disk: Disk, clock: Clock, copy: Copy) -> None:
        """Take a copy whose log directory has been told of the log start offset."""
        self._disk = disk
        self._clock = clock
        self.copy = copy
        before = copy.log
        unique = bytes.fromhex(unique_part(basename(copy.directory)) or "")
        self.target = f"{dirname(copy.directory)}/{before.topic_partition}"
        """The copy's directory from then on."""
        name = deleted_directory(before.topic_partition, unique)
        self.old = f"{dirname(before.directory)}/{name}"
        """The directory of the log before from then on."""
        self.log: Log | None = None
        """The copy, open under its new name, once that is decided; None: the log before goes on."""
        self.lost: OSError | None = None
        """Why the log before cannot go on, either: which directory has the name is not sure."""
        self.refused: list[tuple[str, OSError]] = []
        """Log directories, and what their disks have refused."""

    def run(self) -> None:
        """Do it. Blocks; on any thread. Raises OSError or OttlaError: see ``log`` and ``lost``."""
        self.copy.complete()
        with self.copy.log.tenancy.alone():  # Jobs in the directory end first; others wait.
            self._put_in_place()

    def _put_in_place(self) -> None:
        copy, before, disk = self.copy, self.copy.log, self._disk
        log_dir, target_dir = dirname(before.directory), dirname(self.target)
        self._open(copy.directory).abandon()
        try:
            disk.rename(before.directory, self.old)
            sync_directory(disk, log_dir)
        except OSError as error:
            self._take_back()
            self.refused.append((log_dir, error))
            raise SourceUnreadable(f"{before.directory}: {error}") from error
        try:
            disk.rename(copy.directory, self.target)
        except OSError:
            self._take_back()
            raise
        try:
            sync_directory(disk, target_dir)
            self.log = self._open(self.target)
        except (OSError, OttlaError) as error:
            self._undo(error)
            raise
        before.tenancy.end()

    def _undo(self, error: OSError | OttlaError) -> None:
        """Let the log before go on although the copy bears its name, for it cannot be opened.

        Nothing was added to either. The copy gives the name up first, durably: two directories of
        one name are no partition at the next start.
        """
        disk, target_dir = self._disk, dirname(self.target)
        try:
            if isinstance(error, SyncFailed):
                raise error  # Nothing that is done in its log directory lasts for sure.
            disk.rename(self.target, self.copy.directory)
            sync_directory(disk, target_dir)
        except OSError as failure:
            # Which of the two a restart finds is not sure: nothing may be added to either.
            self._lose(failure)
            self.refused.append((target_dir, failure))
        else:
            self._take_back()

    def _take_back(self) -> None:
        """Let the log before have its directory back, or be lost."""
        before = self.copy.log
        try:
            with suppress(FileNotFoundError):  # Its renaming was what the disk refused.
                self._disk.rename(self.old, before.directory)
            sync_directory(self._disk, dirname(before.directory))
        except OSError as error:
            self._lose(error)
            self.refused.append((dirname(before.directory), error))

    def _lose(self, error: OSError) -> None:
        before = self.copy.log
        logger.error("%s is offline until a restart: %s", before.topic_partition, error)
        before.tenancy.end()
        self.lost = error

    def _open(self, directory: str) -> Log:
        before, end = self.copy.log, self.copy.end_offset
        log = open_log(
            self._disk,
            self._clock,
            directory,
            before.topic_partition,
            before.config,
            recovery_point=end,
            log_start_offset=self.copy.start_offset,
            is_clean=True,
        )
        found = log.log_end_offset
        if found != end:
            log.abandon()
            raise CorruptFile(directory, f"the copy ends at {found}, its log at {end}")
        return log
