"""Numbers as Avro writes them: varints that Java reads, and decimals of up to 16 bytes.

The compiled kernel has them from avro_numbers.pxd, which says the same in C: whoever changes one
changes the other (tests run the kernel in both forms). Source: Apache Avro 1.12 specification,
"Binary Encoding".
"""

from ottla.records.columnar.avro_tables import BAD_NUMBER, BAD_VARINT, TRUNCATED
from ottla.records.numbers import Octets

_WORD = 0xFFFFFFFFFFFFFFFF


def number_at(data: Octets, at: int, stop: int, bytes_max: int) -> tuple[int, int]:
    """Return the varint at ``at``, which must end by ``stop``, and the position behind it.

    It has up to ``bytes_max`` bytes, 5 for 32 bits and 10 for 64; further bits
    fall away. When it cannot be read, the position is -TRUNCATED or -BAD_VARINT and the number 0.
    """
    raw = shift = 0
    while at < stop:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF if bytes_max == 5 else _WORD
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
        if shift >= bytes_max * 7:
            return 0, -BAD_VARINT
    return 0, -TRUNCATED


def words_at(data: Octets, at: int, size: int) -> tuple[int, int, int]:
    """Return the two words of a big-endian number, the high one first, and what is wrong with it.

    ``size`` > 0. What is above 16 bytes must say nothing but the sign.
    """
    sign = 0xFF if data[at] > 0x7F else 0
    high = low = _WORD if sign else 0
    for index in range(size):
        byte = data[at + index]
        if index < size - 16 and byte != sign:
            return 0, 0, BAD_NUMBER
        high = ((high << 8) & _WORD) | (low >> 56)
        low = ((low << 8) & _WORD) | byte
    return high, low, BAD_NUMBER if (high >> 63 != 0) != (sign != 0) else 0


def is_below(high: int, low: int, bound_high: int, bound_low: int) -> bool:
    """Tell whether the magnitude of a number in two words is less than the bound."""
    if high >> 63:
        low = -low & _WORD
        high = ((~high & _WORD) + (low == 0)) & _WORD
    return (high, low) < (bound_high, bound_low)
