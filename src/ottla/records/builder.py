"""Build a RecordBatch v2 from records, one by one: for clients, coordinators, the CLI and tests.

Where many records are written from columns, the kernel does it; this is the plain form. Knows
nothing of partitions or of when a batch is full. Grammar: see ``ottla.records.batch`` and
``ottla.records.kernels``.
"""

from collections.abc import Sequence
from operator import itemgetter
from struct import Struct

from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
)
from ottla.records.compression import Codec, compress
from ottla.records.crc import crc32c
from ottla.records.record import Record
from ottla.records.rows import PlainRow, pack_rows
from ottla.records.varint import append_varint

KeyAndValue = tuple[bytes, bytes | None]
_TIME = itemgetter(0)
_TO_CRC = Struct(">qiibI")
_BEHIND_CRC = Struct(">hiqqqhii")
"""The two parts of ``HEADER``: what the sum does not count, and what it does."""


def build_batch(  # noqa: PLR0913 - the header's fields, all keyword-only
    records: Sequence[Record],
    *,
    base_offset: int | None = 0,
    codec: int = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Return a batch of ``records`` (at least one), its sum set.

    ``base_offset`` numbers the records from there on, whatever offsets they carry; None keeps
    their own, which ascend and may leave gaps. ``level`` is the codec's, None its default. The
    timestamp type is the argument's, not the records'; the largest timestamp is the batch's.
    """
    assert records, "a batch has at least one record"
    first_offset = records[0].offset if base_offset is None else base_offset
    base_timestamp = records[0].timestamp
    payload = bytearray()
    offset_delta = 0
    for index, record in enumerate(records):
        offset_delta = record.offset - first_offset if base_offset is None else index
        body = _record_body(record, record.timestamp - base_timestamp, offset_delta)
        append_varint(payload, len(body))
        payload += body
    return _sealed(
        payload,
        (first_offset, offset_delta, base_timestamp, max(each.timestamp for each in records)),
        (producer_id, producer_epoch, base_sequence, len(records)),
        codec,
        level,
        leader_epoch=leader_epoch,
        attributes=_attributes(codec, timestamp_type, transactional=transactional, control=control),
    )


def build_batch_of_rows(
    rows: list[PlainRow],
    *,
    codec: int = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytearray:
    """Return a batch of ``rows`` (at least one), its sum set: for producers of many records."""
    count = len(rows)
    return _sealed(
        pack_rows(rows),
        (0, count - 1, rows[0][0], max(map(_TIME, rows))),
        (producer_id, producer_epoch, base_sequence, count),
        codec,
        level,
        attributes=codec | (TRANSACTIONAL_BIT if transactional else 0),
    )


def _sealed(
    payload: bytearray,
    numbers: tuple[int, int, int, int],
    producer: tuple[int, int, int, int],
    codec: int,
    level: int | None,
    *,
    attributes: int,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Compress ``payload``, put the header in front of it and sum.

    ``numbers``: first offset, last offset's delta, first and largest time. ``producer``: id, epoch,
    first sequence number, number of records.
    """
    compressed = compress(codec, payload, level)
    first_offset, *behind = numbers
    batch = bytearray(HEADER_SIZE_BYTES)
    HEADER.pack_into(
        batch,
        0,
        first_offset,
        HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES + len(compressed),
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        *behind,
        *producer,
    )
    batch += compressed
    crc = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])
    batch[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return batch


def build_plain_batch(
    records: Sequence[KeyAndValue],
    timestamp: int,
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> tuple[bytearray, BatchHeader]:
    """Return a batch of ``records`` (at least one), its sum set, and its header.

    As ``build_batch`` without a codec, all records of one time, in a fifth of the time: what a
    coordinator writes for each of its requests. With a producer id it is part of a transaction.
    """
    count = len(records)
    attributes = 0 if producer_id == NO_PRODUCER_ID else TRANSACTIONAL_BIT
    fields = (
        *(attributes, count - 1, timestamp, timestamp),
        *(producer_id, producer_epoch, NO_SEQUENCE, count),
    )
    parts = [_BEHIND_CRC.pack(*fields)]
    sizes = (-1, -1)
    key_length = value_length = b""
    fixed_bytes = 0
    for index, (key, value) in enumerate(records):
        data = b"" if value is None else value
        if sizes != (len(key), -1 if value is None else len(data)):  # Mostly those of the first.
            sizes = len(key), -1 if value is None else len(data)
            key_length = _varint(sizes[0])
            value_length = _NULL_LENGTH if value is None else _varint(sizes[1])
            fixed_bytes = 3 + len(key_length) + len(key) + len(value_length) + len(data)
        start = _varint(index)
        size = _varint(fixed_bytes + len(start))
        parts += (size, b"\0\0", start, key_length, key, value_length, data, b"\0")
    summed = b"".join(parts)
    crc = crc32c(summed)
    length = ATTRIBUTES_POSITION - LOG_OVERHEAD_BYTES + len(summed)
    batch = bytearray(_TO_CRC.pack(0, length, NO_LEADER_EPOCH, MAGIC_V2, crc)) + summed
    return batch, BatchHeader(0, length, NO_LEADER_EPOCH, MAGIC_V2, crc, *fields)


def _varint(value: int) -> bytes:
    """Return ``value`` >= 0 as records carry it."""
    return _VARINTS[value] if value < _VARINT_COUNT else _made_varint(value)


def _made_varint(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


_VARINT_COUNT = 512
_VARINTS = tuple(map(_made_varint, range(_VARINT_COUNT)))
"""The varints of most lengths."""
_NULL_LENGTH = _made_varint(-1)


def _attributes(
    codec: int, timestamp_type: TimestampType, *, transactional: bool, control: bool
) -> int:
    return (
        codec
        | (TIMESTAMP_TYPE_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )


def _record_body(record: Record, timestamp_delta: int, offset_delta: int) -> bytearray:
    """Return the record without its length: attributes (no bit is used), deltas, fields."""
    body = bytearray(1)
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    append_varint(body, len(record.headers))
    for name, value in record.headers:
        _append_bytes(body, name.encode())
        _append_bytes(body, value)
    return body


def _append_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        append_varint(out, -1)
    else:
        append_varint(out, len(data))
        out += data
