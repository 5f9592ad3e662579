"""Records that say who they are: made, and read back.

Each record carries a header with its writer, its number and the id of the topic that it was sent
to, so that a tombstone has an identity, too, and a record of a dead topic is known for what it is.
Its value follows from writer and number. Knows nothing of brokers.
"""

import gzip
import struct
import uuid
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tools.wire_client import batch, batches, read_varint, records_of, varint

CONTROL = 32
TRANSACTIONAL = 16
APPEND_TIME = 8
GZIP = 1
ABORT = b"\0\0"
CODECS = 7
IDENTITY = struct.Struct(">IQ16s")
"""Writer, number, topic id (zeros: sent by name)."""
HEADER_KEY = b"i"
KEY_COUNT = 20

RecordId = tuple[int, int]
"""Writer and number."""


class Found(NamedTuple):
    """One record as it was read."""

    offset: int
    record: RecordId
    topic_id: uuid.UUID
    """Of the topic that it was sent to; the zero one: sent by name."""
    key: bytes | None
    is_tombstone: bool
    is_whole: bool
    """Its key and value are those that were sent."""


class ReadBatch(NamedTuple):
    """One batch as it was read."""

    base_offset: int
    end_offset: int
    """Exclusive."""
    producer_id: int
    is_transactional: bool
    is_control: bool
    is_abort: bool
    """It is the marker of an aborted transaction."""
    records: list[Found]
    """Of a marker: none."""
    append_time_ms: int | None = None
    """When the broker says that it appended it; None: it tells of its records' own times."""


def key_of(writer: int, number: int) -> bytes:
    """Return the key of a record; writers share keys."""
    return b"key-%d" % ((number * 7 + writer) % KEY_COUNT)


def is_tombstone(writer: int, number: int) -> bool:
    """Tell whether this record of a compacted topic is one."""
    return (number * 13 + writer) % 9 == 0


def make_value(writer: int, number: int) -> bytes:
    """Return a value that names its writer and number and carries its CRC; up to 250 bytes."""
    piece = struct.pack(">IQ", writer, number)
    body = piece * (1 + (writer * 31 + number * 37) % 20)
    return body + struct.pack(">I", zlib.crc32(body))


def _record(delta: int, key: bytes, value: bytes | None, identity: bytes) -> bytes:
    body = b"\0\0" + varint(delta) + varint(len(key)) + key
    body += varint(-1) if value is None else varint(len(value)) + value
    body += varint(1) + varint(len(HEADER_KEY)) + HEADER_KEY + varint(len(identity)) + identity
    return varint(len(body)) + body


def make_batch(
    ids: Sequence[RecordId],
    topic_id: uuid.UUID,
    *,
    has_tombstones: bool,
    timestamp_ms: int,
    is_compressed: bool = False,
    **fields: Any,
) -> bytes:
    """Return a batch of these records."""
    payload = b"".join(
        _record(
            delta,
            key_of(*one),
            None if has_tombstones and is_tombstone(*one) else make_value(*one),
            IDENTITY.pack(*one, topic_id.bytes),
        )
        for delta, one in enumerate(ids)
    )
    if is_compressed:
        payload = gzip.compress(payload, 1, mtime=0)
        fields["attributes"] = fields.get("attributes", 0) | GZIP
    return batch(
        [None] * len(ids),
        payload=payload,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        **fields,
    )


def parse(data: bytes | None) -> list[ReadBatch]:
    """Return the whole batches of ``data``. Raises ValueError for what cannot be one."""
    found = []
    for header in batches(data):
        if not header["crc_ok"]:
            raise ValueError(f"bad checksum at offset {header['base_offset']}")
        attributes = header["attributes"]
        is_control = bool(attributes & CONTROL)
        is_abort = False
        if is_control and header["count"]:
            _, key, _ = records_of(header)[0]
            is_abort = (key or b"")[2:4] == ABORT
        found.append(
            ReadBatch(
                header["base_offset"],
                header["base_offset"] + header["last_offset_delta"] + 1,
                header["producer_id"],
                bool(attributes & TRANSACTIONAL),
                is_control,
                is_abort,
                []
                if is_control
                else list(
                    _records(
                        header["base_offset"],
                        header["count"],
                        attributes & CODECS == GZIP,
                        header["payload"],
                    )
                ),
                header["max_timestamp"] if attributes & APPEND_TIME else None,
            )
        )
    return found


def committed(read: Iterable[ReadBatch], aborted: Iterable[tuple[int, int]]) -> list[Found]:
    """Return the records that a reader of committed records keeps of one answer of Fetch.

    ``aborted``: (first offset, producer id) of the answer's aborted transactions.
    """
    waiting = sorted(aborted)
    left_out: set[int] = set()
    kept: list[Found] = []
    for one in read:
        while waiting and waiting[0][0] < one.end_offset:
            left_out.add(waiting.pop(0)[1])
        if one.is_abort:
            left_out.discard(one.producer_id)
        elif not one.is_transactional or one.producer_id not in left_out:
            kept += one.records
    return kept


@lru_cache(maxsize=4096)
def _records(
    base_offset: int, record_count: int, is_compressed: bool, payload: bytes
) -> tuple[Found, ...]:
    """Return the records of one batch. Most are read many times: by clients, and by judges."""
    if is_compressed:
        payload = gzip.decompress(payload)
    found = []
    position = 0
    for _ in range(record_count):
        _, position = read_varint(payload, position)
        position += 1
        _, position = read_varint(payload, position)
        delta, position = read_varint(payload, position)
        key, position = _bytes(payload, position)
        value, position = _bytes(payload, position)
        count, position = read_varint(payload, position)
        if count != 1:
            raise ValueError(f"{count} headers at offset {base_offset + delta}")
        _, position = _bytes(payload, position)
        identity, position = _bytes(payload, position)
        writer, number, topic_id = IDENTITY.unpack(identity or b"")
        found.append(
            Found(
                base_offset + delta,
                (writer, number),
                uuid.UUID(bytes=topic_id),
                key,
                value is None,
                key == key_of(writer, number)
                and (value is None or value == make_value(writer, number)),
            )
        )
    return tuple(found)


def _bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    if size < 0:
        return None, position
    return data[position : position + size], position + size
