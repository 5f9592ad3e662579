"""What a hostile peer may not do: each limit of the decoder, by the byte."""

import pytest

from ottla.errors import MalformedMessage
from ottla.protocol.primitives import MAX_ELEMENTS, MAX_TAGS
from ottla.protocol.schema import Message, Struct, array, int8, int32, string, uuid


class Inner(Struct):
    numbers: list[int] = array(int8)


class Lists(Message, api_key=999, versions="0-1", flexible="1+"):
    groups: list[Inner] = array(Inner)
    ids: list[bytes] = array(uuid, default=[])


class Text(Message, api_key=998, versions="0-1", flexible="1+"):
    text: str = string()


class Known(Message, api_key=997, versions="0", flexible="0+"):
    first: int = int32(default=0, tag=0)
    third: str | None = string(nullable="0+", default=None, tag=2)


class Bare(Message, api_key=996, versions="0", flexible="0+"):
    number: int = int8()


def uvarint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tags(*fields):
    body = b"".join(uvarint(tag) + uvarint(len(value)) + value for tag, value in fields)
    return uvarint(len(fields)) + body


def test_unknown_tags_are_skipped():
    assert Bare.decode(b"\x07" + tags((0, b"x"), (300, b"y" * 200)), 0, strict=True).number == 7
    known = Known.decode(tags((0, b"\x00\x00\x00\x09"), (1, b"new"), (2, b"\x02x"), (9, b"")), 0)
    assert (known.first, known.third) == (9, "x")


@pytest.mark.parametrize("table", [Bare, Known])
def test_more_tags_than_the_limit_are_malformed(table):
    head = b"\x07" if table is Bare else b""
    many = [(tag, b"") for tag in range(10, 10 + MAX_TAGS)]
    table.decode(head + tags(*many), 0, strict=True)
    with pytest.raises(MalformedMessage):
        table.decode(head + tags(*many, (200, b"")), 0)
    with pytest.raises(MalformedMessage):
        table.decode(head + uvarint(20_000_000) + b"\x00" * 1000, 0)


@pytest.mark.parametrize("table", [Bare, Known])
@pytest.mark.parametrize("order", [(5, 5), (6, 5)])
def test_tags_twice_or_out_of_order_are_malformed(table, order):
    head = b"\x07" if table is Bare else b""
    with pytest.raises(MalformedMessage):
        table.decode(head + tags(*((tag, b"") for tag in order)), 0)


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x00\x00\x01\x00"])
def test_a_tag_of_the_wrong_size_is_malformed(value):
    with pytest.raises(MalformedMessage):
        Known.decode(tags((0, value)), 0)


@pytest.mark.parametrize("table", [Bare, Known])
def test_a_tag_that_ends_outside_the_message_is_malformed(table):
    head = b"\x07" if table is Bare else b""
    with pytest.raises(MalformedMessage):
        table.decode(head + b"\x01\x09\x05abcd", 0)


def test_a_varint_of_six_bytes_is_malformed():
    with pytest.raises(MalformedMessage, match="more than five bytes"):
        Text.decode(b"\xff\xff\xff\xff\xff\x00", 1)
    with pytest.raises(MalformedMessage):
        Text.decode(b"\x80\x80\x80\x80", 1)


def test_a_varint_longer_than_needed_is_read():
    assert Text.decode(b"\x82\x80\x80\x80\x00x\x00", 1, strict=True).text == "x"


@pytest.mark.parametrize(
    ("data", "version"),
    [(b"\x00\x05abcd", 0), (b"\x06abcd", 1), (b"\x7f\xff", 0), (b"\xff\xff\xff\xff\x0f", 1)],
)
def test_a_string_longer_than_the_bytes_left_is_malformed(data, version):
    with pytest.raises(MalformedMessage):
        Text.decode(data, version)


def test_bytes_that_are_not_utf8_are_replaced_as_kafka_does():
    assert Text.decode(b"\x00\x02\xff\xfe", 0).text == "\ufffd\ufffd"


def test_null_for_a_string_that_is_not_nullable_is_malformed():
    with pytest.raises(MalformedMessage, match="text is null"):
        Text.decode(b"\xff\xff", 0)
    with pytest.raises(MalformedMessage, match="text is null"):
        Text.decode(b"\x00\x00", 1)


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, 3])
def test_a_count_is_held_against_the_bytes_its_elements_need(count):
    with pytest.raises(MalformedMessage, match="groups has more elements than fit"):
        Lists.decode(count.to_bytes(4, "big") + bytes(11), 0)
    with pytest.raises(MalformedMessage, match="groups has more elements than fit"):
        Lists.decode(uvarint(count + 1) + bytes(5), 1)


def test_elements_are_counted_over_all_arrays_of_a_message():
    def message(inner):
        return Lists(groups=[Inner(numbers=[0] * inner) for _ in range(2)])

    fits = MAX_ELEMENTS // 2 - 1
    for version in (0, 1):
        Lists.decode(message(fits).encode(version), version, strict=True)
        with pytest.raises(MalformedMessage, match="numbers has more elements than fit"):
            Lists.decode(message(fits + 1).encode(version), version)


def test_a_buffer_shorter_than_its_end_is_malformed():
    with pytest.raises(MalformedMessage, match="ends too early"):
        Bare.decoder(0)(memoryview(b"\x01\x00"), 0, 3)


@pytest.mark.parametrize("version", [8, 7])
def test_a_text_is_at_most_what_an_int16_counts(version):
    from ottla.protocol.messages.offset_commit import OffsetCommitRequest

    longest = OffsetCommitRequest(group_id="x" * 32767, member_id="", topics=[])
    data = longest.encode(version)
    assert OffsetCommitRequest.decode(data, version).group_id == longest.group_id
    if version == 8:
        more = OffsetCommitRequest(group_id="x" * 32768, member_id="", topics=[]).encode(version)
        with pytest.raises(MalformedMessage, match="more than 32767"):
            OffsetCommitRequest.decode(more, version)
