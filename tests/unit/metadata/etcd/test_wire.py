"""The bytes of etcd's messages: what other codecs read and write, and whatever strangers send."""

from contextlib import suppress

import pytest
from google.protobuf.internal import decoder, encoder
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import MalformedMessage
from ottla.metadata.etcd import wire

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(NUMBERS)
def test_numbers_are_as_protobuf_has_them(number):
    written = bytearray()
    encoder._SignedVarintEncoder()(written.extend, number, False)
    assert wire._varint(number) == bytes(written)
    (field, value), *rest = wire._fields(memoryview(wire._number(5, number)))
    assert (field, wire._int(value), rest) == (5, number, [])
    assert decoder._DecodeSignedVarint(bytes(written), 0)[0] == number


@given(st.binary(max_size=300), NUMBERS)
def test_what_is_not_known_is_read_over(value, number):
    eight, four = b"\xa1\x01", b"\xa5\x01"  # the tags of field 20 with 8 and with 4 bytes
    kv = wire._bytes(1, b"key") + eight + bytes(8) + four + bytes(4) + wire._bytes(99, value)
    kv += wire._number(3, 7) + wire._bytes(5, value)
    answer = wire._bytes(2, kv) + wire._number(77, number) + wire._number(4, 1)
    ranged = wire.read_range(answer)
    assert ranged.found == [wire.KeyValue(b"key", value, 0, 7, 0)]
    assert ranged.counted == 1


READERS = (
    wire.read_range,
    wire.read_transaction,
    lambda answer: list(map(wire.read_event, wire.read_watched(answer).events)),
    wire.read_lease,
    wire.read_token,
)


@given(st.sampled_from(READERS), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(read, answer):
    with suppress(MalformedMessage):
        read(answer)


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_cut_answer_is_refused(cut):
    answer = wire._bytes(2, wire._bytes(1, b"key") + wire._number(3, 1 << 40))
    with pytest.raises(MalformedMessage):
        wire.read_range(answer[:-cut])


@pytest.mark.parametrize(
    ("prefix", "end"), [(b"a/", b"a0"), (b"/ottla/x/", b"/ottla/x0"), (b"", b"\0"), (b"~", b"\x7f")]
)
def test_a_prefix_ends_where_the_next_one_begins(prefix, end):
    assert wire.range_end(prefix) == end
