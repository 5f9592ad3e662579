"""One segment: a ``.log`` file, its two sparse indexes, and the way from an offset to a position.

Owns where batches lie in one file: its size, the positions of the last batches, its largest time
and one pair of indexes. Does not know what an offset means to others (high watermark, leader), when
to roll or what is durable. Below log.contents.segments, above log.segment.segment_files. The
indexes are loaded when first needed.

An index is believed only as far as the log confirms it: the batch that an entry points at must end
at the entry's offset. Otherwise both indexes are rebuilt from the log (reliability rule 10).

Source: Kafka's LogSegment; the seed on Kafka's log ("floor entry, then scan").
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress

from ottla.env.disk import Buffer, Disk, File
from ottla.errors import KafkaError
from ottla.log.files import faults
from ottla.log.segment.bulk_walk import BulkWalk, Stretch
from ottla.log.segment.indexes import SegmentIndexes, agrees
from ottla.log.segment.scan import Batch, Walk, seek
from ottla.log.segment.segment_files import SegmentFiles
from ottla.log.segment.time_index import TimestampOffset
from ottla.records.batch import NO_TIMESTAMP

RELATIVE_OFFSET_MAX = 2**31 - 1
_TAIL_BATCHES = 256


class Segment(SegmentFiles):
    """The batches ``[base_offset, next segment's base offset)`` of one partition."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_indexes",
        "_tail_last_offsets",
        "_tail_positions",
        "created_ms",
        "first_timestamp",
        "index_bytes",
        "index_interval_bytes",
        "latest",
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
        super().__init__(disk, directory, base_offset, size_bytes)
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
        self._indexes: SegmentIndexes | None = None
        """None: not in memory."""
        self._bytes_since_index_entry = 0
        # The last batches appended, by last offset: the tail's readers need neither index nor disk.
        self._tail_last_offsets = array("q")
        self._tail_positions = array("q")

    @property
    def indexes(self) -> SegmentIndexes:
        """Both indexes, loaded or rebuilt when first asked for. Blocks then. Raises as ``find``."""
        if self._indexes is None:
            indexes = self._empty_indexes()
            if indexes.load(self.size_bytes):
                self._indexes = indexes
            else:
                self.rebuild_indexes()
            if self.opened is not None:
                self.opened(self)
        assert self._indexes is not None
        return self._indexes

    @property
    def has_loaded_indexes(self) -> bool:
        """Tell whether the indexes are in memory."""
        return self._indexes is not None

    def _empty_indexes(self) -> SegmentIndexes:
        return SegmentIndexes(self._disk, self.path_of, self.base_offset)

    # -- writing ------------------------------------------------------------------------------

    def create(self, *, preallocated_bytes: int = 0) -> None:
        """Make the empty log file and start empty indexes; the caller syncs the directory.

        A leftover empty file of the same name (a roll that was cut short) is taken over. Raises
        CorruptFile when it holds something. ``preallocated_bytes``: what the file takes on the
        device from the start, until the segment is full or let go (design D6).
        """
        self._create_file(preallocated_bytes)
        self._indexes = self._empty_indexes()
        self.latest = TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def take_over(self, file: File, indexes: SegmentIndexes, latest: TimestampOffset) -> None:
        """Read from files that are open already, whatever their names are just now."""
        self.is_named = False
        self._file, self._indexes = file, indexes
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
            indexes = self.indexes
            indexes.append(last_offset, position, latest)
            self._bytes_since_index_entry = 0
            self.index_bytes = indexes.bytes_after_next()
        self._bytes_since_index_entry += size_bytes
        tail = self._tail_last_offsets
        if len(tail) == 2 * _TAIL_BATCHES:
            del tail[:_TAIL_BATCHES]
            del self._tail_positions[:_TAIL_BATCHES]
        tail.append(last_offset)
        self._tail_positions.append(position)
        self.size_bytes = position + size_bytes

    def seal(self, *, sync: bool = True, is_flushed: bool = False) -> None:
        """Write the last time index entry and make log and indexes durable. Blocks.

        For a segment that takes no more appends. Its tail positions are let go. Without ``sync``
        nothing is durable yet; indexes need not be, recovery makes them anew. The transaction
        index is: whoever finds the snapshot of producers taken next does not look for aborts.
        ``is_flushed``: the log file is durable already.
        """
        latest = self.largest_timestamp()
        self.indexes.times.append(*latest)
        if self._mapped is not None or self.is_cut:  # The disk may have refused it before.
            self.cut_to_size()
        if sync and (self.is_cut or not is_flushed):
            faults.sync(self.file)
            self.is_cut = False
        self.save_indexes(sync=sync)
        if self.transaction_index is not None:
            self.transaction_index.sync()
        del self._tail_last_offsets[:], self._tail_positions[:]

    def save_indexes(self, *, sync: bool = False) -> None:
        """Bring both index files up to date. Raises OSError."""
        if self._indexes is not None:
            self._indexes.write(sync=sync)

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

    def position_of(self, offset: int) -> int:
        """Return where the batch holding ``offset`` (or the first one after it) starts."""
        batch = self.find(offset)
        return self.size_bytes if batch is None else batch.position

    def _scan_for(self, offset: int) -> Batch | None:
        entry = self.indexes.offsets.lookup(offset)
        start, expected = (0, None) if entry is None else (entry.position, entry.offset)
        found = seek(self.file, start, self.size_bytes, offset, expected)
        if found is not None:
            return found
        if entry is not None and not agrees(entry, None, self._walk_near):
            # The index led to something that is not the batch it promised.
            self.rebuild_indexes()
            entry = self.indexes.offsets.lookup(offset)
        walk = self._walk_near(0 if entry is None else entry.position)
        for batch in walk:
            if batch.last_offset >= offset:
                return batch
        if walk.stopped_by is not None:
            raise self._unreadable(walk)
        return None

    def first_batch_reaching(self, timestamp: int, from_offset: int) -> Batch | None:
        """Return the first batch at or after ``from_offset`` with a record >= ``timestamp``."""
        entry = self.indexes.times.lookup(timestamp)
        if entry is not None and not self._confirms(entry):
            self.rebuild_indexes()
            entry = self.indexes.times.lookup(timestamp)
        start = from_offset if entry is None else max(entry.offset, from_offset)
        walk = self._walk(self.position_of(start))
        for batch in walk:
            if batch.max_timestamp >= timestamp and batch.last_offset >= from_offset:
                return batch
        if walk.stopped_by is not None:
            raise self._unreadable(walk)
        return None

    def largest_timestamp(self) -> TimestampOffset:
        """Return the largest timestamp and the last offset of the first batch that has it.

        Leaves nothing open that was not: who asks this asks all segments.
        """
        if self.latest is None:
            was_open = self.is_file_open
            entry = self.indexes.times.last()
            if self.size_bytes and (
                entry is None
                or not self._confirms(entry)
                or _is_passed(entry.timestamp, self._walk_near(self.indexes.last_position()))
            ):
                self.rebuild_indexes()
                entry = self.indexes.times.last()
            self.latest = entry or TimestampOffset(NO_TIMESTAMP, self.base_offset)
            if not was_open:
                self.rest()
        return self.latest

    @property
    def knows_newest(self) -> bool:
        """Tell whether ``newest_ms`` asks nothing of the disk."""
        return self.latest is not None and self.latest.timestamp >= 0

    def newest_ms(self) -> int:
        """Return the largest timestamp, or when the file was written if no record has one."""
        timestamp = self.largest_timestamp().timestamp
        return timestamp if timestamp >= 0 else self._disk.modified_ms(self.path)

    def _confirms(self, entry: TimestampOffset) -> bool:
        try:
            batch = self.next_batch(self.position_of(entry.offset))
        except KafkaError:
            return False
        return batch is not None and (batch.last_offset, batch.max_timestamp) == (
            entry.offset,
            entry.timestamp,
        )

    def rebuild_indexes(self) -> None:
        """Make both indexes anew from the log. Blocks: reads the whole segment once, and syncs.

        Raises KafkaError CORRUPT_MESSAGE where the log cannot be read.
        """
        size_bytes = self.size_bytes
        try:
            self._make_indexes()
        except BaseException:
            self._indexes = None  # Not all of it is in them.
            raise
        finally:
            self.size_bytes = size_bytes
        # A full disk must not stop reads: the index is in memory now.
        with suppress(OSError):
            self.indexes.write_anew(self.path_of)

    def _make_indexes(self) -> None:
        """Make both indexes from the log, in memory and in files beside those there are."""
        walk = self._walk(0)
        size_bytes = self.size_bytes
        self._forget(None)
        self.indexes.begin_anew(self.path_of)
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
        if walk.stopped_by is not None:
            raise self._unreadable(walk)
        self.indexes.times.append(*self.largest_timestamp())

    def rewind(self, keep_below: int, *, trusted: bool) -> int:
        """Go back to a batch from which on all must be noted again, and return its position.

        That batch starts at or below the one that holds ``keep_below``; ``size_bytes`` becomes its
        position. Index entries before it stay: all that agree with the log, and with ``trusted``
        (after a clean stop) as late as possible. Blocks: reads the index files when not loaded.
        """
        joint = None
        indexes = self._indexes or self._empty_indexes()
        if self.has_loaded_indexes or indexes.load(self.size_bytes):
            self._indexes = indexes
            joint = indexes.joint(keep_below, self._walk_near, trusted=trusted)
        self._forget(joint)
        return self.size_bytes

    def note(self, batch: Batch) -> None:
        """Take ``batch``, which stands in the file right behind ``size_bytes``, into account."""
        self._note(batch.position, batch.size_bytes, batch.last_offset, batch.max_timestamp)

    def note_ahead(
        self, bulk: BulkWalk, *, next_offset: int, leader_epoch: int, data: memoryview | None = None
    ) -> Stretch | None:
        """Note all ordinary batches right behind ``size_bytes``, quickly; return what was noted.

        The first of them must have ``next_offset`` and ``leader_epoch``. None: it is not ordinary.
        ``data``: they stand at its beginning, not in the file yet, and are written before they are
        noted; ``bulk`` goes over it as if it stood behind ``size_bytes``. Blocks. Raises OSError,
        as ``append`` does.
        """
        indexes = self.indexes
        entry, time_entry, latest = indexes.offsets.last(), indexes.times.last(), self.latest
        assert latest is not None
        if entry is not None and entry.offset >= next_offset:
            return None
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
            return None
        if data is not None:
            self.file.write_at(self.size_bytes, data[: stretch.end_position - self.size_bytes])
        indexes.extend(stretch)
        if stretch.offset_entries:
            self.index_bytes = indexes.bytes_after_next()
        self._bytes_since_index_entry = stretch.bytes_since_entry
        self.latest = TimestampOffset(stretch.latest_timestamp, stretch.latest_offset)
        # The tail's list has to be without gaps: it begins anew behind the stretch.
        del self._tail_last_offsets[:], self._tail_positions[:]
        self.size_bytes = stretch.end_position
        return stretch

    def _forget(self, joint: tuple[int, TimestampOffset] | None) -> None:
        del self._tail_last_offsets[:], self._tail_positions[:]
        # A joint is a batch with an entry: it gets it again, so that later ones stay in place.
        self._bytes_since_index_entry = 0 if joint is None else self.index_interval_bytes + 1
        self.first_timestamp = None
        self.index_bytes = 0
        if joint is None:
            self._indexes = self._empty_indexes()
            joint = 0, TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self.size_bytes, self.latest = joint

    def truncate(self, offset: int) -> None:
        """Remove every batch that reaches ``offset`` or lies above it. Blocks."""
        size_bytes = self.position_of(offset)
        resume = self.rewind(offset, trusted=False)
        for batch in Walk(self.file, resume, size_bytes, verify_crc=False):
            self.note(batch)
        assert self.size_bytes == size_bytes, (self.path, self.size_bytes, size_bytes)
        self.cut_to_size()
        self.save_indexes(sync=True)  # Behind a power cut no entry may be one of those cut off.

    def last_offset(self) -> int | None:
        """Return the offset of the last record, or None in an empty segment."""
        if self._tail_last_offsets:
            return self._tail_last_offsets[-1]
        last: int | None = None
        for batch in self._walk(self.indexes.last_position()):
            last = batch.last_offset
        return last

    def rest(self) -> None:
        """Close the file of a full segment, and forget its indexes, until they are needed again.

        An index that the disk did not take stays in memory: to make it anew reads the whole log.
        """
        self.let_go_of_file()
        if self.is_named and self._indexes is not None and self._indexes.are_written:
            self._indexes = None

    def let_go(self) -> None:
        """Forget files and indexes; regions and syncs in use keep their file open by themselves."""
        self._file = self._mapped = self._indexes = None
        if self.transaction_index is not None:
            self.transaction_index.let_go()


def _is_passed(timestamp: int, behind: Walk) -> bool:
    """Tell whether a batch of those ``behind`` the last offset entry has a later timestamp.

    Then the time index has lost entries at its end, which leaves no other trace.
    """
    return any(batch.max_timestamp > timestamp for batch in behind)


def with_ends(segments: Sequence[Segment], end_offset: int) -> Iterator[tuple[Segment, int]]:
    """Yield each segment and the offset where it ends (exclusive): the last one at ``end_offset``.

    ``segments``: oldest first; at least one.
    """
    ends = [segment.base_offset for segment in segments[1:]]
    return zip(segments, [*ends, end_offset], strict=True)
