"""Numbers of the interpreted kernels, against Python's own and the varints of single records."""

import struct

import pytest

from ottla.records import numbers
from ottla.records.varint import append_varint

EDGES = [0, 1, -1, 63, 64, -64, -65, 127, 128, 2**31 - 1, -(2**31)]
LONG_EDGES = [2**31, -(2**31) - 1, 2**63 - 1, -(2**63)]


def written(number):
    out = bytearray()
    append_varint(out, number)
    return bytes(out)


@pytest.mark.parametrize("number", EDGES + LONG_EDGES)
def test_a_varint_is_as_long_as_it_says_and_comes_back(number):
    data = written(number)
    out = bytearray(12)
    assert numbers.put_varint(out, 1, number) == 1 + len(data) == 1 + numbers.varint_size(number)
    assert out[1 : 1 + len(data)] == data
    assert numbers.varlong_at(out, 1, len(out)) == (number, 1 + len(data))
    expected = (number, 1 + len(data)) if number in EDGES else (0, numbers.TOO_LONG)
    assert numbers.varint_at(out, 1, len(out)) == expected
    assert numbers.varlong_at(data, 0, len(data) - 1) == (0, numbers.ENDS_INSIDE)


def test_a_varint_of_more_than_64_bits_is_none():
    assert numbers.varlong_at(b"\xff" * 9 + b"\x02", 0, 10) == (0, numbers.TOO_LONG)
    assert numbers.varint_at(b"\xff" * 9 + b"\x02", 0, 10) == (0, numbers.TOO_LONG)


def test_numbers_of_a_fixed_size_are_big_endian():
    data = b"\xee" + struct.pack(">HIiq", 0xFEDC, 0xFEDCBA98, -2, -3)
    assert numbers.uint16_at(data, 1) == 0xFEDC
    assert numbers.uint32_at(data, 3) == 0xFEDCBA98
    assert numbers.int32_at(data, 7) == -2
    assert numbers.int64_at(data, 11) == -3


def test_bytes_of_a_negative_count_are_none():
    target = bytearray(b"....")
    numbers.copy(b"abc", 1, target, 1, 2)
    numbers.copy(b"abc", 0, target, 0, -1)
    assert target == b".bc."
