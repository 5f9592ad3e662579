"""What stands in front of a value that was written with a registry (Confluent's wire format).

    value   := magic id payload                     Avro, JSON Schema
             | magic id indexes payload             Protobuf
    magic   := 0                                    1 byte
    id      := int32, big-endian                    the schema's
    indexes := 0                                    1 byte: the file's first message
             | count index{count}                   zigzag varints: the way to a nested message

Pure. Source: Confluent's documentation, "Wire format".
"""

from collections.abc import Sequence

HEADER_BYTES = 5
INDEXES_MAX = 100
"""Messages nest no deeper; protoc itself stops before."""


class NotFramed(ValueError):
    """Bytes that do not begin as this format does."""


def header(schema_id: int) -> bytes:
    """Return magic and id."""
    return b"\x00" + schema_id.to_bytes(4, "big")


def schema_id_of(data: bytes) -> int:
    """Return the id in front of ``data``. Raises NotFramed."""
    if len(data) < HEADER_BYTES:
        raise NotFramed(f"{len(data)} bytes are too few for a schema id in front of a value")
    if data[0] != 0:
        why = f"it begins with the byte 0x{data[0]:02x}, not with 0 and a schema id"
        raise NotFramed(f"{why}: was it written without a schema registry?")
    return int.from_bytes(data[1:HEADER_BYTES], "big")


def encoded_indexes(indexes: Sequence[int]) -> bytes:
    """Return the way to a message as it is written."""
    if list(indexes) == [0]:
        return b"\x00"
    return b"".join(_varint(each << 1) for each in (len(indexes), *indexes))


def read_indexes(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Return the way to a message, and where the payload begins. Raises NotFramed."""
    count, position = _read_varint(data, position)
    if count == 0:
        return (0,), position
    if not 0 < count <= INDEXES_MAX:
        raise NotFramed(f"{count} message indexes: it is no Protobuf, or was written by another")
    found = []
    for _ in range(count):
        index, position = _read_varint(data, position)
        if index < 0:
            raise NotFramed(f"the message index {index} is none")
        found.append(index)
    return tuple(found), position


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            raise NotFramed("the message indexes break off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise NotFramed("a message index is too long")
