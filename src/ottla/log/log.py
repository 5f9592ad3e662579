"""One partition's log: append at the end, read anywhere, know what is durable.

Owns the offsets that bound the log; segments and flushes have owners of their own. One writer, on
the loop's thread, no locks. Knows nothing of leaders, high watermarks or clients: the caller says
up to where a reader may see. Between replication.partition and log.contents.segments.

    produce  analyse (any thread) -> append_analysed: roll if due, offsets in place, one write
    flush    begin_flush -> FlushJob.run (executor) -> finish_flush: the flushed offset rises
    fetch    read: floor segment -> index floor -> scan -> a Region of the file, no bytes touched

Source: Kafka's UnifiedLog and LocalLog; the seed on Kafka's log; reliability rules 1, 2, 5, 6, 19.
"""

from collections.abc import Sequence

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.errors import CorruptFile, ErrorCode, KafkaError
from ottla.ids import TopicId, TopicPartition
from ottla.log.append import (
    CLIENT,
    LOOP_DECOMPRESSED_BYTES_MAX,
    AnalysedBatch,
    Analysis,
    AppendOrigin,
    analyse,
    check_client_batch,
    place,
)
from ottla.log.config import LogConfig
from ottla.log.contents.gaps import end_if_cut
from ottla.log.contents.invariants import check_log
from ottla.log.contents.leader_epochs import EpochEnd, LeaderEpochs
from ottla.log.contents.rolling import is_end_doubtful, must_roll
from ottla.log.contents.segments import Segments
from ottla.log.files.faults import SyncFailed, sync, sync_directory
from ottla.log.flushes import Flushes
from ottla.log.health import OPEN, LogState
from ottla.log.producers.producers import Producers
from ottla.log.results import AppendResult, ReadResult, TimestampedOffset
from ottla.log.segment.scan import Batch
from ottla.log.segment.time_lookup import FoundRecord, Search, search_reaching
from ottla.records.batch import (
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    patch_offsets,
    set_log_append_time,
)
from ottla.records.region import Region


class Log(Flushes):
    """The log of one partition in one directory. Made by recovery.open_log or LogManager.create.

    Whoever makes it has made everything below ``log_end_offset`` durable.
    """

    __slots__ = (
        "_clock",
        "_sealed_offset",
        "config",
        "log_start_offset",
        "producers",
        "topic_id",
    )

    def __init__(  # noqa: PLR0913 - the parts of a log, all keyword-only
        self,
        *,
        disk: Disk,
        clock: Clock,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        segments: Segments,
        leader_epochs: LeaderEpochs,
        log_start_offset: int,
        log_end_offset: int,
        producers: Producers,
        is_sealed: bool = False,
    ) -> None:
        super().__init__(
            topic_partition,
            disk=disk,
            directory=directory,
            segments=segments,
            leader_epochs=leader_epochs,
            log_end_offset=log_end_offset,
        )
        self._clock = clock
        self.topic_id = topic_id
        """None: the directory does not say (written before topic ids, or its creation was cut)."""
        self.config = config
        """Use: read at every append; replace it to change settings."""
        self.log_start_offset = log_start_offset
        """Use: first offset readers may ask for. Invariant: falls only by a ``truncate_to`` that
        takes the batch it stands in."""
        self.producers = producers
        """Use: drops duplicates. Invariant: knows all batches below the log end."""
        self._sealed_offset = log_end_offset if is_sealed else None
        """Use: a stop at this log end finds all written and synced already. None: at none."""

    @property
    def is_bare(self) -> bool:
        """Whether its directory says neither whose it is nor anything else."""
        return self.topic_id is None and self.log_end_offset == 0

    @property
    def latest_epoch(self) -> int:
        """The last leader epoch seen in the log, or -1."""
        return self.leader_epochs.latest

    @property
    def size_bytes(self) -> int:
        """Bytes in all log files."""
        return self.segments.size_bytes

    @property
    def segment_count(self) -> int:
        """Number of segments; at least one."""
        return len(self.segments)

    # -- append -------------------------------------------------------------------------------

    def append(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendResult:
        """Check ``records`` and write them. The whole way at once, on this thread.

        ``leader_epoch`` is stamped on the batches. The bytes are patched in place when they are
        writable. Raises KafkaError: see ``analyse`` and ``append_analysed``; TooLongForLoop for a
        small batch that decompresses to a large one.
        """
        now_ms = self._clock.wall_ms()
        if origin is CLIENT and not records.readonly:
            if self.state is not OPEN:
                raise self.unusable()
            view, header = check_client_batch(
                records, self.config, now_ms, LOOP_DECOMPRESSED_BYTES_MAX
            )
            return self._append_one(view, header, leader_epoch)
        analysis = analyse(records, self.config, now_ms, origin)
        return self.append_analysed(analysis, leader_epoch=leader_epoch)

    def append_analysed(self, analysis: Analysis, *, leader_epoch: int) -> AppendResult:
        """Give offsets and write. On the loop; one write to the page cache, nothing is synced.

        Raises KafkaError: RECORD_LIST_TOO_LARGE for more bytes than a segment takes;
        KAFKA_STORAGE_ERROR when the disk refused (nothing is appended) or the log has failed; for a
        producer's batch and a marker see ``ProducerStates.check`` and ``check_marker``.
        """
        self.ensure_writable()
        if analysis.origin is CLIENT or analysis.is_own_data:
            return self._append_one(analysis.records, analysis.batches[0].header, leader_epoch)
        return self._append_batches(analysis, leader_epoch)

    def _append_one(
        self, records: memoryview, header: BatchHeader, leader_epoch: int
    ) -> AppendResult:
        """Append one batch that was checked. The hot way: every produce goes through here.

        A duplicate of an idempotent producer is not written: the result is the original's.
        """
        config = self.config
        has_producer = header.producer_id > NO_PRODUCER_ID
        if has_producer:
            original = self.producers.check(header, config.producer_id_expiration_ms)
            if original is not None:
                _, last_offset, delta, timestamp = original
                first_offset = last_offset - delta
                return AppendResult(first_offset, last_offset, timestamp, self.log_start_offset)
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        append_time, max_timestamp = NO_TIMESTAMP, header.max_timestamp
        if config.message_timestamp_type is LOG_APPEND_TIME:
            append_time = max_timestamp = self._clock.wall_ms()
        active = self.segments.active
        size_bytes = len(records)
        if size_bytes > config.segment_bytes:
            raise _too_large(size_bytes, config)
        if active.size_bytes:
            self.roll_if_due(size_bytes, last_offset, max_timestamp)
            active = self.segments.active
        patch_offsets(records, base_offset, leader_epoch)
        if append_time != NO_TIMESTAMP:
            set_log_append_time(records, append_time)
        try:
            active.append(records, last_offset, max_timestamp)
        except OSError as error:
            raise self.write_refused(error) from error
        if leader_epoch != self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, base_offset)
        if has_producer:
            self.producers.note(header, last_offset, max_timestamp)
        self.log_end_offset = last_offset + 1
        return AppendResult(base_offset, last_offset, append_time, self.log_start_offset)

    def _append_batches(self, analysis: Analysis, leader_epoch: int) -> AppendResult:
        """Append any number of batches of a coordinator."""
        records, _, batches, transaction_version = analysis
        append_time = NO_TIMESTAMP
        self.producers.check_own(records, batches, transaction_version)
        if self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            append_time = self._clock.wall_ms()
        placed = place(records, batches, self.log_end_offset, leader_epoch, append_time)
        if len(records) > self.config.segment_bytes:
            raise _too_large(len(records), self.config)
        self._write(records, batches, placed)
        base_offset, last_offset = placed[0].base_offset, placed[-1].last_offset
        return AppendResult(base_offset, last_offset, append_time, self.log_start_offset)

    def _write(
        self, records: memoryview, batches: tuple[AnalysedBatch, ...], placed: list[Batch]
    ) -> None:
        """Write placed batches to one segment; it rolls before if it should."""
        last_offset = placed[-1].last_offset
        max_timestamp = max(batch.max_timestamp for batch in placed)
        self.roll_if_due(len(records), last_offset, max_timestamp)
        try:
            self.segments.active.append_all(records, placed)
        except OSError as error:
            raise self.write_refused(error) from error
        for batch in placed:
            self.leader_epochs.assign(batch.leader_epoch, batch.base_offset)
        self.producers.note_all(records, batches, placed, self.segments.active)
        self.log_end_offset = last_offset + 1

    def roll_if_due(
        self,
        size_bytes: int,
        last_offset: int,
        max_timestamp: int,
        *,
        base_offset: int | None = None,
    ) -> None:
        """Roll when the active segment cannot or should not take batches that end so; see ``roll``.

        The first time after a start it has to read when that segment began. Raises KafkaError.
        """
        try:
            is_over = must_roll(
                self.segments.active,
                self.config,
                self._clock,
                size_bytes,
                last_offset=last_offset,
                max_timestamp=max_timestamp,
            )
        except OSError as error:
            self.report(error)
            why = f"{self.topic_partition}: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why) from error
        if is_over:
            self.roll(base_offset)

    def write_refused(self, error: OSError) -> KafkaError:
        """Undo a write that the disk refused. The log goes on if that works, and fails if not."""
        try:
            active = self.segments.active
            if active.is_file_open:  # Else nothing can have been written.
                active.cut_to_size()
        except OSError as worse:
            self._fail(worse)
        else:
            self.report(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {error}")

    def roll(self, base_offset: int | None = None) -> None:
        """Close the active segment for good and start one at ``base_offset`` (None: the log end).

        Where a segment begins above the log end, all that is before it is durable: recovery could
        not tell a lost end from offsets that were never there (reliability rule 9).
        Syncs next to nothing: what the old segment and the name of the new one need is done by the
        next flush, off the loop; nothing above the flushed offset is promised to anybody. Only of a
        compacted log the old segment is synced here (with ``flush.messages=1``, when almost all of
        it is on the disk already), since recovery could not tell a lost end from what compaction
        took (reliability rules 6 and 9); one of which a refused write was cut off, since that could
        come back behind its end; and the transaction index, if something in it is new.
        Raises KafkaError KAFKA_STORAGE_ERROR; the old segment stays active.
        """
        base_offset = self.log_end_offset if base_offset is None else base_offset
        segments = self.segments
        is_jump = base_offset != self.log_end_offset
        is_unflushed = self.flushed_offset != self.log_end_offset
        must_sync = is_jump or is_end_doubtful(segments.active, self.config, is_unflushed)
        try:
            segments.active.seal(sync=False)
            if must_sync:
                sync(segments.active.file)
            if is_jump:
                for segment in segments.unsynced:
                    sync(segment.file)
                sync_directory(self._disk, self.directory)
        except SyncFailed as error:
            self._fail(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except OSError as error:
            # An index could not be written: the segment is as good as before.
            self.report(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if base_offset == segments.active.base_offset:
            return
        # Before the new segment is there: a flush syncs both files and the names.
        self.producers.snapshot_at_roll(base_offset, self.sure_offset)
        segments.leave_unsynced()
        try:
            segments.begin(base_offset, self.config, self._clock.wall_ms())
        except (OSError, CorruptFile) as error:
            if (lasting := segments.remove_stillborn(base_offset)) is not None:
                self._fail(lasting)
            if isinstance(error, OSError):
                self.report(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _note_synced(self, paths: Sequence[str]) -> None:
        self.producers.note_synced(paths, self.sure_offset)

    # -- read ---------------------------------------------------------------------------------

    def read(
        self, start_offset: int, *, max_bytes: int, upper_offset: int, min_one_message: bool
    ) -> ReadResult:
        """Return the batches from the one that holds ``start_offset`` on, as a region of one file.

        ``upper_offset`` (exclusive) is what the reader may see at most; no batch that reaches it is
        given. At most ``max_bytes``, cut even inside a batch, as Kafka does; but with
        ``min_one_message`` the first batch is whole whatever its size. Raises KafkaError
        OFFSET_OUT_OF_RANGE outside of [log start offset, log end offset], CORRUPT_MESSAGE where
        the log cannot be read, KAFKA_STORAGE_ERROR when it has failed. May block on a cold index.
        Gives nothing while the log is held.
        """
        if self.state is not LogState.OPEN:
            self.ensure_open()
            if self.state is LogState.HELD:
                upper_offset = start_offset
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            there = f"[{self.log_start_offset}, {self.log_end_offset}]"
            why = f"{self.topic_partition}: offset {start_offset} is not in {there}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
        segment = active = self.segments.active
        if start_offset >= upper_offset:
            return ReadResult(None, active.base_offset, active.size_bytes, False)
        end_offset = self.log_end_offset
        if start_offset >= active.base_offset:
            first = active.find(start_offset)
        else:
            found = self.segments.find(start_offset, end_offset)
            segment, first, end_offset = found or (active, None, end_offset)
        if first is None:
            return ReadResult(None, active.base_offset, active.size_bytes, False)
        is_whole = upper_offset >= end_offset
        end = segment.size_bytes if is_whole else segment.position_of(upper_offset)
        position, first_size = first.position, first.size_bytes
        limit = max(max_bytes, first_size) if min_one_message else max_bytes
        length = min(end - position, limit)
        if length <= 0:
            return ReadResult(None, segment.base_offset, position, limit < first_size)
        region = Region(segment.file, position, length)
        if segment is not active:
            self.segments.note_read(segment)
        return ReadResult(region, segment.base_offset, position, limit < first_size)

    # -- look-ups -----------------------------------------------------------------------------

    def search_timestamp(self, timestamp: int | None) -> Search:
        """Search for that record; None: the largest timestamp's. See ``log.time_lookup``."""
        self.ensure_open()
        start, limit = self.log_start_offset, self.config.max_message_bytes
        return search_reaching(self.segments.reaching(start), timestamp, start, limit)

    def place_of(self, found: FoundRecord) -> TimestampedOffset:
        """Return a record that was found, with the leader epoch it was written in."""
        return TimestampedOffset(*found, self.leader_epochs.epoch_for_offset(found.offset))

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Answer OffsetForLeaderEpoch: the largest epoch <= ``epoch`` and where it ends."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # -- truncation, the end ------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove everything at or above ``offset``: another history is the right one. Blocks.

        The log ends at ``gaps.end_if_cut`` then, not below the log start offset. The caller must
        have lowered the recovery point checkpoint to that *before* (reliability rule 13). Raises
        KafkaError KAFKA_STORAGE_ERROR.
        """
        self.ensure_settled()
        if offset >= self.log_end_offset:
            return
        end_offset = end_if_cut(self.segments, offset)
        self._sealed_offset = None
        self._generation += 1
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.leader_epochs.truncate_from_end(end_offset)
        try:
            self.leader_epochs.save(self._disk, self.directory)
            self.log_end_offset = self.segments.truncate_to(offset)
            assert self.log_end_offset == end_offset, (self.log_end_offset, end_offset)
            self.producers.restore(self.segments, end_offset)
        except OSError as error:
            self._fail(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)

    def close(self) -> None:
        """Flush, bring the indexes up to date and let go of all files. Blocks.

        No flush may be in flight. Regions still on their way to a socket stay readable. Raises
        KafkaError when the data cannot be made durable; the log is closed all the same.
        """
        try:
            if self.is_in_service:
                self.flush()
                self._seal_for_stop()
        finally:
            self.retire()

    def _seal_for_stop(self) -> None:
        try:
            is_new = self._sealed_offset != self.log_end_offset or self.leader_epochs.is_dirty
            if is_new or self.segments.active.is_cut:
                self.leader_epochs.save(self._disk, self.directory)
                self.segments.active.seal(is_flushed=True)
            base_offset, end_offset = self.segments.base_offset, self.log_end_offset
            self.producers.save_for_stop(base_offset, end_offset, self.committed_offset)
        except OSError as error:
            self._fail(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def abandon(self) -> None:
        """Let go of all files and of the directory without writing anything. Does not block."""
        self._generation += 1
        self.retire()

    def let_go(self) -> None:
        """Let go of all files; regions and flushes on their way keep theirs."""
        self.segments.let_go()

    def check(self, *, are_indexes_sure: bool = True) -> None:
        """Assert the invariants of the log and its segments. Reads everything: for tests.

        ``are_indexes_sure``: no power cut can have left a part of an index file.
        """
        check_log(self, are_indexes_sure=are_indexes_sure)


def _too_large(size_bytes: int, config: LogConfig) -> KafkaError:
    why = f"{size_bytes} bytes; segment.bytes is {config.segment_bytes}"
    return KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, why)
