"""Wire primitives that are too large for generated code: varints, records, unknown tags.

Compiled codecs and the headers call them. Grammar:

    uvarint  := 1..5 bytes, 7 bits each, least significant first, high bit = one more follows
    compact  := uvarint(length + 1) bytes        (0 = null)
    tags     := uvarint(count) { uvarint(tag) uvarint(size) bytes[size] }*     tags ascending

Source: KIP-482. A peer's lengths and counts are checked against the bytes left before they are
used.
"""

from struct import Struct
from typing import Protocol, TypeAlias

from ottla.errors import MalformedMessage

MAX_TAGS = 64
"""How many tagged fields one struct may have. Kafka defines at most a handful anywhere."""

MAX_ELEMENTS = 200_000
"""How many elements all arrays of one message may have together."""

SPLICE_BYTES = 16 * 1024
"""Records of at least this size are not copied into the encoded message, but spliced."""

UVARINT_BYTES_MAX = 5
_RECORD_BYTES = (bytes, bytearray, memoryview)
_pack_int32 = Struct(">i").pack

RecordBytes: TypeAlias = bytes | bytearray | memoryview


class Splice(Protocol):
    """Records that are stored elsewhere (in a file) and that the connection sends from there."""

    @property
    def length_bytes(self) -> int:
        """How many bytes it will be on the wire, exactly."""

    def read(self) -> bytes:
        """Return the bytes. Blocks on the disk."""


Splices: TypeAlias = list[tuple[int, RecordBytes | Splice]]
"""``(position, records)``: records to insert at ``position`` of the encoded bytes, in order."""


def spliced_bytes(splices: Splices) -> int:
    """Return how many bytes the splices add to the encoded message."""
    return sum(
        len(what) if isinstance(what, _RECORD_BYTES) else what.length_bytes for _, what in splices
    )


def join_splices(out: bytearray, splices: Splices) -> bytes:
    """Return the encoded message with its splices inserted. Blocks if a splice is in a file."""
    if not splices:
        return bytes(out)
    pieces: list[RecordBytes] = []
    start = 0
    for position, what in splices:
        pieces.append(out[start:position])
        pieces.append(what if isinstance(what, _RECORD_BYTES) else what.read())
        start = position
    pieces.append(out[start:])
    return b"".join(pieces)


def put_uvarint(out: bytearray, value: int) -> None:
    """Append ``value`` (not negative) as an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def long_uvarint(first: int, buffer: memoryview, position: int) -> tuple[int, int]:
    """Decode a varint of several bytes, given its first byte; ``position`` is that of the second.

    Returns the value, and the position after it. Raises IndexError at the end of the buffer,
    MalformedMessage for more than five bytes.
    """
    byte = buffer[position]
    if byte < 0x80:  # Two bytes: by far the usual case.
        return first & 0x7F | byte << 7, position + 1
    value = first & 0x7F | (byte & 0x7F) << 7
    for shift in range(14, 7 * UVARINT_BYTES_MAX, 7):
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
    raise MalformedMessage("a varint of more than five bytes")


def get_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Return a varint, and the position after it. Raises as ``long_uvarint``."""
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return long_uvarint(first, buffer, position + 1)


def skip_tags(count: int, buffer: memoryview, position: int, end: int) -> int:
    """Skip ``count`` unknown tagged fields; return the position after them.

    Raises IndexError at the end of the buffer, MalformedMessage for too many fields, for fields out
    of order and for a field that ends outside the message.
    """
    if count > MAX_TAGS:
        raise MalformedMessage(f"{count} tagged fields in one struct")
    previous = -1
    for _ in range(count):
        tag, position = get_uvarint(buffer, position)
        if tag <= previous:
            raise MalformedMessage(f"tag {tag} behind tag {previous}")
        previous = tag
        size_bytes, position = get_uvarint(buffer, position)
        position += size_bytes
        if position > end:
            raise MalformedMessage(f"tag {tag} of {size_bytes} bytes ends outside the message")
    return position


def put_records(out: bytearray, records: RecordBytes | Splice, splices: Splices) -> None:
    """Append an int32 length and the records; large ones go into ``splices`` instead."""
    if isinstance(records, _RECORD_BYTES):
        length_bytes = len(records)
        out += _pack_int32(length_bytes)
        if length_bytes < SPLICE_BYTES:
            out += records
            return
    else:
        out += _pack_int32(records.length_bytes)
    splices.append((len(out), records))


def put_compact_records(out: bytearray, records: RecordBytes | Splice, splices: Splices) -> None:
    """Append a compact length and the records; large ones go into ``splices`` instead."""
    if isinstance(records, _RECORD_BYTES):
        length_bytes = len(records)
        put_uvarint(out, length_bytes + 1)
        if length_bytes < SPLICE_BYTES:
            out += records
            return
    else:
        put_uvarint(out, records.length_bytes + 1)
    splices.append((len(out), records))
