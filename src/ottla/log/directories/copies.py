"""Copies of logs in other log directories: begun, given up, and put in the log's place.

The durable part of moving a replica. Everything here is on the loop and blocks for little: two
renames, two syncs of directories, and opening the copy. Above log.manager and log.copying, below
housekeeping.relocation. What a crash in between leaves is settled by log.futures. Source: KIP-113;
reliability rules 3 and 14.
"""

import logging
from contextlib import suppress
from posixpath import basename, dirname

from ottla.env.clock import Clock
from ottla.errors import CorruptFile, ErrorCode, KafkaError, OttlaError
from ottla.log.directories.copying import LogCopy, SourceUnreadable
from ottla.log.directories.manager import LogManager
from ottla.log.directories.recovery import open_log
from ottla.log.files.faults import SyncFailed, sync_directory
from ottla.log.files.layout import deleted_directory, future_directory, unique_part
from ottla.log.log import Log

logger = logging.getLogger(__name__)


class LogCopies:
    """Makes copies of the manager's logs, and swaps them in."""

    def __init__(self, manager: LogManager, clock: Clock) -> None:
        self._manager = manager
        self._disk = manager.disk
        self._clock = clock

    def begin(self, log: Log, log_dir: str) -> LogCopy:
        """Return a copy of ``log`` that is to be made in ``log_dir``.

        From now on the checkpoints know of it. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        name = future_directory(log.topic_partition, self._manager.unique())
        # What ``log_dir`` tells of this name may be of a former topic that lay there.
        forgotten = self._manager.checkpoints.forget([log.topic_partition], log_dir=log_dir)
        self._manager.checkpointed(forgotten)
        for error in forgotten.failures.values():
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        try:
            self._disk.make_directory(f"{log_dir}/{name}")
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._manager.copying[log.topic_partition] = log_dir
        return LogCopy(self._disk, log, f"{log_dir}/{name}")

    def drop(self, copy: LogCopy) -> None:
        """Give up a copy; its space is freed later."""
        self._manager.copying.pop(copy.log.topic_partition, None)
        self._manager.remove_later(copy.directory)

    def put_in_place(self, copy: LogCopy) -> Log:
        """Let a complete copy be the partition's log, durably; return it.

        Its log start offset must have been checkpointed where it is. Raises OSError or OttlaError:
        then the log before goes on, or has failed.
        """
        with copy.log.tenancy.alone():  # Jobs in the directory end first; others wait.
            return self._put_in_place(copy)

    def _put_in_place(self, copy: LogCopy) -> Log:
        before, disk = copy.log, self._disk
        log_dir, target_dir = dirname(before.directory), dirname(copy.directory)
        target = f"{target_dir}/{before.topic_partition}"
        # It would be too late to find it bad below.
        self._open(copy, copy.directory).abandon()
        unique = bytes.fromhex(unique_part(basename(copy.directory)) or "")
        old = f"{log_dir}/{deleted_directory(before.topic_partition, unique)}"
        try:
            disk.rename(before.directory, old)
            sync_directory(disk, log_dir)
        except OSError as error:
            self._take_back(before, old)
            before.report(error)
            raise SourceUnreadable(f"{before.directory}: {error}") from error
        try:
            disk.rename(copy.directory, target)
        except OSError:
            self._take_back(before, old)
            raise
        try:
            sync_directory(disk, target_dir)
            log = self._open(copy, target)
        except (OSError, OttlaError) as error:
            self._undo(copy, target, old, error)
            raise
        before.abandon()
        self._manager.copying.pop(before.topic_partition, None)
        self._manager.remove_later(old)
        self._manager.put(log)
        return log

    def _undo(self, copy: LogCopy, target: str, old: str, error: OSError | OttlaError) -> None:
        """Let the log before go on although the copy bears its name, for it cannot be opened.

        Nothing was added to either. The copy gives the name up first, durably: two directories of
        one name are no partition at the next start.
        """
        before, disk = copy.log, self._disk
        try:
            if isinstance(error, SyncFailed):
                raise error  # Nothing that is done in its log directory lasts for sure.
            disk.rename(target, copy.directory)
            sync_directory(disk, dirname(target))
        except OSError as failure:
            # Which of the two a restart finds is not sure: nothing may be added to either.
            logger.error("%s is offline until a restart: %s", before.topic_partition, failure)  # noqa: TRY400
            before.take_out(failure)
            before.tenancy.end()
            self._manager.refused(dirname(target), failure)
        else:
            self._take_back(before, old)

    def _take_back(self, log: Log, renamed: str) -> None:
        """Let ``log`` have its directory back, or fail."""
        try:
            with suppress(FileNotFoundError):  # Its renaming was what the disk refused.
                self._disk.rename(renamed, log.directory)
            sync_directory(self._disk, dirname(log.directory))
        except OSError as error:
            logger.error("%s is offline until a restart: %s", log.topic_partition, error)  # noqa: TRY400
            log.take_out(error)
            log.tenancy.end()
            log.report(error)

    def _open(self, copy: LogCopy, directory: str) -> Log:
        before = copy.log
        log = open_log(
            self._disk,
            self._clock,
            directory,
            before.topic_partition,
            before.config,
            recovery_point=before.log_end_offset,
            log_start_offset=before.log_start_offset,
            is_clean=True,
        )
        found, expected = log.log_end_offset, before.log_end_offset
        if found != expected:
            log.abandon()
            raise CorruptFile(directory, f"the copy ends at {found}, its log at {expected}")
        return log
