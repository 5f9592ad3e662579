"""One segment: a ``.log`` file, its two sparse indexes, and the way from an offset to a position.

Owns where batches lie in one file. Does not know what an offset means to others (high watermark,
leader), when to roll or what is durable. Below log.log, above env.disk. Files are opened and
indexes loaded when first needed, so that a segment nobody reads costs its name and size.

An index is believed only as far as the log confirms it: the batch that an entry points at must end
at the entry's offset. Otherwise both indexes are rebuilt from the log (reliability rule 10).

Source: Kafka's LogSegment; the seed on Kafka's log ("floor entry, then scan").
"""

from array import array
from bisect import bisect_left
from contextlib import suppress

from ottla.env.disk import Buffer, Disk, File
from ottla.errors import CorruptFile, ErrorCode, KafkaError
from ottla.log.files import faults
from ottla.log.files.layout import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file,
)
from ottla.log.segment.bulk_walk import BulkWalk
from ottla.log.segment.mapped import MappedEnd
from ottla.log.segment.offset_index import OffsetIndex, OffsetPosition
from ottla.log.segment.scan import LOOKUP_CHUNK_BYTES, Batch, Walk, seek
from ottla.log.segment.time_index import TimeIndex, TimestampOffset
from ottla.log.segment.transaction_index import AbortedTransaction, TransactionIndex
from ottla.records.batch import NO_TIMESTAMP

RELATIVE_OFFSET_MAX = 2**31 - 1
_TAIL_BATCHES = 256


class Segment:
    """The batches ``[base_offset, next segment's base offset)`` of one partition."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_directory",
        "_disk",
        "_file",
        "_mapped",
        "_offset_index",
        "_tail_last_offsets",
        "_tail_positions",
        "_time_index",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "index_bytes",
        "index_interval_bytes",
        "is_named",
        "latest",
        "size_bytes",
        "transaction_index",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        size_bytes: int,
        index_interval_bytes: int,
        created_ms: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self.base_offset = base_offset
        """Invariant: not above any offset in the segment; names the files."""
        self.size_bytes = size_bytes
        """Use: where the next batch goes. Invariant: the log file holds whole batches up to it."""
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = created_ms
        """Use: age of a segment whose first batch has no timestamp."""
        self.first_timestamp: int | None = None
        """Use: rolling by time. None until known: an empty segment, or nobody asked."""
        self.index_bytes = 0
        """Use: rolling at a full index. The larger one's size with one more entry; 0: no entry."""
        self.latest: TimestampOffset | None = None
        """Largest timestamp and the last offset of its batch. None until known. Invariant: known
        while the segment takes appends; (-1, base offset) when no batch has a timestamp."""
        self.transaction_index: TransactionIndex | None = None
        """None: no transaction was aborted in this segment. Filled at start by log.producers."""
        self.is_named = True
        """Whether its files bear its names. Else it has to keep them open: others bear them."""
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._bytes_since_index_entry = 0
        self._mapped: MappedEnd | None = None
        """Use: takes the appends. Invariant: None once the segment is full, cut or let go."""
        # The last batches appended, by last offset: the tail's readers need neither index nor disk.
        self._tail_last_offsets = array("q")
        self._tail_positions = array("q")

    @property
    def path(self) -> str:
        """Path of the log file."""
        return self.path_of(LOG_SUFFIX)

    @property
    def file(self) -> File:
        """The log file, opened when first asked for."""
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    @property
    def is_file_open(self) -> bool:
        """Tell whether the log file is open: as long as it is not, no append can have begun."""
        return self._file is not None

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, loaded or rebuilt when first asked for."""
        if self._offset_index is None:
            self._load_indexes()
            assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, loaded or rebuilt when first asked for."""
        if self._time_index is None:
            self._load_indexes()
            assert self._time_index is not None
        return self._time_index

    def path_of(self, suffix: str) -> str:
        """Path of the segment's file with ``suffix``."""
        return f"{self._directory}/{segment_file(self.base_offset, suffix)}"

    # -- writing ------------------------------------------------------------------------------

    def create(self, *, preallocated_bytes: int = 0) -> None:
        """Make the empty log file and start empty indexes; the caller syncs the directory.

        A leftover empty file of the same name (a roll that was cut short) is taken over. Raises
        CorruptFile when it holds something. ``preallocated_bytes``: what the file takes on the
        device from the start, until the segment is full or let go (design D6).
        """
        self._file = self._disk.open(self.path, create=True)
        if self._file.size():
            raise CorruptFile(self.path, f"expected a new segment, found {self._file.size()} bytes")
        if preallocated_bytes:
            self._allocate(preallocated_bytes)
            self._mapped = MappedEnd(preallocated_bytes)
        self._new_indexes()
        self.latest = TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def _allocate(self, size_bytes: int) -> None:
        try:
            self.file.allocate(size_bytes)
        except OSError:
            with suppress(OSError):  # Part of it may be there; a segment without batches is empty.
                self.file.truncate(0)
            raise

    def take_over(
        self, file: File, offsets: OffsetIndex, times: TimeIndex, latest: TimestampOffset
    ) -> None:
        """Read from files that are open already, whatever their names are just now."""
        self.is_named = False
        self._file, self._offset_index, self._time_index = file, offsets, times
        self.latest = latest

    def append(self, data: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Write one batch behind the last one. Raises OSError: then nothing is appended.

        The file may be longer than ``size_bytes`` in that case: see ``cut_to_size``.
        """
        position = self.size_bytes
        file = self._file or self.file
        if self._mapped is None or not self._mapped.put(file, position, data):
            file.write_at(position, data)
        self._note(position, len(data), last_offset, max_timestamp)

    def append_all(self, data: Buffer, batches: list[Batch]) -> None:
        """Write several batches at once; positions in ``batches`` are relative to ``data``."""
        start = self.size_bytes
        self.file.write_at(start, data)
        for batch in batches:
            self._note(
                start + batch.position, batch.size_bytes, batch.last_offset, batch.max_timestamp
            )

    def _note(self, position: int, size_bytes: int, last_offset: int, max_timestamp: int) -> None:
        latest = self.latest
        assert latest is not None
        if max_timestamp > latest[0]:
            latest = self.latest = TimestampOffset(max_timestamp, last_offset)
        if position == 0:
            self.first_timestamp = max_timestamp
        if self._bytes_since_index_entry > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(*latest)
            self._bytes_since_index_entry = 0
            self._note_index_size()
        self._bytes_since_index_entry += size_bytes
        tail = self._tail_last_offsets
        if len(tail) == 2 * _TAIL_BATCHES:
            del tail[:_TAIL_BATCHES]
            del self._tail_positions[:_TAIL_BATCHES]
        tail.append(last_offset)
        self._tail_positions.append(position)
        self.size_bytes = position + size_bytes

    def begin_transaction_index(self) -> TransactionIndex:
        """Give the segment a transaction index without entries."""
        path = self.path_of(TRANSACTION_INDEX_SUFFIX)
        self.transaction_index = index = TransactionIndex(self._disk, path)
        return index

    def remove_transaction_index(self) -> None:
        """Remove its file, if there is one: a segment of the same name to come must not find it.

        Durable when the directory was synced. Raises OSError.
        """
        if self.transaction_index is not None:
            self.transaction_index.remove()
            self.transaction_index = None

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Enter a transaction whose abort marker was appended."""
        index = self.transaction_index or self.begin_transaction_index()
        index.append(aborted)
        # When the disk is full the entry stays in memory; what needs it on disk comes back to it.
        index.write_quietly()

    def cut_to_size(self) -> None:
        """Make the file end at ``size_bytes``. Raises OSError.

        Behind it stands what a failed append left there, or what was preallocated.
        """
        self._mapped = None  # First: memory behind a file's end must not be touched.
        self.file.truncate(self.size_bytes)

    def seal(self, *, sync: bool = True, is_flushed: bool = False) -> None:
        """Write the last time index entry and make log and indexes durable. Blocks.

        For a segment that takes no more appends. Its tail positions are let go. Without ``sync``
        nothing is durable yet; indexes need not be, recovery makes them anew. The transaction
        index is: whoever finds the snapshot of producers taken next does not look for aborts.
        ``is_flushed``: the log file is durable already.
        """
        self.time_index.append(*self.largest_timestamp())
        if self._mapped is not None:
            self.cut_to_size()
            is_flushed = False  # Its length is not.
        if sync and not is_flushed:
            faults.sync(self.file)
        self.save_indexes(sync=sync)
        if self.transaction_index is not None:
            self.transaction_index.sync()
        del self._tail_last_offsets[:], self._tail_positions[:]

    def save_indexes(self, *, sync: bool = False) -> None:
        """Bring both index files up to date. Raises OSError."""
        if self._offset_index is not None:
            self._offset_index.write(sync=sync)
        if self._time_index is not None:
            self._time_index.write(sync=sync)

    # -- reading ------------------------------------------------------------------------------

    def find(self, offset: int) -> Batch | None:
        """Return the first batch whose last offset is >= ``offset``; None when there is none.

        Of the batch only position, size and last offset are sure to be filled in. Costs no disk
        access near the end of an active segment. Raises KafkaError CORRUPT_MESSAGE where the log
        cannot be read.
        """
        tail = self._tail_last_offsets
        if tail and (offset > tail[0] or self._tail_positions[0] == 0):
            at = bisect_left(tail, offset)
            if at == len(tail):
                return None
            position = self._tail_positions[at]
            after = self._tail_positions[at + 1] if at + 1 < len(tail) else self.size_bytes
            return Batch(position, after - position, -1, tail[at], -1, NO_TIMESTAMP)
        return self._scan_for(offset)

    def remembers(self, offset: int) -> bool:
        """Tell whether ``find(offset)`` needs neither index nor disk: among the last batches."""
        tail = self._tail_last_offsets
        return bool(tail) and (offset > tail[0] or self._tail_positions[0] == 0)

    @property
    def disk(self) -> Disk:
        """The disk that the segment is on."""
        return self._disk

    @property
    def has_loaded_indexes(self) -> bool:
        """Tell whether the indexes are in memory."""
        return self._offset_index is not None

    def position_of(self, offset: int) -> int:
        """Return where the batch holding ``offset`` (or the first one after it) starts."""
        batch = self.find(offset)
        return self.size_bytes if batch is None else batch.position

    def _scan_for(self, offset: int) -> Batch | None:
        entry = self.offset_index.lookup(offset)
        start, expected = (0, None) if entry is None else (entry.position, entry.offset)
        found = seek(self.file, start, self.size_bytes, offset, expected)
        if found is not None:
            return found
        if entry is not None and not self._agree(entry, None):
            # The index led to something that is not the batch it promised.
            self.rebuild_indexes()
            entry = self.offset_index.lookup(offset)
        walk = self._walk(0 if entry is None else entry.position, LOOKUP_CHUNK_BYTES)
        for batch in walk:
            if batch.last_offset >= offset:
                return batch
        if walk.stopped_by is not None:
            raise self._unreadable(walk)
        return None

    def next_batch(self, position: int) -> Batch | None:
        """Return the batch that starts at ``position``; None at the end of the segment.

        Raises KafkaError CORRUPT_MESSAGE when there are bytes that are no batch.
        """
        walk = self._walk(position, LOOKUP_CHUNK_BYTES)
        for batch in walk:
            return batch
        if walk.stopped_by is not None:
            raise self._unreadable(walk)
        return None

    def first_batch_reaching(self, timestamp: int, from_offset: int) -> Batch | None:
        """Return the first batch at or after ``from_offset`` with a record >= ``timestamp``."""
        entry = self.time_index.lookup(timestamp)
        if entry is not None and not self._confirms(entry):
            self.rebuild_indexes()
            entry = self.time_index.lookup(timestamp)
        start = from_offset if entry is None else max(entry.offset, from_offset)
        walk = self._walk(self.position_of(start))
        for batch in walk:
            if batch.max_timestamp >= timestamp and batch.last_offset >= from_offset:
                return batch
        if walk.stopped_by is not None:
            raise self._unreadable(walk)
        return None

    def largest_timestamp(self) -> TimestampOffset:
        """Return the largest timestamp and the last offset of the first batch that has it."""
        if self.latest is None:
            entry = self.time_index.last()
            if self.size_bytes and (
                entry is None or not self._confirms(entry) or self._ends_later_than(entry)
            ):
                self.rebuild_indexes()
                entry = self.time_index.last()
            self.latest = entry or TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return self.latest

    def newest_ms(self) -> int:
        """Return the largest timestamp, or when the file was written if no record has one."""
        timestamp = self.largest_timestamp().timestamp
        return timestamp if timestamp >= 0 else self._disk.modified_ms(self.path)

    def _confirms(self, entry: TimestampOffset) -> bool:
        try:
            position = self.position_of(entry.offset)
            batch = self.next_batch(position)
        except KafkaError:
            return False
        return batch is not None and (batch.last_offset, batch.max_timestamp) == (
            entry.offset,
            entry.timestamp,
        )

    def _ends_later_than(self, entry: TimestampOffset) -> bool:
        """Tell whether a batch behind the last offset entry has a later timestamp than ``entry``.

        Then the time index has lost entries at its end, which leaves no other trace.
        """
        last = self.offset_index.last()
        walk = self._walk(0 if last is None else last.position, LOOKUP_CHUNK_BYTES)
        return any(batch.max_timestamp > entry.timestamp for batch in walk)

    def _walk(self, position: int, chunk_bytes: int | None = None) -> Walk:
        if chunk_bytes is None:
            return Walk(self.file, position, self.size_bytes, verify_crc=False)
        return Walk(self.file, position, self.size_bytes, verify_crc=False, chunk_bytes=chunk_bytes)

    def _unreadable(self, walk: Walk) -> KafkaError:
        why = f"{self.path} at byte {walk.position}: {walk.stopped_by}"
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, why)

    # -- indexes and recovery -----------------------------------------------------------------

    def _new_indexes(self) -> None:
        offsets = OffsetIndex(self._disk, self.path_of(OFFSET_INDEX_SUFFIX), self.base_offset)
        times = TimeIndex(self._disk, self.path_of(TIME_INDEX_SUFFIX), self.base_offset)
        self._offset_index, self._time_index = offsets, times

    def _load_indexes(self) -> None:
        """Read both index files, or rebuild both when one is missing or impossible."""
        if not self._read_indexes():
            self.rebuild_indexes()

    def _read_indexes(self) -> bool:
        self._new_indexes()
        assert self._offset_index is not None
        assert self._time_index is not None
        try:
            self._offset_index.load(self.size_bytes)
            self._time_index.load(self.size_bytes)
        except (FileNotFoundError, CorruptFile):
            return False
        return True

    def rebuild_indexes(self) -> None:
        """Make both indexes anew from the log. Blocks: reads the whole segment once.

        Raises KafkaError CORRUPT_MESSAGE where the log cannot be read.
        """
        walk = self._walk(0)
        size_bytes = self.size_bytes
        self._forget(None)
        bulk = BulkWalk(
            self.file,
            size_bytes,
            base_offset=self.base_offset,
            verify_crc=False,
            may_skip=True,
            index_interval_bytes=self.index_interval_bytes,
        )
        for batch in walk:
            if not 0 <= batch.last_offset - self.base_offset <= RELATIVE_OFFSET_MAX:
                # No checksum covers a base offset.
                walk.stopped_by, walk.position = f"offset {batch.last_offset}", batch.position
                break
            self.note(batch)
            self.note_ahead(
                bulk, next_offset=batch.last_offset + 1, leader_epoch=batch.leader_epoch
            )
            walk.position = self.size_bytes
        self.size_bytes = size_bytes
        if walk.stopped_by is not None:
            raise self._unreadable(walk)
        self.time_index.append(*self.largest_timestamp())
        # A full disk must not stop reads: the index is in memory now.
        with suppress(OSError):
            self.save_indexes()

    def rewind(self, keep_below: int, *, trusted: bool) -> int:
        """Go back to a batch from which on all must be noted again, and return its position.

        That batch starts at or below the one that holds ``keep_below``; ``size_bytes`` becomes its
        position. Index entries before it stay: all that agree with the log, and with ``trusted``
        (after a clean stop) as late as possible. Blocks: reads the index files when not loaded.
        """
        if self._offset_index is None and not self._read_indexes():
            joint = None
        else:
            self.offset_index.keep_below(keep_below)
            self.time_index.keep_below(keep_below)
            joint = self._trusted_joint() if trusted else self._joint()
        self._forget(joint)
        return self.size_bytes

    def note(self, batch: Batch) -> None:
        """Take ``batch``, which stands in the file right behind ``size_bytes``, into account."""
        self._note(batch.position, batch.size_bytes, batch.last_offset, batch.max_timestamp)

    def note_ahead(self, bulk: BulkWalk, *, next_offset: int, leader_epoch: int) -> int:
        """Note all ordinary batches that stand right behind ``size_bytes``, quickly. Blocks.

        The first of them must have ``next_offset`` and ``leader_epoch``. Returns the offset behind
        the last one: ``next_offset`` itself when there is none.
        """
        latest = self.latest
        assert latest is not None
        entry, time_entry = self.offset_index.last(), self.time_index.last()
        if entry is not None and entry.offset >= next_offset:
            return next_offset
        stretch = bulk.advance(
            self.size_bytes,
            next_offset=next_offset,
            leader_epoch=leader_epoch,
            latest_timestamp=latest.timestamp,
            latest_offset=latest.offset,
            entry_timestamp=NO_TIMESTAMP if time_entry is None else time_entry.timestamp,
            bytes_since_entry=self._bytes_since_index_entry,
        )
        if stretch is None:
            return next_offset
        self.offset_index.extend(stretch.offset_entries)
        self.time_index.extend(stretch.time_entries)
        if stretch.offset_entries:
            self._note_index_size()
        self._bytes_since_index_entry = stretch.bytes_since_entry
        self.latest = TimestampOffset(stretch.latest_timestamp, stretch.latest_offset)
        # The tail's list has to be without gaps: it begins anew behind the stretch.
        del self._tail_last_offsets[:], self._tail_positions[:]
        self.size_bytes = stretch.end_position
        return stretch.next_offset

    def _note_index_size(self) -> None:
        # One time entry stays free for the one that a roll itself writes.
        self.index_bytes = max(
            len(self.offset_index.entries) + 8, len(self.time_index.entries) + 24
        )

    def _forget(self, joint: tuple[int, TimestampOffset] | None) -> None:
        del self._tail_last_offsets[:], self._tail_positions[:]
        # A joint is a batch with an entry: it gets it again, so that later ones stay in place.
        self._bytes_since_index_entry = 0 if joint is None else self.index_interval_bytes + 1
        self.first_timestamp = None
        self.index_bytes = 0
        if joint is None:
            self._new_indexes()
            joint = 0, TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self.size_bytes, self.latest = joint

    def _trusted_joint(self) -> tuple[int, TimestampOffset] | None:
        """Resume at the last offset entry: the time index says all about what lies before it."""
        entry, time_entry = self.offset_index.last(), self.time_index.last()
        if entry is None or not self._agree(entry, None):
            return None
        self.offset_index.keep_below(entry.offset)
        return entry.position, time_entry or TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def _joint(self) -> tuple[int, TimestampOffset] | None:
        """Resume at the last time entry that agrees with the log.

        After a kill the two indexes end at different places, since each is written behind by
        itself: no time entry knows of the batches after it, whatever offset entries say.
        """
        offsets, times = self.offset_index, self.time_index
        while (time_entry := times.last()) is not None:
            times.keep(times.count - 1)
            entry = offsets.lookup(time_entry.offset)
            if entry is None:
                return None
            if self._agree(entry, time_entry):
                # The entry's own batch is noted again, and with it a new entry may be due.
                offsets.keep_below(entry.offset)
                before = times.last() or TimestampOffset(NO_TIMESTAMP, self.base_offset)
                return entry.position, before
        return None

    def _agree(self, entry: OffsetPosition, time_entry: TimestampOffset | None) -> bool:
        """Tell whether the log has a batch where ``entry`` says, and one as ``time_entry`` says."""
        for batch in self._walk(entry.position, LOOKUP_CHUNK_BYTES):
            if batch.position == entry.position and batch.last_offset != entry.offset:
                return False
            if time_entry is None:
                return True
            if batch.last_offset >= time_entry.offset:
                return (batch.max_timestamp, batch.last_offset) == time_entry
        return False

    def truncate(self, offset: int) -> None:
        """Remove every batch that reaches ``offset`` or lies above it. Blocks."""
        size_bytes = self.position_of(offset)
        resume = self.rewind(offset, trusted=False)
        for batch in Walk(self.file, resume, size_bytes, verify_crc=False):
            self.note(batch)
        assert self.size_bytes == size_bytes, (self.path, self.size_bytes, size_bytes)
        self.cut_to_size()
        self.save_indexes()

    def last_offset(self) -> int | None:
        """Return the offset of the last record, or None in an empty segment."""
        if self._tail_last_offsets:
            return self._tail_last_offsets[-1]
        last: int | None = None
        entry = self.offset_index.last()
        for batch in self._walk(0 if entry is None else entry.position):
            last = batch.last_offset
        return last

    def let_go_of_file(self) -> None:
        """Close the log file until it is needed; regions and syncs in use keep it open."""
        if self.is_named:
            self._file = None
            if self.transaction_index is not None:
                self.transaction_index.let_go()

    def let_go(self) -> None:
        """Forget files and indexes; regions and syncs in use keep their file open by themselves."""
        self._file = self._mapped = self._offset_index = self._time_index = None
        if self.transaction_index is not None:
            self.transaction_index.let_go()
