"""MessageSet v0 and v1, the formats before Kafka 0.11: read them, and write them anew as v2.

Nobody may produce them any more, but a log directory that Kafka wrote may hold them. Source:
Kafka's documentation, "Old Message Format"; KIP-31 (relative offsets), KIP-32 (timestamps),
KAFKA-3160 (lz4 header). Grammar, big-endian:

    message_set  = entry*
    entry        = offset      int64
                   size        int32    bytes after this field
                   crc         uint32   CRC-32 (zlib's) of everything after it
                   magic       int8     0 or 1
                   attributes  int8     bits 0-2 codec, bit 3 timestamp type (v1)
                   timestamp   int64    v1 only
                   key         int32 length (-1: null), bytes
                   value       int32 length (-1: null), bytes

With a codec, the entry is a wrapper: its value is a compressed message set of the same magic, and
its offset is that of the last entry inside. Offsets inside are absolute in v0, relative in v1.
"""

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import (
    CODEC_MASK,
    LOG_OVERHEAD_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    TimestampType,
    read_size_bytes,
)
from ottla.records.builder import build_batch
from ottla.records.compression import Codec, decompress
from ottla.records.record import DecodedBatch, Record

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PREFIX = Struct(">qiIbb")
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
_CRC_END = 16
_SIZE_MIN_V0 = _PREFIX.size + 2 * _LENGTH.size
_SIZE_MIN_V1 = _SIZE_MIN_V0 + _TIMESTAMP.size


class _Entry(NamedTuple):
    offset: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: memoryview | None


def decode_message_set(
    view: memoryview, decompressed_bytes_max: int, *, check_crc: bool = True
) -> DecodedBatch:
    """Decode the one entry, plain or wrapper, that fills ``view``, with absolute offsets.

    Raises ``KafkaError``: CORRUPT_MESSAGE for what cannot be read or has a wrong sum, and those
    of ``decompress``.
    """
    entry = _read_entry(view, check_crc=check_crc)
    if entry.attributes & CODEC_MASK:
        records = _unwrap(entry, decompressed_bytes_max, check_crc=check_crc)
    else:
        records = [_record(entry, entry.offset, entry.timestamp, _timestamp_type(entry))]
    last_offset_delta = entry.offset - records[0].offset
    header = BatchHeader(
        base_offset=records[0].offset,
        batch_length=len(view) - LOG_OVERHEAD_BYTES,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=entry.magic,
        crc=entry.crc,
        attributes=entry.attributes
        & (CODEC_MASK | TIMESTAMP_TYPE_BIT if entry.magic else CODEC_MASK),
        last_offset_delta=last_offset_delta,
        base_timestamp=records[0].timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=len(records),
    )
    return DecodedBatch(header, records)


def up_convert(buffer: "Buffer", decompressed_bytes_max: int) -> bytearray:
    """Rewrite the complete v0 and v1 entries of ``buffer`` as v2 batches, one for each.

    Offsets, timestamps, codec and timestamp type stay; a partial entry at the end is left out.
    Raises as ``decode_message_set``.
    """
    converted = bytearray()
    for view in _entries(memoryview(buffer)):
        header, records = decode_message_set(view, decompressed_bytes_max)
        converted += build_batch(
            records, base_offset=None, codec=header.codec, timestamp_type=header.timestamp_type
        )
    return converted


def _entries(view: memoryview) -> Iterator[memoryview]:
    position = 0
    while len(view) - position >= LOG_OVERHEAD_BYTES:
        size = read_size_bytes(view, position)
        if size < _SIZE_MIN_V0:
            raise _corrupt(f"entry of {size} bytes")
        if size > len(view) - position:
            return
        yield view[position : position + size]
        position += size


def _read_entry(view: memoryview, *, check_crc: bool) -> _Entry:
    if len(view) < _SIZE_MIN_V0:
        raise _corrupt(f"entry of {len(view)} bytes")
    offset, _, crc, magic, attributes = _PREFIX.unpack_from(view)
    if magic not in (0, 1) or (magic == 1 and len(view) < _SIZE_MIN_V1):
        raise _corrupt(f"entry of {len(view)} bytes with magic {magic}")
    if check_crc and crc32(view[_CRC_END:]) != crc:
        raise _corrupt(f"entry at offset {offset}: wrong CRC")
    position = _PREFIX.size
    timestamp = NO_TIMESTAMP
    if magic == 1:
        timestamp = _TIMESTAMP.unpack_from(view, position)[0]
        position += _TIMESTAMP.size
    key, position = _read_bytes(view, position)
    value, position = _read_bytes(view, position)
    if position != len(view):
        raise _corrupt(f"entry at offset {offset}: {len(view) - position} bytes too many")
    return _Entry(
        offset, crc, magic, attributes, timestamp, None if key is None else bytes(key), value
    )


def _read_bytes(view: memoryview, position: int) -> tuple[memoryview | None, int]:
    start = position + _LENGTH.size
    if start > len(view):
        raise _corrupt("entry ends inside a length")
    length: int = _LENGTH.unpack_from(view, position)[0]
    if length < 0:
        return None, start
    if length > len(view) - start:
        raise _corrupt(f"field of {length} bytes in an entry with {len(view) - start} left")
    return view[start : start + length], start + length


def _unwrap(wrapper: _Entry, decompressed_bytes_max: int, *, check_crc: bool) -> list[Record]:
    if wrapper.value is None:
        raise _corrupt(f"wrapper at offset {wrapper.offset} without a value")
    codec = wrapper.attributes & CODEC_MASK
    compressed: bytes | memoryview = wrapper.value
    if codec == Codec.LZ4 and wrapper.magic == 0:
        compressed = _with_right_lz4_checksum(compressed)
    payload = memoryview(decompress(codec, compressed, decompressed_bytes_max))
    inner = [_read_entry(view, check_crc=check_crc) for view in _entries(payload)]
    if not inner or any(e.magic != wrapper.magic or e.attributes & CODEC_MASK for e in inner):
        raise _corrupt(f"wrapper at offset {wrapper.offset} is empty, nested, or of mixed formats")
    base = wrapper.offset - inner[-1].offset if wrapper.magic == 1 else 0
    timestamp_type = _timestamp_type(wrapper)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        return [_record(e, base + e.offset, wrapper.timestamp, timestamp_type) for e in inner]
    return [_record(e, base + e.offset, e.timestamp, timestamp_type) for e in inner]


def _timestamp_type(entry: _Entry) -> TimestampType:
    if entry.magic == 0:
        return TimestampType.NO_TIMESTAMP_TYPE
    if entry.attributes & TIMESTAMP_TYPE_BIT:
        return TimestampType.LOG_APPEND_TIME
    return TimestampType.CREATE_TIME


def _record(entry: _Entry, offset: int, timestamp: int, timestamp_type: TimestampType) -> Record:
    value = None if entry.value is None else bytes(entry.value)
    return Record(offset, timestamp, timestamp_type, entry.key, value)


def _corrupt(why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"message set: {why}")


# The lz4 of v0 ------------------------------------------------------------------------------------
# Old producers summed the frame's magic number into its header checksum, which every lz4 library
# refuses. The byte is set right before decompressing.

_LZ4_MAGIC_BYTES = 4
_LZ4_CONTENT_SIZE_FLAG = 0x08
_PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_PRIME_1 = 0x9E3779B1
_MASK = 0xFFFFFFFF


def _with_right_lz4_checksum(frame: bytes | memoryview) -> bytes:
    data = bytearray(frame)
    if len(data) > _LZ4_MAGIC_BYTES:
        has_size = data[_LZ4_MAGIC_BYTES] & _LZ4_CONTENT_SIZE_FLAG
        end = _LZ4_MAGIC_BYTES + (10 if has_size else 2)
        if end < len(data):
            data[end] = xxhash32_short(bytes(data[_LZ4_MAGIC_BYTES:end])) >> 8 & 0xFF
    return bytes(data)


def xxhash32_short(data: bytes) -> int:
    """Return the xxHash32, seed 0, of fewer than 16 bytes. Source: the xxHash specification."""
    assert len(data) < 16, "longer input takes another path of the algorithm"
    value = _PRIME_5 + len(data)
    words = len(data) // 4 * 4
    for position in range(0, words, 4):
        value += int.from_bytes(data[position : position + 4], "little") * _PRIME_3
        value = _rotate(value & _MASK, 17) * _PRIME_4
    for byte in data[words:]:
        value = _rotate((value + byte * _PRIME_5) & _MASK, 11) * _PRIME_1
    value &= _MASK
    value = (value ^ value >> 15) * _PRIME_2 & _MASK
    value = (value ^ value >> 13) * _PRIME_3 & _MASK
    return value ^ value >> 16


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
