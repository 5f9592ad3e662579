"""The header of values: what is written is read, and any bytes are refused or understood."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.schemas.framing import (
    NotFramed,
    encoded_indexes,
    header,
    read_indexes,
    schema_id_of,
)


@given(st.integers(0, 2**31 - 1), st.binary(max_size=20))
def test_an_id_comes_back(number, payload):
    assert schema_id_of(header(number) + payload) == number


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=20), st.binary(max_size=5))
def test_message_indexes_come_back(indexes, payload):
    data = b"\0\0\0\0\1" + encoded_indexes(indexes) + payload
    found, start = read_indexes(data, 5)
    assert list(found) == indexes
    assert data[start:] == payload


def test_the_first_message_takes_one_byte():
    assert encoded_indexes([0]) == b"\0"
    assert encoded_indexes([1, 0]) == b"\x04\x02\x00"  # as Confluent's page has it


@given(st.binary(max_size=40))
def test_any_bytes_are_understood_or_refused(data):
    try:
        schema_id_of(data)
        found, start = read_indexes(data, 5)
    except NotFramed:
        return
    assert 0 < len(found) <= 100
    assert start <= len(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes are too few"),
        (b"\0\0\0\1", "4 bytes are too few"),
        (b'{"a":1}', "0x7b"),
        (b"\0\0\0\0\1", "break off"),
        (b"\0\0\0\0\1\xff\xff\xff\xff\xff\xff", "too long"),
        (b"\0\0\0\0\1\x01", "-1 message indexes"),
        (b"\0\0\0\0\1\xca\x01", "101 message indexes"),
    ],
)
def test_what_is_no_header_says_so(data, why):
    def read():
        schema_id_of(data)
        read_indexes(data, 5)

    with pytest.raises(NotFramed, match=why):
        read()
