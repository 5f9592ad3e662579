import pytest

from ottla.errors import KafkaError
from ottla.records.varint import append_varint, read_varint


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (300, "d804")],
)
def test_known_bytes(value, data):
    out = bytearray()
    append_varint(out, value)
    assert out.hex() == data
    assert read_varint(memoryview(out), 0) == (value, len(out))


@pytest.mark.parametrize("value", [(1 << 63) - 1, -(1 << 63), (1 << 31) - 1, -(1 << 31)])
def test_the_widest(value):
    out = bytearray(b"..")
    append_varint(out, value)
    assert read_varint(memoryview(out), 2) == (value, len(out))


def test_no_end():
    with pytest.raises(IndexError):
        read_varint(memoryview(b"\x80\x80"), 0)
    with pytest.raises(KafkaError):
        read_varint(memoryview(b"\x80" * 11), 0)
