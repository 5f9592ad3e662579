"""Zigzag varints as records carry them: signed, little end first, seven bits a byte.

Not the varints of the protocol's flexible versions, which are unsigned. For decoding and building
record by record; the kernel has its own, inlined. Source: Kafka's documentation, "Record".
"""

from ottla.errors import ErrorCode, KafkaError

VARLONG_BYTES_MAX = 10


def append_varint(out: bytearray, value: int) -> None:
    """Append ``value``, which fits 64 bits."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def read_varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Return the number at ``position`` and the position after it.

    Raises ``IndexError`` at the end of the buffer, ``KafkaError`` CORRUPT_MESSAGE after 10 bytes.
    """
    raw = buffer[position]
    position += 1
    if raw > 0x7F:
        raw &= 0x7F
        shift = 7
        while True:
            byte = buffer[position]
            position += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= 7 * VARLONG_BYTES_MAX:
                why = f"varint of more than {VARLONG_BYTES_MAX} bytes"
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, why)
    return (raw >> 1) ^ -(raw & 1), position
