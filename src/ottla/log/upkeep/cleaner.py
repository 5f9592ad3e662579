"""One cleaning of one log: the offset map, the filter, and cleaned segments ready to be swapped in.

The work of compaction, in slices that any thread may run, one after the other: read a chunk, let
the kernel go over it (``ottla.records.cleaning``, without the interpreter's lock), write what
stays. Knows the files of segments that nobody writes any more, and nothing of the log they belong
to: housekeeping.log_cleaner decides what is cleaned when, and the swap is ``log.swap``'s. What is
not a plain batch is opened here, filtered, and compressed again.

    first pass    the dirty part, into the offset map: the last offset of each key
    second pass   all segments up to where the map went, in groups, into one new segment each:
                  records with a later offset in the map go, tombstones go after their delete
                  horizon, aborted transactions go, batches keep their offsets

A batch of which nothing stays goes, unless it is the last of its producer (its sequence must stay
known), of the cleaning or of its group (the group's range of offsets must stay known to a start
that finishes the swap): then it stays, empty. Corruption ends the cleaning with nothing changed.
Source: Kafka's Cleaner and ``MemoryRecords.filterTo``; KIP-534 (delete horizon).
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import INT32_MAX
from ottla.log.config import LogConfig
from ottla.log.files.layout import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file,
)
from ottla.log.files.tenancy import Tenancy, TenancyOver
from ottla.log.segment.transaction_index import AbortedTransaction
from ottla.log.upkeep.cleaned_segment import CleanedSegment, Replacement
from ottla.log.upkeep.cleaned_transactions import CleanedTransactions
from ottla.log.upkeep.compaction import Source, group_sources
from ottla.log.upkeep.offset_map import OffsetMap
from ottla.records import cleaning
from ottla.records import cleaning_scope as fields
from ottla.records.batch import (
    CODEC_MASK,
    CRC_POSITION,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    batch_crc,
    read_header,
    read_size_bytes,
)
from ottla.records.compression import compress, decompress
from ottla.records.control import control_type_of
from ottla.records.decode import decode_batch

SLICE_BYTES = 1024 * 1024
"""Bytes read and written before the loop is asked whether to go on."""
IO_BUFFER_BYTES_MIN = 4 * 1024


class CleanPlan(NamedTuple):
    """What is to be cleaned, as it was decided on the loop."""

    directory: str
    sources: Sequence[Source]
    """All segments below the first uncleanable offset, oldest first; at least one."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    last_data_offsets: Sequence[int]
    """Of the producers that are remembered: where the last batch of each ends."""
    marker_epochs: dict[int, int]
    """The epochs of producers of which only markers are known."""
    aborted: Sequence[AbortedTransaction]
    """The aborted transactions with batches below the first uncleanable offset."""
    config: LogConfig
    now_ms: int


class Cleaning:
    """The cleaning of one log on its way through an executor."""

    def __init__(
        self, disk: Disk, plan: CleanPlan, offset_map: OffsetMap, io_buffer_bytes: int
    ) -> None:
        """``io_buffer_bytes``: for reading and for writing together, unless a batch is larger."""
        self._disk = disk
        self._plan = plan
        self._table, self._scope = offset_map.table, offset_map.scope
        size_bytes = max(io_buffer_bytes // 2, IO_BUFFER_BYTES_MIN)
        self._buffer = bytearray(size_bytes)
        self._out = bytearray(size_bytes)
        self._transactions = CleanedTransactions(())
        """Use: those of the pass under way, begun anew by each."""
        self._target: CleanedSegment | None = None
        self._ends: set[int] = set()
        """Last offsets of batches that stay, if only empty."""
        self._retained = array("q")
        """Invariant: the same, ascending, for the kernel."""
        self._is_full = False
        self.end_offset = plan.first_dirty_offset
        """Exclusive: up to here the log is clean once all replacements are in place."""
        self.read_bytes = 0
        self.written_bytes = 0

    def slices(self) -> Iterator[int | Replacement]:
        """Do the work. Each step blocks for some ms; on any thread, one at a time.

        Yields how many bytes were read and written since, or a segment that is ready: the caller
        puts it in place before the next step. Raises KafkaError CORRUPT_MESSAGE for what cannot be
        cleaned (nothing is changed then but for replacements that are in place already), OSError.
        """
        yield from self._map()
        config = self._plan.config
        scope = self._scope
        scope[fields.FIRST_OFFSET] = 0
        scope[fields.LATEST_OFFSET] = self.end_offset - 1
        scope[fields.NOW_MS] = self._plan.now_ms
        scope[fields.HORIZON_MS] = self._plan.now_ms + config.delete_retention_ms
        self._transactions = CleanedTransactions(self._plan.aborted)
        sources = [source for source in self._plan.sources if source.base_offset < self.end_offset]
        for group in group_sources([self._with_indexes(source) for source in sources], config):
            yield from self._clean(group)

    def abort(self, tenancy: Tenancy) -> None:
        """Remove what was not finished. Blocks. Nothing else may be called any more."""
        target, self._target = self._target, None
        if target is not None:
            target.close()
            with suppress(TenancyOver), tenancy.inside():  # Else it goes with the directory.
                target.remove()

    # -- the first pass -----------------------------------------------------------------------

    def _map(self) -> Iterator[int]:
        scope, plan = self._scope, self._plan
        scope[fields.FIRST_OFFSET] = plan.first_dirty_offset
        dirty = [one for one in plan.sources if one.end_offset > plan.first_dirty_offset]
        # One that ended further down has its marker there, which would not be read: it would go on,
        # and take what its producer committed since for its own.
        self._transactions = CleanedTransactions(
            one for one in plan.aborted if dirty and one.last_offset >= dirty[0].base_offset
        )
        for source in dirty:
            yield from self._walk(source, self._map_chunk)
            if self._is_full:
                break
            scope[fields.NEXT_OFFSET] = source.end_offset
        self.end_offset = max(scope[fields.NEXT_OFFSET], plan.first_dirty_offset)
        if self._is_full and self.end_offset == plan.first_dirty_offset:
            why = f"one batch has more than the {scope[fields.CAPACITY]} keys of the offset map"
            raise KafkaError(ErrorCode.INVALID_CONFIG, why)

    def _map_chunk(self, chunk: memoryview) -> int:
        """Map whole batches of ``chunk``; return where the first one starts that was not."""
        scope = self._scope
        scope[fields.POSITION] = 0
        while True:
            ended = cleaning.map_batches(chunk, self._table, scope)
            if ended == fields.SPECIAL:
                position = scope[fields.POSITION]
                header = read_header(chunk, position)
                ended = self._map_special(header, chunk[position : position + header.size_bytes])
                if ended == fields.DONE:
                    scope[fields.POSITION] = position + header.size_bytes
                    continue
            self._is_full = ended == fields.FULL
            if ended == fields.CORRUPT:
                raise _corrupt(f"bad batch after offset {scope[fields.NEXT_OFFSET] - 1}")
            return scope[fields.POSITION]

    def _map_special(self, header: BatchHeader, batch: memoryview) -> int:
        if header.is_control:
            self._ends_nothing(header, batch)
        elif not self._is_aborted(header) and header.last_offset >= self._plan.first_dirty_offset:
            records = _open(header, batch)
            ended = cleaning.map_records(
                records, header.record_count, header.base_offset, self._table, self._scope
            )
            if ended != fields.DONE:
                return ended
        if header.last_offset >= self._plan.first_dirty_offset:
            self._scope[fields.NEXT_OFFSET] = header.next_offset
        return fields.DONE

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and self._transactions.is_aborted(
            header.producer_id, header.last_offset
        )

    def _ends_nothing(self, header: BatchHeader, batch: memoryview) -> bool:
        """Tell whether a control batch may go for all that is in the log; an empty one may."""
        if not header.record_count:
            return True
        key = decode_batch(batch, INT32_MAX, check_crc=False).records[0].key
        control_type = control_type_of(key)
        return self._transactions.ends_nothing(header.producer_id, header.last_offset, control_type)

    # -- the second pass ----------------------------------------------------------------------

    def _with_indexes(self, source: Source) -> Source:
        sizes = []
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            size_bytes = 0  # Never saved: it is made anew anyway.
            with suppress(FileNotFoundError):
                name = segment_file(source.base_offset, suffix)
                size_bytes = self._disk.size_of(f"{self._plan.directory}/{name}")
            sizes.append(size_bytes)
        return source._replace(offset_index_bytes=sizes[0], time_index_bytes=sizes[1])

    def _clean(self, group: list[Source]) -> Iterator[int | Replacement]:
        plan = self._plan
        self._ends = {
            *plan.last_data_offsets,
            plan.first_uncleanable_offset - 1,
            group[-1].end_offset - 1,
        }
        self._retained = array("q", sorted(self._ends))
        self._scope[fields.OUT_POSITION] = 0
        interval_bytes = plan.config.index_interval_bytes
        self._target = target = CleanedSegment(self._disk, plan.directory, group, interval_bytes)
        self._transactions.retained = []

        for source in group:
            for moved in self._walk(source, self._filter_chunk):
                yield moved + target.sync_some()
        self._write()
        replacement = target.finish(self._transactions.retained)
        self._target = None
        yield replacement

    def _filter_chunk(self, chunk: memoryview) -> int:
        """Filter whole batches of ``chunk``; return where the first one starts that was not."""
        scope = self._scope
        scope[fields.POSITION] = 0
        while True:
            ended = cleaning.filter_batches(chunk, self._out, self._table, scope, self._retained)
            if ended == fields.FULL:
                if scope[fields.OUT_POSITION] == 0:
                    header = read_header(chunk, scope[fields.POSITION])
                    self._make_room(_room_of(header.size_bytes, header))
                self._write()
            elif ended == fields.SPECIAL:
                position = scope[fields.POSITION]
                header = read_header(chunk, position)
                batch = chunk[position : position + header.size_bytes]
                self._put(self._filter_special(header, batch))
                scope[fields.POSITION] = position + header.size_bytes
            elif ended == fields.CORRUPT:
                raise _corrupt("bad batch in a part that was read before")
            else:
                return scope[fields.POSITION]

    def _filter_special(self, header: BatchHeader, batch: memoryview) -> memoryview | bytes:
        """Return what stays of a batch that is compressed, transactional or a marker."""
        if header.is_control:
            return self._filter_control(header, batch)
        if self._is_aborted(header):
            return _emptied(header) if header.last_offset in self._ends else b""
        now_ms, config = self._plan.now_ms, self._plan.config
        records = _open(header, batch)
        scope = self._scope
        has_horizon = header.has_delete_horizon
        scope[fields.SHIFT] = 0
        scope[fields.KEEPS_TOMBSTONES] = not has_horizon or now_ms < header.base_timestamp
        kept = bytearray(_room_of(len(records), header))
        count = header.record_count
        size = self._filter_records(header, records, kept)
        base_timestamp = header.base_timestamp
        if not scope[fields.KEPT_COUNT]:
            return _emptied(header) if header.last_offset in self._ends else b""
        if scope[fields.KEPT_TOMBSTONES] and not has_horizon:
            base_timestamp = now_ms + config.delete_retention_ms
            scope[fields.SHIFT] = header.base_timestamp - base_timestamp
            size = self._filter_records(header, records, kept)
        elif scope[fields.KEPT_COUNT] == count:
            return batch
        max_timestamp = header.max_timestamp
        if not header.attributes & TIMESTAMP_TYPE_BIT:
            max_timestamp = base_timestamp + scope[fields.DELTA_MAX]
        payload = compress(header.codec, memoryview(kept)[:size])
        horizon = has_horizon or scope[fields.KEPT_TOMBSTONES] > 0
        return _sealed(
            header._replace(
                attributes=header.attributes | (DELETE_HORIZON_BIT if horizon else 0),
                base_timestamp=base_timestamp,
                max_timestamp=max_timestamp,
                record_count=scope[fields.KEPT_COUNT],
            ),
            payload,
        )

    def _filter_records(
        self, header: BatchHeader, records: "bytes | memoryview", kept: bytearray
    ) -> int:
        size = cleaning.filter_records(
            records, header.record_count, header.base_offset, kept, self._table, self._scope
        )
        if size < 0:
            raise _corrupt(f"bad records in the batch at offset {header.base_offset}")
        return size

    def _filter_control(self, header: BatchHeader, batch: memoryview) -> memoryview | bytes:
        """Return what stays of a marker: all of it until its delete horizon has passed.

        Longer if only it tells a start which epoch its producer has: without records it would not.
        """
        ends_nothing = self._ends_nothing(header, batch)
        now_ms = self._plan.now_ms
        has_horizon = header.has_delete_horizon
        may_go = ends_nothing and has_horizon and header.base_timestamp <= now_ms
        if may_go or not header.record_count:
            if self._plan.marker_epochs.get(header.producer_id) == header.producer_epoch:
                return batch
            return _emptied(header) if header.last_offset in self._ends else b""
        if not ends_nothing or has_horizon:
            return batch
        horizon_ms = now_ms + self._plan.config.delete_retention_ms
        scope = self._scope
        latest, scope[fields.LATEST_OFFSET] = scope[fields.LATEST_OFFSET], -1
        scope[fields.SHIFT] = header.base_timestamp - horizon_ms
        records = batch[HEADER_SIZE_BYTES:]
        kept = bytearray(_room_of(len(records), header))
        size = self._filter_records(header, records, kept)
        scope[fields.LATEST_OFFSET] = latest
        return _sealed(
            header._replace(
                attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=horizon_ms
            ),
            memoryview(kept)[:size],
        )

    def _put(self, batch: memoryview | bytes) -> None:
        """Append ``batch`` to the output, writing what is there when it does not fit."""
        scope = self._scope
        if len(batch) > len(self._out) - scope[fields.OUT_POSITION]:
            self._write()
            self._make_room(len(batch))
        position = scope[fields.OUT_POSITION]
        self._out[position : position + len(batch)] = batch
        scope[fields.OUT_POSITION] = position + len(batch)

    def _make_room(self, size_bytes: int) -> None:
        if size_bytes > len(self._out):
            self._out = bytearray(size_bytes)

    def _write(self) -> None:
        assert self._target is not None, "a group is being cleaned"
        size_bytes, self._scope[fields.OUT_POSITION] = self._scope[fields.OUT_POSITION], 0
        if size_bytes:
            self._target.write(self._out, size_bytes)
            self.written_bytes += size_bytes

    # -- reading ------------------------------------------------------------------------------

    def _walk(self, source: Source, handle: Callable[[memoryview], int]) -> Iterator[int]:
        """Hand the segment to ``handle``, chunk by chunk; yield the bytes moved now and then."""
        path = f"{self._plan.directory}/{segment_file(source.base_offset, LOG_SUFFIX)}"
        file = self._disk.open_read_only(path)
        try:
            position = 0
            before = self._moved_bytes
            while position < source.size_bytes and not self._is_full_in_map():
                wanted = min(len(self._buffer), source.size_bytes - position)
                chunk = memoryview(self._buffer)[:wanted]
                if file.read_into(position, chunk) != wanted:
                    raise _corrupt(f"{path} ends before byte {position + wanted}")
                handled = handle(chunk)
                if not handled and not self._is_full_in_map():
                    self._grow(chunk, source.size_bytes - position, f"{path} at byte {position}")
                self.read_bytes += wanted
                position += handled
                if self._moved_bytes - before >= SLICE_BYTES:
                    yield self._moved_bytes - before
                    before = self._moved_bytes
            yield self._moved_bytes - before
        finally:
            file.close()

    @property
    def _moved_bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    def _is_full_in_map(self) -> bool:
        return self._is_full and self._target is None

    def _grow(self, chunk: memoryview, left: int, where: str) -> None:
        """Make the buffer hold the batch at the start of ``chunk``, which is not all in it."""
        size_bytes = read_size_bytes(chunk) if len(chunk) >= HEADER_SIZE_BYTES else 0
        if not len(chunk) < size_bytes <= left:
            raise _corrupt(f"{where}: a batch of {size_bytes} bytes, {left} are left")
        self._buffer = bytearray(size_bytes)


def _open(header: BatchHeader, batch: memoryview) -> bytes | memoryview:
    return decompress(header.codec, batch[HEADER_SIZE_BYTES:], INT32_MAX)


def _room_of(size_bytes: int, header: BatchHeader) -> int:
    return size_bytes + header.record_count * fields.GROWTH_BYTES


def _emptied(header: BatchHeader) -> bytes:
    """Return the batch without records: offsets, producer, sequence and largest timestamp stay."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return _sealed(
        header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b""
    )


def _sealed(header: BatchHeader, payload: "bytes | memoryview") -> bytes:
    """Return the batch with its length and sum set right."""
    batch = bytearray(HEADER_SIZE_BYTES + len(payload))
    length = len(batch) - LOG_OVERHEAD_BYTES
    HEADER.pack_into(batch, 0, *header._replace(batch_length=length))
    batch[HEADER_SIZE_BYTES:] = payload
    crc = batch_crc(memoryview(batch))
    batch[CRC_POSITION : CRC_POSITION + 4] = crc.to_bytes(4, "big")
    return bytes(batch)


def _corrupt(why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
