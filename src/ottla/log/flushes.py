"""Knows up to which offset a log is durable, and begins and ends its flushes.

The part of a Log that owns its flushed offset, between log.health (may it be used at all) and
log.log (the records). A base class, not an object of its own, because every produce passes here
twice. Syncs nothing itself: a FlushJob does, in an executor. On the loop. Source: reliability
rules 1, 2, 5 and 19.
"""

from collections.abc import Sequence
from posixpath import dirname

from ottla.env.disk import Disk
from ottla.errors import ErrorCode, InvariantBroken, KafkaError
from ottla.ids import INT64_MAX, TopicPartition
from ottla.log.contents.leader_epochs import LeaderEpochs
from ottla.log.contents.segments import Segments
from ottla.log.files.faults import ends_directory
from ottla.log.flush import Before, FlushJob, paths_beside
from ottla.log.health import CLOSED, OPEN, LogHealth


class Flushes(LogHealth):
    """The flushes of a log: at most one at a time, each for all that was appended before it."""

    __slots__ = (
        "_disk",
        "_flush_job",
        "_generation",
        "committed_offset",
        "directory",
        "flushed_offset",
        "leader_epochs",
        "log_dir",
        "log_end_offset",
        "segments",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        disk: Disk,
        directory: str,
        segments: Segments,
        leader_epochs: LeaderEpochs,
        log_end_offset: int,
    ) -> None:
        super().__init__(topic_partition)
        self._disk = disk
        self.directory = directory
        self.log_dir = dirname(directory)
        """The log directory that ``directory`` is in."""
        self.segments = segments
        """Use: what keeps house changes them by their verbs while the log is not swapping."""
        self.leader_epochs = leader_epochs
        self.log_end_offset = log_end_offset
        """Use: offset of the next record. Invariant: one above the last record's."""
        self.flushed_offset = log_end_offset
        """Use: the recovery point; exclusive. Invariant: all below it is durable; never above the
        log end offset; falls only by ``truncate_to``."""
        self.committed_offset = INT64_MAX
        """Use: told by a partition of several replicas; exclusive. What is below is not cut off."""
        self._flush_job: FlushJob | None = None
        """The flush in flight: at most one (group commit)."""
        self._generation = 0
        """Use: a flush of another generation proves nothing. Rises at each truncation."""

    @property
    def is_flushing(self) -> bool:
        """Tell whether a flush is in flight."""
        return self._flush_job is not None

    @property
    def sure_offset(self) -> int:
        """The end, exclusive, of what neither a power cut nor another leader takes away."""
        return min(self.flushed_offset, self.committed_offset)

    @property
    def settled_offset(self) -> int:
        """The end, exclusive, of what is durable with all that stands beside it.

        At or below the flushed offset: the snapshot of producers of a segment that is full, which
        says what compaction may drop of it, is durable after its records.
        """
        job = self._flush_job
        rolled = job.rolled if job is not None and job.rolled else self.segments.unsynced
        return min(self.flushed_offset, rolled[0].base_offset) if rolled else self.flushed_offset

    def begin_flush(self) -> FlushJob | None:
        """Return the work that makes everything appended so far durable.

        None when there is nothing to do, a flush is in flight (its end is the time to begin the
        next: group commit), or the log has failed.
        """
        if (
            (self.flushed_offset == self.log_end_offset and not self.segments.unsynced)
            or self._flush_job is not None
            or not (self.state is OPEN or self.is_in_service)
        ):
            return None
        segments = self.segments
        rolled = segments.unsynced
        try:
            active = segments.active.file
            files = [segment.file for segment in rolled] if rolled else ()
        except OSError as error:  # A file that was let go of could not be opened again.
            self.report(error)
            return None
        before, epochs = None, self.leader_epochs
        if rolled or epochs.is_dirty:
            entries = epochs.to_save if epochs.is_dirty else None
            paths = paths_beside(rolled, segments.active, self.directory) if rolled else ()
            before = Before(
                rolled=rolled,
                files=files,
                paths=paths,
                synced=[],
                epochs=entries,
                disk=self._disk,
                directory=self.directory,
                tenancy=self.tenancy,
            )
            epochs.is_dirty = False
            segments.take_unsynced()
        job = self._flush_job = FlushJob(
            active, self.log_end_offset, self._generation, before, self.log_dir
        )
        return job

    def finish_flush(self, job: FlushJob, error: OSError | None) -> None:
        """Take the outcome of ``job`` (on the loop): raise the flushed offset, or fail for good.

        After a failed sync nothing not yet flushed may ever be acknowledged: the kernel may have
        dropped the pages and call the next sync a success (reliability rule 2). A full disk
        refuses the leader epochs before any sync: then the log goes on.
        """
        self._flush_job = None
        if self.state is CLOSED:
            return  # Its topic is gone, or another log took its place.
        if error is not None:
            error = job.sync_error(error)
        if error is not None and not ends_directory(error):
            # Nothing was synced yet: the next flush does it all.
            self.segments.put_back(job.rolled)
            self.leader_epochs.is_dirty = True
            self.report(error)
        elif error is not None:
            self._fail(error)
        elif job.generation == self._generation:
            self.flushed_offset = max(self.flushed_offset, job.target_offset)
            if job.before is not None:
                self._note_synced(job.before.synced)
                for segment in job.before.rolled:
                    self.segments.note_read(segment)  # Not before: a sync is asked of one file.
        elif job.saves_epochs:
            # Truncated meanwhile: the file may hold epochs that are gone.
            self.leader_epochs.is_dirty = True

    def _note_synced(self, paths: Sequence[str]) -> None:
        """Note that these files, which rolls have written beside the log files, are durable."""
        raise NotImplementedError

    def flush(self) -> None:
        """Make everything durable now. Blocks; no flush may be in flight. Raises KafkaError."""
        if self._flush_job is not None:
            raise InvariantBroken(f"{self.topic_partition}: flush while one is in flight")
        self.ensure_open()
        job = self.begin_flush()
        if job is None:
            return
        try:
            job.run()
        except OSError as error:
            self.finish_flush(job, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self.finish_flush(job, None)
