"""A log gives way to another history: it is cut back, or begins anew behind its end.

What a follower does to its log, off the loop. The log is held until it is done, nothing of it is
unflushed, no segments are being swapped. Another ``Log`` comes out of it, opened in an executor, so
that nobody on the loop ever sees one that is half cut:

    cut    1  the indexes of the active segment are written; the checkpoints of recovery point and
              high watermark are lowered, durably, and every one on its way
           2  the directory is opened a second time
           3  epochs lowered durably, files cut, producers read again: see ``Log.truncate_to``
    anew   an empty log that begins at the offset is made beside the directory, durably, and takes
           its place by two renames: see log.taking_over. Of what was known of epochs and producers
           nothing stays

A power cut leaves the log as it was, cut in part or in whole (each is a prefix of it, at least up
to the offset); or as it was, or empty at the offset. What the disk refuses before anything is cut
costs nothing. Above log.manager and log.copies. Source: reliability rules 13, 15 and 19; Kafka's
truncateTo and truncateFullyAndStartAt.
"""

from posixpath import dirname

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.errors import CorruptFile, InvariantBroken, KafkaError
from ottla.log.contents.gaps import end_if_cut
from ottla.log.directories.copies import LogCopies, take_settings
from ottla.log.directories.manager import LogManager
from ottla.log.directories.offset_checkpoints import CheckpointJob, OffsetCheckpoints
from ottla.log.directories.recovery import open_log
from ottla.log.directories.taking_over import TakeOver
from ottla.log.files.checkpoints import write_epoch_checkpoint, write_partition_metadata
from ottla.log.files.faults import sync_directory
from ottla.log.files.layout import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    future_directory,
    segment_file,
)
from ottla.log.log import Log


class CutJob:
    """Cuts a log that is held, and opens what is left. Made on the loop, run in an executor."""

    def __init__(
        self, disk: Disk, clock: Clock, checkpoints: OffsetCheckpoints, log: Log, offset: int
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._checkpoints = checkpoints
        self.before = log
        self.offset = offset
        epochs = log.leader_epochs
        self._unsaved_epochs = epochs.to_save if epochs.is_dirty else None
        self.lowered: CheckpointJob | None = None
        """What was done to the checkpoints, for ``LogManager.checkpointed``."""
        self.log: Log | None = None
        """What is left, once that is decided; None: the log before goes on, unless ``lost``."""
        self.lost: OSError | None = None
        """Why the log before cannot go on, either: it is cut in part, perhaps."""

    def run(self) -> None:
        """Do it. Blocks; on any thread. Raises OSError, CorruptFile or KafkaError."""
        before = self.before
        with before.tenancy.alone():  # Jobs in the directory end first; others wait.
            before.segments.active.save_indexes()  # Who opens it goes by them.
            self._lower()
            try:
                log = self._open()
                log.truncate_to(self.offset)
            except (OSError, CorruptFile, KafkaError) as error:
                self.lost = _disk_error(error)
                before.tenancy.end()
                raise
            self.log = log
            before.tenancy.end()

    def _lower(self) -> None:
        """Let no checkpoint say that more is durable or committed than there will be.

        Raises OSError.
        """
        before = self.before
        if self._unsaved_epochs is not None:
            path = f"{before.directory}/{LEADER_EPOCH_CHECKPOINT}"
            write_epoch_checkpoint(self._disk, path, self._unsaved_epochs)
        self.lowered = self._checkpoints.lower(
            before.topic_partition,
            before.log_dir,
            before.flushed_offset,
            committed=end_if_cut(before.segments, self.offset),
        )
        for error in self.lowered.failures.values():
            raise error

    def _open(self) -> Log:
        before = self.before
        return open_log(
            self._disk,
            self._clock,
            before.directory,
            before.topic_partition,
            before.config,
            recovery_point=before.flushed_offset,
            log_start_offset=before.log_start_offset,
            is_clean=True,
        )


class EmptyCopy:
    """Stands for a copy of ``log`` that holds nothing, and begins at ``offset``."""

    def __init__(self, disk: Disk, log: Log, directory: str, offset: int) -> None:
        self._disk = disk
        self.log = log
        self.directory = directory
        self.start_offset = self.end_offset = offset

    def complete(self) -> None:
        """Make it, durably. Blocks; on any thread. Raises OSError."""
        disk = self._disk
        disk.make_directory(self.directory)
        if self.log.topic_id is not None:
            path = f"{self.directory}/{PARTITION_METADATA}"
            write_partition_metadata(disk, path, self.log.topic_id)
        path = f"{self.directory}/{segment_file(self.end_offset, LOG_SUFFIX)}"
        file = disk.open(path, create=True)
        try:
            file.sync()
        finally:
            file.close()
        sync_directory(disk, self.directory)
        sync_directory(disk, dirname(self.directory))


class LogCuts:
    """Cuts the manager's logs. On the loop."""

    def __init__(self, manager: LogManager, clock: Clock) -> None:
        self._manager = manager
        self._clock = clock
        self._copies = LogCopies(manager, clock)

    def cut_job(self, log: Log, offset: int) -> CutJob:
        """Return the work that ends ``log``, which is held, at ``offset``: for ``cut``.

        Or below, see ``gaps.end_if_cut``: not below the log start offset.
        """
        _ensure_settled(log)
        if offset < log.log_start_offset:
            why = f"{log.topic_partition}: {offset} is below its start {log.log_start_offset}"
            raise InvariantBroken(why)
        # No checkpoint made from now on may say more; the log will end in that segment.
        log.flushed_offset = min(log.flushed_offset, log.segments.left_below(offset).base_offset)
        return CutJob(self._manager.disk, self._clock, self._manager.checkpoints, log, offset)

    def cut(self, job: CutJob) -> Log:
        """Take a job that ran, or failed; return the log that goes on."""
        manager, before, log = self._manager, job.before, job.log
        directory = manager.directories[before.log_dir]
        if job.lowered is not None:
            manager.checkpointed(job.lowered)
        if job.lost is not None:
            before.take_out(job.lost)
            manager.refused(before.log_dir, job.lost)
        before.end_hold(is_full=directory.is_full)
        if log is None:
            return before
        take_settings(log, before)
        failure = before.failure
        before.abandon()
        manager.put(log)
        if failure is not None:  # Everybody has been told that it is offline.
            log.take_out(failure)
        return log

    def anew_job(self, log: Log, offset: int) -> TakeOver:
        """Return the work that lets an empty log at ``offset`` take its place: for ``anew``.

        The log is held. ``offset`` is not below its end.
        """
        _ensure_settled(log)
        if offset < log.log_end_offset:
            why = f"{log.topic_partition}: {offset} is below its end {log.log_end_offset}"
            raise InvariantBroken(why)
        name = future_directory(log.topic_partition, self._manager.unique())
        disk = self._manager.disk
        copy = EmptyCopy(disk, log, f"{log.log_dir}/{name}", offset)
        return TakeOver(disk, self._clock, copy)

    def anew(self, job: TakeOver) -> Log:
        """Take a job that ran, or failed; return the log that goes on."""
        log = self._copies.taken(job)
        if log is job.copy.log:
            self._manager.remove_later(job.copy.directory)
        return log


def _ensure_settled(log: Log) -> None:
    if log.flushed_offset != log.log_end_offset or log.segments.unsynced:
        raise InvariantBroken(f"{log.topic_partition} is cut before all of it is durable")


def _disk_error(error: OSError | CorruptFile | KafkaError) -> OSError:
    cause = error.__cause__ if isinstance(error, KafkaError) else error
    return cause if isinstance(cause, OSError) else OSError(str(error))
