"""From a time to a record: segments by their largest timestamp, batches by the index, then records.

The one look-up that opens batches. A generator finds the batches on the loop and hands each out as
a ``BatchSearch``, which needs nothing else and may be run in any thread. Between log.log and
log.segment. Source: Kafka's ListOffsets (KIP-79): the first record in offset order whose timestamp
is at least the one asked for.
"""

from collections.abc import Generator, Sequence
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.log.segment.segment import Segment
from ottla.records.batch import (
    HEADER_SIZE_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    NO_TIMESTAMP,
    TimestampType,
    batch_crc,
    read_header,
)
from ottla.records.compression import decompress
from ottla.records.decode import decode_batches
from ottla.records.time_search import COMPILED, CORRUPT, NONE, find_reaching
from ottla.records.validate import decompressed_bytes_limit

LOOP_BYTES_MAX = 1024 * 1024 if COMPILED else 16 * 1024
"""So much is searched in about a millisecond."""
LOOP_COMPRESSED_BYTES_MAX = 64 * 1024
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class FoundRecord(NamedTuple):
    """A record's timestamp, ms, and offset."""

    timestamp: int
    offset: int


class BatchSearch(NamedTuple):
    """One batch, and what is looked for in it. Pure: any thread may run it."""

    data: bytes
    timestamp: int
    from_offset: int
    decompressed_bytes_max: int

    def run(self) -> FoundRecord | None:
        """Return the first record that is late enough. Raises KafkaError for a broken batch."""
        return self._search(self.decompressed_bytes_max)

    def run_if_short(self) -> tuple[bool, FoundRecord | None]:
        """Do as ``run`` if that takes a millisecond or so, and tell whether it was done."""
        is_old = self.data[MAGIC_POSITION] < MAGIC_V2
        is_compressed = is_old or read_header(memoryview(self.data)).codec != 0
        if len(self.data) > (LOOP_COMPRESSED_BYTES_MAX if is_compressed else LOOP_BYTES_MAX):
            return False, None
        limit = min(LOOP_BYTES_MAX, self.decompressed_bytes_max)
        try:
            return True, self._search(limit if is_compressed else self.decompressed_bytes_max)
        except KafkaError as error:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE and limit < self.decompressed_bytes_max:
                return False, None
            raise

    def _search(self, decompressed_bytes_max: int) -> FoundRecord | None:
        view = memoryview(self.data)
        if self.data[MAGIC_POSITION] < MAGIC_V2:
            return self._search_old(view, decompressed_bytes_max)
        header = read_header(view)
        if batch_crc(view) != header.crc:
            why = f"batch at offset {header.base_offset}: wrong CRC32C"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
        payload = decompress(header.codec, view[HEADER_SIZE_BYTES:], decompressed_bytes_max)
        is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        least_time = _INT64_MIN if is_append_time else self.timestamp - header.base_timestamp
        if header.record_count < 0 or least_time > _INT64_MAX:
            return None
        least_offset = max(self.from_offset - header.base_offset, _INT64_MIN)
        state, offset, delta = find_reaching(
            payload, header.record_count, max(least_time, _INT64_MIN), least_offset
        )
        if state == CORRUPT:
            why = f"batch at offset {header.base_offset}: its records do not fit it"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
        if state == NONE:
            return None
        timestamp = header.max_timestamp if is_append_time else header.base_timestamp + delta
        return FoundRecord(timestamp, header.base_offset + offset)

    def _search_old(self, view: memoryview, decompressed_bytes_max: int) -> FoundRecord | None:
        for _, records in decode_batches(view, decompressed_bytes_max):
            for record in records:
                if record.timestamp >= self.timestamp and record.offset >= self.from_offset:
                    return FoundRecord(record.timestamp, record.offset)
        return None


Search = Generator[BatchSearch | None, FoundRecord | None, FoundRecord | None]
"""Hands out batches, is sent what was found in each, and returns what it looked for.

Hands out None when it has read a cold segment's end: many of them take long.
"""


def search_reaching(
    segments: Sequence[Segment],
    timestamp: int | None,
    from_offset: int,
    max_message_bytes: int,
) -> Search:
    """Search for the first record at or after ``from_offset`` with a timestamp >= ``timestamp``.

    None stands for the largest timestamp there is. ``segments`` ascend. Each batch opened
    decompresses to what one of ``max_message_bytes`` may. Blocks on cold segments. Raises
    KafkaError where the log cannot be read.
    """
    limit = decompressed_bytes_limit(max_message_bytes)
    if timestamp is None:
        for segment in segments:
            if segment.latest is None:
                segment.largest_timestamp()
                yield None
        timestamp = max(segment.largest_timestamp().timestamp for segment in segments)
        if timestamp == NO_TIMESTAMP:
            return None
    for segment in segments:
        if segment.latest is None:
            segment.largest_timestamp()
            yield None
        if segment.largest_timestamp().timestamp < timestamp:
            continue
        batch = segment.first_batch_reaching(timestamp, from_offset)
        while batch is not None:
            data = segment.file.read_at(batch.position, batch.size_bytes)
            found = yield BatchSearch(data, timestamp, from_offset, limit)
            if found is not None:
                return found
            batch = segment.first_batch_reaching(timestamp, batch.last_offset + 1)
    return None


def run_here(search: Search) -> FoundRecord | None:
    """Run a search to its end on this thread, however long that takes."""
    found: FoundRecord | None = None
    try:
        batch = next(search)
        while True:
            batch = search.send(None if batch is None else batch.run())
    except StopIteration as end:
        found = end.value
    return found
