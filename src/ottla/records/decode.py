"""Records out of fetched or stored bytes, one object each: for clients, the CLI and tests.

Reads every format a log may hold: RecordBatch v2 here, MessageSet v0 and v1 by
``ottla.records.message_set``. Not for hot paths (microseconds a record). Knows nothing of offsets
wanted or of transactions: the caller drops records before its offset, control batches and aborted
ones. Grammar: see ``ottla.records.batch`` and ``ottla.records.kernels``.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    BatchHeader,
    TimestampType,
    batch_crc,
    read_header,
    read_size_bytes,
)
from ottla.records.compression import decompress
from ottla.records.kernels import split_records
from ottla.records.message_set import decode_message_set
from ottla.records.record import DecodedBatch, Record
from ottla.records.rows import FoundRow, unpack_rows
from ottla.records.varint import read_varint

if TYPE_CHECKING:
    from typing_extensions import Buffer

_RECORD_BYTES_MIN = 7
DecodedRows = tuple[BatchHeader, list[FoundRow]]


def decode_batches(
    buffer: "Buffer", decompressed_bytes_max: int, *, check_crc: bool = True
) -> Iterator[DecodedBatch]:
    """Yield each complete batch of ``buffer``; a partial one at the end is left out.

    Copies keys and values, so that they outlive the buffer. Each batch decompresses to at most
    ``decompressed_bytes_max`` bytes. Raises ``KafkaError``: CORRUPT_MESSAGE for a wrong length,
    magic or sum and for records that do not fit their batch, and those of ``decompress``.
    """
    for magic, entry in whole_batches(buffer):
        yield decode_entry(magic, entry, decompressed_bytes_max, check_crc=check_crc)


def decode_entry(
    magic: int, entry: memoryview, decompressed_bytes_max: int, *, check_crc: bool = True
) -> DecodedBatch:
    """Decode one of ``whole_batches``; raises as ``decode_batches``."""
    if magic == MAGIC_V2:
        return decode_batch(entry, decompressed_bytes_max, check_crc=check_crc)
    return decode_message_set(entry, decompressed_bytes_max, check_crc=check_crc)


def decode_keys_and_values(
    buffer: "Buffer", decompressed_bytes_max: int
) -> Iterator[tuple[BatchHeader, list[tuple[int, bytes | None, bytes | None]]]]:
    """Yield the header of each batch, and its records as (offset, key, value), as the above does.

    For readers of whole logs: several times as fast, if the kernel is compiled.
    """
    for magic, entry in whole_batches(buffer):
        if magic == MAGIC_V2:
            header, payload = _opened(entry, decompressed_bytes_max, check_crc=True)
            data = bytes(payload)
            found = split_records(data, header.record_count, header.base_offset)
            if found is None:
                records = _decode_whole(memoryview(data), header)
            else:
                yield header, found
                continue
        else:
            header, records = decode_message_set(entry, decompressed_bytes_max)
        yield header, [(record.offset, record.key, record.value) for record in records]


def decode_rows(
    magic: int,
    entry: memoryview,
    decompressed_bytes_max: int,
    may_hold: Callable[[bytes], bool] | None = None,
) -> DecodedRows:
    """Return one of ``whole_batches`` as its header and plain tuples; raises as ``decode_batches``.

    For consumers of many small records. ``may_hold`` is given the decompressed records of a batch
    in one piece; False: no row of it is wanted, and it is not taken apart.
    """
    if magic == MAGIC_V2:
        header, payload = _opened(entry, decompressed_bytes_max, check_crc=True)
        data = bytes(payload)
        if may_hold is not None and not header.is_control and not may_hold(data):
            return header, []
        is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        found = unpack_rows(
            data,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if is_append_time else -1,
        )
        if found is not None:
            return header, found
        records = _decode_whole(memoryview(data), header)
    else:
        header, records = decode_message_set(entry, decompressed_bytes_max)
    return header, [(one.offset, one.timestamp, one.key, one.value, one.headers) for one in records]


def whole_batches(buffer: "Buffer") -> Iterator[tuple[int, memoryview]]:
    """Yield magic and bytes of each complete batch, looking at nothing else in it.

    Raises KafkaError (CORRUPT_MESSAGE) where it cannot tell where the next one begins.
    """
    view = memoryview(buffer)
    position = 0
    while len(view) - position > MAGIC_POSITION:
        size = read_size_bytes(view, position)
        magic = view[position + MAGIC_POSITION]
        if size <= MAGIC_POSITION or magic > MAGIC_V2:
            why = f"batch at byte {position}: length {size - LOG_OVERHEAD_BYTES}, magic {magic}"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
        if size > len(view) - position:
            return
        yield magic, view[position : position + size]
        position += size


def decode_batch(
    view: memoryview, decompressed_bytes_max: int, *, check_crc: bool = True
) -> DecodedBatch:
    """Decode the one RecordBatch v2 that fills ``view``; raises as ``decode_batches``."""
    header, payload = _opened(view, decompressed_bytes_max, check_crc=check_crc)
    return DecodedBatch(header, _decode_whole(payload, header))


def iterate_records(view: memoryview, decompressed_bytes_max: int) -> Iterator[Record]:
    """Yield the records of a RecordBatch v2 one by one; raises as ``decode_batches``.

    For callers that need a few of many: a batch of a megabyte may hold a million records.
    """
    header, payload = _opened(view, decompressed_bytes_max, check_crc=True)
    try:
        yield from _decode_records(payload, header)
    except IndexError as error:
        why = f"batch at offset {header.base_offset}: it ends inside a record"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, why) from error


def _opened(
    view: memoryview, decompressed_bytes_max: int, *, check_crc: bool
) -> tuple[BatchHeader, memoryview]:
    """Return the header and the decompressed records of a batch."""
    if len(view) < HEADER_SIZE_BYTES:
        why = f"batch length {len(view) - LOG_OVERHEAD_BYTES} is less than {BATCH_LENGTH_MIN}"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
    header = read_header(view)
    if check_crc and batch_crc(view) != header.crc:
        why = f"batch at offset {header.base_offset}: wrong CRC32C"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
    records = decompress(header.codec, view[HEADER_SIZE_BYTES:], decompressed_bytes_max)
    return header, memoryview(records)


def _decode_whole(payload: memoryview, header: BatchHeader) -> list[Record]:
    try:
        return list(_decode_records(payload, header))
    except IndexError as error:
        why = f"batch at offset {header.base_offset}: it ends inside a record"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, why) from error


def _decode_records(payload: memoryview, header: BatchHeader) -> Iterator[Record]:
    if not 0 <= header.record_count <= len(payload) // _RECORD_BYTES_MIN:
        raise _corrupt(header, f"{header.record_count} records in {len(payload)} bytes")
    timestamp_type = header.timestamp_type
    log_append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
    position = 0
    for _ in range(header.record_count):
        length, position = read_varint(payload, position)
        end = position + length
        if length < 0 or end > len(payload):
            raise _corrupt(header, f"record of {length} bytes")
        delta, position = read_varint(payload, position + 1)
        timestamp = header.max_timestamp if log_append_time else header.base_timestamp + delta
        delta, position = read_varint(payload, position)
        key, position = _read_bytes(payload, position)
        value, position = _read_bytes(payload, position)
        headers, position = _read_headers(payload, position, end)
        if position != end:
            raise _corrupt(header, f"a record's fields end at {position}, the record at {end}")
        offset = header.base_offset + delta
        yield Record(offset, timestamp, timestamp_type, key, value, headers)
    if position != len(payload):
        raise _corrupt(header, f"{len(payload) - position} bytes after the last record")


def _read_headers(
    payload: memoryview, position: int, end: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = read_varint(payload, position)
    if count == 0:
        return (), position
    if not 0 < count <= end - position:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"record with {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_bytes(payload, position)
        value, position = _read_bytes(payload, position)
        if name is None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "header without a name")
        headers.append((name.decode("utf-8", "replace"), value))
    return tuple(headers), position


def _read_bytes(payload: memoryview, position: int) -> tuple[bytes | None, int]:
    """Read a length and as many bytes; a negative length is null, as Java's clients have it."""
    length, position = read_varint(payload, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(payload):
        raise IndexError(end)
    return bytes(payload[position:end]), end


def _corrupt(header: BatchHeader, why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batch at offset {header.base_offset}: {why}")
