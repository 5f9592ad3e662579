"""Fetched bytes to columns, batch by batch: what the kernel leaves, and buffers used again.

Stands around ``columns``, which has the loops: decompresses batches, leaves out those of aborted
transactions, reads the formats before v2, and hands over full buffers. Knows nothing of Arrow,
Spark or the network; ``ottla.spark.reading.columns`` wraps what comes out.

It reads of a batch what Kafka's consumer reads. Source: Kafka's documentation of
isolation.level; KIP-98.
"""

import struct
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NoReturn

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE_BYTES,
    TRANSACTIONAL_BIT,
    read_header,
)
from ottla.records.builder import build_batch
from ottla.records.columnar import columns as kernel
from ottla.records.columnar import scope as fields
from ottla.records.columnar.buffers import BufferPool, BufferSet, Columns
from ottla.records.columnar.scope import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    END_OFFSET,
    JUDGE,
    LAST_DELTA,
    LEFT,
    MAX_TIMESTAMP,
    NEXT_OFFSET,
    NO_TIME_BIT,
    POSITION,
    PRODUCER_ID,
    ROWS,
    SIZE_BYTES,
    START_OFFSET,
)
from ottla.records.compression import decompress
from ottla.records.control import ControlType, control_type_of
from ottla.records.decode import decode_batch
from ottla.records.message_set import decode_message_set

DECOMPRESSED_BYTES_MAX = 512 << 20
"""What one batch may decompress to: a bound against bombs, far above honest batches."""
TARGET_BYTES = 4 << 20
"""From this size of keys, values and headers on, or ROWS_MAX, columns are handed over."""
ROWS_MAX = 1 << 16
SMALL_FETCH_BYTES = 128 << 10
SMALL_BUFFER_BYTES = 512 << 10
"""The buffers for a small fetch: large ones would cost more to make than it has records."""


Decompress = Callable[[int, memoryview, int], "bytes | memoryview"]
"""As ``ottla.records.compression.decompress``; the result is used until the next call only."""


class ColumnDecoder:
    """Makes columns of fetched batches, in buffers that it uses again and again.

    ``wanted`` is a sum of the kernel's KEY, VALUE, OFFSET, TIMESTAMP, TIMESTAMP_TYPE and HEADERS.
    ``decompress`` may be another one that is quicker where it runs.
    Rows gather over several calls of ``decode``, until there are enough of them or ``rest`` is
    called. Not for use from two threads at once.
    """

    def __init__(
        self,
        wanted: int,
        *,
        target_bytes: int = TARGET_BYTES,
        rows_max: int = ROWS_MAX,
        decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
        decompress: Decompress = decompress,
    ) -> None:
        self.next_offset = 0
        """Behind the last batch that was decoded, or the start of the call where there was none."""
        self._wanted = wanted
        self._target_bytes = target_bytes
        self._rows_max = rows_max
        self._decompressed_bytes_max = decompressed_bytes_max
        self._decompress = decompress
        self._scope = array("q", bytes(8 * fields.SCOPE_SIZE))
        self._scope[fields.WANTED] = wanted
        self._scope[fields.NAMES_PLAIN] = 1
        self._pool = BufferPool(wanted, self._scope)
        self._set: BufferSet | None = None
        self._waiting: list[tuple[int, int]] = []
        self._aborted: set[int] = set()

    @property
    def has_grown(self) -> bool:
        """Whether a record did not fit into buffers of ``target_bytes``: they are larger now."""
        return self._pool.data_bytes > self._target_bytes

    def decode(
        self,
        records: memoryview,
        start: int,
        end: int,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> Iterator[Columns]:
        """Yield columns as they fill up with the records of ``start <= offset < end``.

        ``records`` are batches as a fetch gave them, the last perhaps cut short. ``aborted``
        (producer id, first offset) comes with a read of committed records. Exhaust the iterator;
        then ``next_offset`` is where to read on. Raises KafkaError CORRUPT_MESSAGE, with the
        batch's offset, and UNSUPPORTED_COMPRESSION_TYPE.
        """
        scope = self._scope
        self._waiting = sorted(aborted, key=lambda each: each[1], reverse=True)
        self._aborted = set()
        self._size_buffers(len(records), end - start)
        scope[START_OFFSET], scope[END_OFFSET] = start, end
        scope[JUDGE] = bool(aborted)
        scope[POSITION] = scope[SIZE_BYTES] = scope[LEFT] = 0
        scope[NEXT_OFFSET] = self.next_offset = start
        while True:
            ended = self._filler().fill(records)
            if ended == fields.FULL:
                yield from self._full()
            elif ended == fields.SPECIAL:
                yield from self._special(records)
            elif ended == fields.OLD:
                if not (yield from self._old(records)):
                    break
            elif ended < 0:
                self._refuse(ended)
            else:
                break
        self.next_offset = scope[NEXT_OFFSET]

    def rest(self) -> Columns | None:
        """Return the rows that were not handed over yet; None without any."""
        if self._set is None or not self._scope[ROWS]:
            return None
        filled = self._set.take()
        self._set = None
        return filled

    # -- batches that the kernel leaves ------------------------------------------------------------

    def _special(self, records: memoryview) -> Iterator[Columns]:
        scope = self._scope
        position = scope[POSITION]
        batch = records[position : position + scope[SIZE_BYTES]]
        last_offset = scope[BASE_OFFSET] + scope[LAST_DELTA]
        if self._is_left_out(batch) or last_offset < scope[START_OFFSET]:
            self._pass_over()
            return
        codec = scope[ATTRIBUTES] & CODEC_MASK
        limit = self._decompressed_bytes_max
        try:
            payload = self._decompress(codec, batch[HEADER_SIZE_BYTES:], limit)
        except KafkaError as error:
            raise self._corrupt(error) from error
        yield from self._records(payload)

    def _is_left_out(self, batch: memoryview) -> bool:
        """Tell whether the batch is a marker or aborted, as Kafka's consumer decides it."""
        scope = self._scope
        producer_id = scope[PRODUCER_ID]
        if scope[JUDGE]:
            last_offset = scope[BASE_OFFSET] + scope[LAST_DELTA]
            while self._waiting and self._waiting[-1][1] <= last_offset:
                self._aborted.add(self._waiting.pop()[0])
        if scope[ATTRIBUTES] & CONTROL_BIT:
            if producer_id in self._aborted and self._is_abort(batch):
                self._aborted.discard(producer_id)
            return True
        return bool(scope[ATTRIBUTES] & TRANSACTIONAL_BIT) and producer_id in self._aborted

    def _is_abort(self, batch: memoryview) -> bool:
        try:
            marker = decode_batch(batch, self._decompressed_bytes_max, check_crc=False)
            return any(control_type_of(one.key) is ControlType.ABORT for one in marker.records)
        except KafkaError as error:
            raise self._corrupt(error) from error

    def _old(self, records: memoryview) -> Generator[Columns, None, bool]:
        """Take an entry of format 0 or 1; return whether the range may go on behind it."""
        scope = self._scope
        position = scope[POSITION]
        last_offset = scope[BASE_OFFSET]  # that is where these formats have it
        scope[LAST_DELTA] = 0
        if last_offset < scope[START_OFFSET]:
            self._pass_over()
            return True
        try:
            entry = decode_message_set(
                records[position : position + scope[SIZE_BYTES]], self._decompressed_bytes_max
            )
            first_offset = entry.records[0].offset
            if first_offset >= scope[END_OFFSET]:
                return False
            batch = build_batch(
                entry.records, base_offset=None, timestamp_type=entry.header.timestamp_type
            )
        except KafkaError as error:
            raise self._corrupt(error) from error
        except (struct.error, ValueError, OverflowError) as error:  # numbers that no log holds
            raise self._corrupt(KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))) from error
        header = read_header(batch)
        scope[BASE_OFFSET], scope[LAST_DELTA] = header.base_offset, header.last_offset_delta
        scope[ATTRIBUTES], scope[COUNT] = header.attributes, header.record_count
        if entry.header.magic == 0:
            scope[ATTRIBUTES] |= NO_TIME_BIT
        scope[BASE_TIMESTAMP], scope[MAX_TIMESTAMP] = header.base_timestamp, header.max_timestamp
        yield from self._records(memoryview(batch)[HEADER_SIZE_BYTES:])
        return True

    def _records(self, payload: "bytes | memoryview") -> Iterator[Columns]:
        scope = self._scope
        scope[fields.AT], scope[LEFT] = 0, scope[COUNT]
        scope[fields.RECORDS_STOP] = len(payload)
        while scope[SIZE_BYTES]:
            ended = self._filler().fill_records(payload)
            if ended == fields.FULL:
                yield from self._full()
            elif ended < 0:
                self._refuse(ended)

    def _pass_over(self) -> None:
        scope = self._scope
        last_offset = scope[BASE_OFFSET] + scope[LAST_DELTA]
        scope[POSITION] += scope[SIZE_BYTES]
        scope[SIZE_BYTES] = 0
        scope[NEXT_OFFSET] = max(scope[NEXT_OFFSET], last_offset + 1)

    # -- buffers -----------------------------------------------------------------------------------

    def _size_buffers(self, fetched_bytes: int, offsets: int) -> None:
        """Estimate what the coming rows need. A set that is in use goes on being used."""
        rows = min(self._rows_max, max(offsets, 1))
        data_bytes = self._target_bytes
        if fetched_bytes <= SMALL_FETCH_BYTES:
            data_bytes = min(data_bytes, SMALL_BUFFER_BYTES)
            rows = min(rows, max(fetched_bytes // kernel.RECORD_BYTES_MIN, 64))
        self._pool.expect(rows, data_bytes)
        if not self._scope[ROWS]:
            self._set = None

    def _filler(self) -> kernel.Filler:
        if self._set is None:
            self._set = self._pool.free_set()
            self._scope[fields.ROWS_MAX] = self._set.rows
            self._scope[fields.TARGET_BYTES] = self._target_bytes
        return self._set.filler

    def _full(self) -> Iterator[Columns]:
        """Hand over the rows there are; without any, a record is larger than the buffers."""
        filled = self.rest()
        if filled is not None:
            yield filled
        else:
            self._pool.expect_record(self._scope[fields.RECORD_BYTES])
            self._set = None

    # -- errors ------------------------------------------------------------------------------------

    def _refuse(self, reason: int) -> NoReturn:
        why = fields.REASONS[reason]
        raise self._corrupt(KafkaError(ErrorCode.CORRUPT_MESSAGE, why))

    def _corrupt(self, error: KafkaError) -> KafkaError:
        """Return the error with the batch's offset; what cannot be read is corrupt."""
        code = ErrorCode.CORRUPT_MESSAGE
        if error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
            code = error.code
        return KafkaError(code, f"batch at offset {self._scope[BASE_OFFSET]}: {error.why}")
