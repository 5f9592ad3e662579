"""A copy of one log in another log directory, made while the log goes on, and put in its place.

The copy follows its log in steps: what is missing is looked up on the loop, read and written in an
executor, durable when a step has ended. Segments that went or were replaced meanwhile go and are
copied anew. Between housekeeping.relocation and log.segment; log.manager puts the copy in place.
Source: Kafka's future replicas (KIP-113); reliability rules 3 and 18.
"""

from contextlib import suppress
from typing import NamedTuple

from ottla.env.disk import Disk, File
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.log.files.checkpoints import write_epoch_checkpoint, write_partition_metadata
from ottla.log.files.faults import sync, sync_directory
from ottla.log.files.layout import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    segment_file,
)
from ottla.log.files.tenancy import TenancyOver
from ottla.log.health import HELD
from ottla.log.log import Log
from ottla.log.segment.segment import Segment
from ottla.log.segment.transaction_index import TransactionIndex

STEP_BYTES = 8 << 20
"""Copied before the loop is asked again: a cancelled copy ends that soon."""
CHUNK_BYTES = 1 << 20

Aborts = tuple[int, int]
"""Which transaction index it is: its number of entries and the last offset of the last one."""
_NO_ABORTS: Aborts = (0, -1)


def _aborts_of(segment: Segment) -> Aborts:
    index = segment.transaction_index
    return _NO_ABORTS if index is None else (index.count, index.last_offset)


class SourceUnreadable(OttlaError):
    """The log that is copied cannot be read: its own disk is to blame."""


class _Progress(NamedTuple):
    """How much of a segment is in the copy."""

    segment: Segment
    size_bytes: int
    aborts: Aborts
    """The entries of its transaction index that are in the copy."""


class _Piece(NamedTuple):
    """Bytes of a segment that a step copies."""

    source: File
    target: str
    position: int
    length: int
    has_indexes: bool = False
    """Whether its sparse indexes are copied, too."""
    has_aborts: bool = False
    """Whether its transaction index is copied, too."""


class CopyStep:
    """Some bytes on their way. Made on the loop, run anywhere, handed back to ``LogCopy.took``."""

    def __init__(self, disk: Disk, log: Log, segment: Segment, piece: _Piece) -> None:
        self._disk = disk
        self._tenancy = log.tenancy
        self._piece = piece
        self.segment = segment
        self._has_names = not log.is_swapping or log.state is HELD
        """Whether the files beside the segment's have their names: not amid the cleaner's swap."""
        index = segment.transaction_index if piece.has_aborts else None
        self._aborted = None if index is None else index.keep()
        """Use: not the index. A segment that is dropped or replaced while this runs would open its
        file again, and keep it open with nobody left to close it: often another segment's."""
        self.aborts = _NO_ABORTS
        """The entries of the transaction index that have been copied."""

    @property
    def end_bytes(self) -> int:
        """How much of the segment is in the copy once this has run."""
        return self._piece.position + self._piece.length

    def run(self) -> None:
        """Copy, durably. Blocks. Raises SourceUnreadable, or OSError of the target's disk."""
        source, path, position, length, has_indexes, has_aborts = self._piece
        target = self._disk.open(path, create=True)
        try:
            if position == 0:
                target.truncate(0)
            end = position + length
            while position < end:
                data = _read(source, position, min(CHUNK_BYTES, end - position))
                target.write_at(position, data)
                position += len(data)
            sync(target)
        finally:
            target.close()
        if has_indexes:
            for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                self._copy_index(suffix)
        if has_aborts:
            self._copy_aborts()

    def _copy_aborts(self) -> None:
        """Copy the transaction index. No cache: what it lacks is shown to readers of committed.

        It is taken from the index, not from its file: what a disk refused is in memory only. None
        are copied when the file has gone: retention or compaction took the segment just now.
        """
        source = self._aborted
        path = self._piece.target.removesuffix(LOG_SUFFIX) + TRANSACTION_INDEX_SUFFIX
        target = TransactionIndex(self._disk, path)
        target.remove()  # What was begun of a segment that has been replaced since.
        if source is None:
            return
        try:
            with self._tenancy.inside():
                entries = source.read(self._disk)
        except FileNotFoundError:
            return
        except (OSError, TenancyOver) as error:
            raise SourceUnreadable(f"{source.path}: {error}") from error
        for entry in entries:
            target.append(entry)
        target.sync()
        target.let_go()
        self.aborts = (target.count, target.last_offset)

    def _copy_index(self, suffix: str) -> None:
        """Copy a sparse index. A cache: without it the copy's is made anew.

        Not where the file lacks what is in memory, for the disk refused it: nothing tells an index
        that ends too early from a whole one. Nor where the name is still that of the segment's
        before it was compacted.
        """
        path = self._piece.target.removesuffix(LOG_SUFFIX) + suffix
        with suppress(FileNotFoundError):
            self._disk.remove(path)  # Of an earlier try: the log has grown since.
        if not self._has_names or (
            self.segment.has_loaded_indexes and not self.segment.indexes.are_written
        ):
            return
        try:
            with self._tenancy.inside():
                file = self._disk.open_read_only(self.segment.path_of(suffix))
            try:
                data = file.read_at(0, file.size())
            finally:
                file.close()
        except (OSError, TenancyOver):
            return
        target = self._disk.open(path, create=True)
        try:
            target.write_at(0, data)
            sync(target)
        finally:
            target.close()


def _file_of(segment: Segment) -> File:
    try:
        return segment.file
    except OSError as error:
        raise SourceUnreadable(f"{segment.path}: {error}") from error


def _read(source: File, position: int, length: int) -> bytes:
    try:
        data = source.read_at(position, length)
    except OSError as error:
        raise SourceUnreadable(f"{source.path}: {error}") from error
    if not data:
        raise SourceUnreadable(f"{source.path} ends at byte {position}")
    return data


class LogCopy:
    """The copy of ``log`` in ``directory``, which is there and empty."""

    def __init__(self, disk: Disk, log: Log, directory: str) -> None:
        self._disk = disk
        self.log = log
        self.directory = directory
        self._done: dict[int, _Progress] = {}
        self.size_bytes = 0
        """Bytes copied so far."""
        self._whole_to = -1
        """Use: there may be very many segments, and each step asks which comes next. Invariant: all
        full ones below this offset are in the copy, while ``_rewrites`` is that of the log."""
        self._rewrites = log.segments.rewrites

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of which this is a copy."""
        return self.log.topic_partition

    @property
    def start_offset(self) -> int:
        """Where its log starts."""
        return self.log.log_start_offset

    @property
    def offset_lag(self) -> int:
        """How far it is behind its log."""
        return max(self.log.log_end_offset - self.end_offset, 0)

    @property
    def end_offset(self) -> int:
        """Up to where the copy surely is whole; a segment under way counts as missing."""
        segments, ordinal = self.log.segments, self._first_missing()
        is_whole = ordinal == len(segments)
        return self.log.log_end_offset if is_whole else segments[ordinal].base_offset

    def misses_more_than(self, size_bytes: int) -> bool:
        """Tell whether the copy is behind by more than ``size_bytes``."""
        segments, missing_bytes = self.log.segments, 0
        for ordinal in range(self._first_missing(), len(segments)):
            segment = segments[ordinal]
            position = self._missing_from(segment)
            if position is not None:
                missing_bytes += segment.size_bytes - position
            if missing_bytes > size_bytes:
                return True
        return False

    def _first_missing(self) -> int:
        """Return the ordinal of the oldest segment that is not whole; their count: all are."""
        segments = self.log.segments
        if self._rewrites != segments.rewrites:
            self._rewrites, self._whole_to = segments.rewrites, -1
        ordinal = segments.ordinal_of(self._whole_to)
        while self._missing_from(segments[ordinal]) is None:
            if ordinal + 1 == len(segments):
                return ordinal + 1
            ordinal += 1
            self._whole_to = segments[ordinal].base_offset
        return ordinal

    def _lacks_aborts(self, segment: Segment) -> bool:
        """Tell whether the copy's transaction index is another than that of ``segment``."""
        return self._done[segment.base_offset].aborts != _aborts_of(segment)

    def _missing_from(self, segment: Segment) -> int | None:
        """Return the position from which ``segment`` is to be copied; None when it is whole."""
        progress = self._done.get(segment.base_offset)
        if progress is None or progress.segment is not segment:
            return 0  # Not begun, or its bytes are others by now.
        if progress.size_bytes > segment.size_bytes:
            return 0  # Cut back.
        return progress.size_bytes if progress.size_bytes < segment.size_bytes else None

    def next_step(self) -> CopyStep | None:
        """Return what to copy next; None when all is there. Raises SourceUnreadable."""
        segments, ordinal = self.log.segments, self._first_missing()
        if ordinal == len(segments):
            return None
        segment = segments[ordinal]
        position = self._missing_from(segment) or 0
        length = min(segment.size_bytes - position, STEP_BYTES)
        is_last = position + length == segment.size_bytes
        name = segment_file(segment.base_offset, LOG_SUFFIX)
        is_full = is_last and segment is not segments.active
        path = f"{self.directory}/{name}"
        piece = _Piece(_file_of(segment), path, position, length, is_full, has_aborts=is_full)
        if segment is not segments.active:
            segments.note_read(segment)  # Else all would stay open, also if this is ended.
        return CopyStep(self._disk, self.log, segment, piece)

    def took(self, step: CopyStep) -> None:
        """Note that ``step`` has run. On the loop."""
        segment = step.segment
        before = self._done.get(segment.base_offset)
        self.size_bytes += step.end_bytes - (0 if before is None else before.size_bytes)
        self._done[segment.base_offset] = _Progress(segment, step.end_bytes, step.aborts)

    def complete(self) -> None:
        """Make the copy all that the log is. Blocks; on any thread: the log is held.

        For little: the caller has seen that it is nearly there.
        Raises SourceUnreadable, or OSError of the target's disk.
        """
        disk, log = self._disk, self.log
        with suppress(OSError):  # Its disk may be full: then the copy's are made anew.
            log.segments.active.save_indexes()
        while (step := self.next_step()) is not None:
            step.run()
            self.took(step)
        active = log.segments.active
        for segment in log.segments:
            if segment is active or self._lacks_aborts(segment):
                path = f"{self.directory}/{segment_file(segment.base_offset, LOG_SUFFIX)}"
                has_indexes = segment is active
                piece = _Piece(_file_of(segment), path, segment.size_bytes, 0, has_indexes, True)
                step = CopyStep(disk, log, segment, piece)
                step.run()
                if step.aborts != _aborts_of(segment):
                    raise SourceUnreadable(f"{segment.path}: its transaction index is not whole")
        kept = {segment.base_offset for segment in log.segments}
        for name in disk.list_directory(self.directory):
            parsed = parse_segment_file(name)
            if parsed is not None and parsed[0] not in kept:
                disk.remove(f"{self.directory}/{name}")  # Deleted from the log meanwhile.
        epochs = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
        write_epoch_checkpoint(disk, epochs, log.leader_epochs.to_save)
        if log.topic_id is not None:
            metadata = f"{self.directory}/{PARTITION_METADATA}"
            write_partition_metadata(disk, metadata, log.topic_id)
        log.producers.save_to(self.directory, log.log_end_offset)
        sync_directory(disk, self.directory)
