"""Copies of logs in other log directories: begun, given up, and put in the log's place.

The part of moving a replica that the loop does: what is decided, and taken, around the jobs that
block. Above log.manager, log.copying and log.taking_over, below housekeeping.relocation. What a
crash in between leaves is settled by log.futures. Source: KIP-113; reliability rules 3, 14 and 21.
"""

import errno
from contextlib import suppress
from posixpath import dirname

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.errors import ErrorCode, KafkaError
from ottla.log.directories.copying import LogCopy
from ottla.log.directories.directory import LogDirectory
from ottla.log.directories.manager import LogManager
from ottla.log.directories.offset_checkpoints import CheckpointJob, OffsetCheckpoints
from ottla.log.directories.taking_over import TakeOver
from ottla.log.files.layout import future_directory
from ottla.log.files.tenancy import TenancyOver
from ottla.log.log import Log


class BeginJob:
    """Makes the directory of a copy. Made on the loop, run in an executor."""

    def __init__(
        self, disk: Disk, checkpoints: OffsetCheckpoints, log: Log, directory: str
    ) -> None:
        self._disk = disk
        self._checkpoints = checkpoints
        self.log = log
        self.directory = directory
        self.forgotten: CheckpointJob | None = None
        """What was done to the checkpoints, for ``LogManager.checkpointed``."""
        self.is_begun = False
        """Whether the directory is there."""
        self.refused: OSError | None = None
        """Why it is not."""

    def run(self) -> None:
        """Free the name in the log directory, and make the copy's. Blocks; on any thread.

        While it runs the log's topic cannot be made anew: what is forgotten is not another's.
        """
        with suppress(TenancyOver), self.log.tenancy.inside():
            try:
                self._begin()
            except OSError as error:
                self.refused = error

    def _begin(self) -> None:
        # What the log directory tells of this name may be of a former topic that lay there.
        names, log_dir = [self.log.topic_partition], dirname(self.directory)
        self.forgotten = self._checkpoints.forget(names, log_dir=log_dir)
        for error in self.forgotten.failures.values():
            raise error
        self._disk.make_directory(self.directory)
        self.is_begun = True


class LogCopies:
    """Makes copies of the manager's logs, and swaps them in."""

    def __init__(self, manager: LogManager, clock: Clock) -> None:
        self._manager = manager
        self._disk = manager.disk
        self._clock = clock

    def begin_job(self, log: Log, log_dir: str) -> BeginJob:
        """Return the work that begins a copy of ``log`` in ``log_dir``: for ``begun``."""
        name = future_directory(log.topic_partition, self._manager.unique())
        return BeginJob(self._disk, self._manager.checkpoints, log, f"{log_dir}/{name}")

    def begun(self, job: BeginJob) -> LogCopy:
        """Take a job that ran; return the copy, which is empty.

        From now on the checkpoints know of it. Raises KafkaError: KAFKA_STORAGE_ERROR when the disk
        refused, UNKNOWN_TOPIC_OR_PARTITION when the topic is gone.
        """
        if job.forgotten is not None:
            self._manager.checkpointed(job.forgotten)
        if job.refused is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(job.refused)) from job.refused
        if not job.is_begun:
            why = f"{job.log.topic_partition} is gone"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
        log_dir = dirname(job.directory)
        if not self._manager.directories[log_dir].is_online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir} is offline")
        self._manager.copying[job.log.topic_partition] = log_dir
        return LogCopy(self._disk, job.log, job.directory)

    def drop(self, copy: LogCopy) -> None:
        """Give up a copy; its space is freed later."""
        self._manager.copying.pop(copy.log.topic_partition, None)
        self._manager.remove_later(copy.directory)

    def take_over(self, copy: LogCopy) -> TakeOver:
        """Return the work that lets ``copy`` be the partition's log: for ``taken``.

        The log is held until then.
        """
        return TakeOver(self._disk, self._clock, copy)

    def taken(self, job: TakeOver) -> Log:
        """Take a job that ran, or failed; return the log that goes on: the copy, or that before."""
        before, log = job.copy.log, job.log
        if job.lost is not None:
            before.take_out(job.lost)
        for log_dir, error in job.refused:
            self._manager.refused(log_dir, error)
        before.end_hold(is_full=self._manager.directories[dirname(before.directory)].is_full)
        if log is None:
            return before
        take_settings(log, before)
        failure = before.failure
        before.abandon()
        self._manager.copying.pop(before.topic_partition, None)
        self._manager.remove_later(job.old)
        self._manager.put(log)
        directory = self._manager.directories[dirname(log.directory)]
        if not directory.is_online:
            failure = _failure_of(directory)
        if failure is not None:  # Of either directory: everybody has been told that it is offline.
            log.take_out(failure)
        return log


def take_settings(log: Log, before: Log) -> None:
    """Let ``log``, which takes the place of ``before``, go on with what was said to that one.

    It may have been said since the log was opened: what readers are to see no more stays hidden.
    """
    log.config = before.config
    start_offset = min(before.log_start_offset, log.log_end_offset)
    if start_offset > log.log_start_offset:
        log.log_start_offset = start_offset
        log.leader_epochs.truncate_from_start(start_offset)


def _failure_of(directory: LogDirectory) -> OSError:
    failure = directory.failure
    return failure if isinstance(failure, OSError) else OSError(errno.EIO, str(failure))
