"""Numbers and bytes where a kernel meets them: how the interpreted forms read and write them.

Every kernel of ``ottla.records`` uses these. Compiled, it has them from numbers.pxd, which says the
same in C: whoever changes one changes the other (tests run each kernel in both forms). Only the
end of a varint is checked.

Numbers of a fixed size are big-endian. A varint is zigzag, its lowest seven bits first, the top bit
of a byte set where another byte follows. It has 32 bits at most, a varlong 64.
Source: Kafka's documentation, "Record".
"""

Octets = bytes | bytearray | memoryview

ENDS_INSIDE, TOO_LONG = -1, -2
"""These stand for the position behind a varint that cannot be read."""


def uint16_at(data: Octets, at: int) -> int:
    """Return the number of 16 bits at ``at``."""
    return int.from_bytes(data[at : at + 2], "big")


def uint32_at(data: Octets, at: int) -> int:
    """Return the number of 32 bits at ``at``."""
    return int.from_bytes(data[at : at + 4], "big")


def int32_at(data: Octets, at: int) -> int:
    """Return the signed number of 32 bits at ``at``."""
    return int.from_bytes(data[at : at + 4], "big", signed=True)


def int64_at(data: Octets, at: int) -> int:
    """Return the signed number of 64 bits at ``at``."""
    return int.from_bytes(data[at : at + 8], "big", signed=True)


def varint_at(data: Octets, at: int, end: int) -> tuple[int, int]:
    """Return the varint at ``at``, which must end by ``end``, and the position behind it.

    When it cannot be read, the position is ENDS_INSIDE or TOO_LONG and the number 0.
    """
    number, at = varlong_at(data, at, end)
    return (number, at) if -0x80000000 <= number <= 0x7FFFFFFF else (0, TOO_LONG)


def varlong_at(data: Octets, at: int, end: int) -> tuple[int, int]:
    """Return the varlong at ``at`` and the position behind it, as ``varint_at`` does."""
    raw = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            return 0, TOO_LONG
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    return 0, ENDS_INSIDE


def varint_size(number: int) -> int:
    """Return how many bytes a number, of 64 bits at most, has as a varint."""
    raw = (~number if number < 0 else number) >> 6
    return 1 + (raw.bit_length() + 6) // 7


def put_varint(out: bytearray | memoryview, at: int, number: int) -> int:
    """Write a number, of 64 bits at most, as a varint; return the position behind it."""
    raw = ~number << 1 | 1 if number < 0 else number << 1
    while raw > 0x7F:
        out[at] = raw & 0x7F | 0x80
        raw >>= 7
        at += 1
    out[at] = raw
    return at + 1


def copy(source: Octets, start: int, target: bytearray | memoryview, to: int, size: int) -> None:
    """Copy ``size`` bytes, none where that is negative; the places must not overlap."""
    if size > 0:
        target[to : to + size] = source[start : start + size]


def put_int32(out: bytearray | memoryview, at: int, number: int) -> None:
    """Write the lowest 32 bits of ``number``."""
    out[at : at + 4] = (number & 0xFFFFFFFF).to_bytes(4, "big")


def put_int64(out: bytearray | memoryview, at: int, number: int) -> None:
    """Write the lowest 64 bits of ``number``."""
    out[at : at + 8] = (number & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")


def copy_short(
    source: Octets, start: int, target: bytearray | memoryview, to: int, size: int
) -> None:
    """Do what ``copy`` does, compiled faster where few bytes are copied."""
    copy(source, start, target, to, size)
