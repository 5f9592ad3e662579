"""Headers: which version has which, and what they survive."""

import pytest

from ottla.errors import MalformedMessage
from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)


def decode(data, position=0):
    return decode_request_header(memoryview(data), position, len(data))


def test_a_header_before_the_flexible_versions_has_no_tags():
    data = bytes.fromhex("0003 0008 00000007 0003 616263") + b"body"
    assert decode(data) == RequestHeader(3, 8, 7, "abc", 13)


def test_a_flexible_header_keeps_the_int16_client_id_and_has_tags():
    data = bytes.fromhex("0003 0009 00000007 0003 616263 01 05 02 ffff") + b"body"
    assert decode(data) == RequestHeader(3, 9, 7, "abc", 18)
    assert decode(b"...." + data, 4) == RequestHeader(3, 9, 7, "abc", 22)


def test_a_null_client_id_is_none_and_an_empty_one_is_empty():
    assert decode(bytes.fromhex("0003 0008 00000007 ffff")).client_id is None
    assert decode(bytes.fromhex("0003 0008 00000007 0000")).client_id == ""


def test_a_client_id_that_is_not_utf8_is_accepted_as_kafka_does():
    assert (
        decode(bytes.fromhex("0003 0008 00000007 0002 c328")).client_id
        == "\N{REPLACEMENT CHARACTER}("
    )


def test_unknown_keys_and_versions_are_the_routers_business():
    assert decode(bytes.fromhex("03e7 0009 00000007 ffff"))[:3] == (999, 9, 7)
    assert decode(bytes.fromhex("0012 7fff 00000007 ffff 00"))[:3] == (18, 32767, 7)


@pytest.mark.parametrize(
    "data", ["0003 0009 00000007 0003 616263 01 05 02 ffff", "0003 0008 00000007 0001 61"]
)
def test_a_header_cut_anywhere_is_malformed(data):
    whole = bytes.fromhex(data)
    for length in range(len(whole)):
        with pytest.raises(MalformedMessage):
            decode(whole[:length])
        with pytest.raises(MalformedMessage):
            decode_request_header(memoryview(whole), 0, length)


def test_a_tag_bomb_in_the_header_is_malformed():
    bomb = bytes.fromhex("0003 0009 00000007 ffff ffffff07") + bytes(10_000)
    with pytest.raises(MalformedMessage, match="tagged fields in one struct"):
        decode(bomb)


@pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
def test_request_headers_make_the_round_trip(api):
    for version in api.versions:
        for client_id in (None, "", "zürich"):
            data = encode_request_header(api.key, version, 99, client_id)
            assert decode(data) == RequestHeader(api.key, version, 99, client_id, len(data))


@pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
def test_response_headers_make_the_round_trip(api):
    for version in api.versions:
        data = encode_response_header(api.key, version, 99)
        flexible = api.is_flexible(version) and api.key is not ApiKey.API_VERSIONS
        assert len(data) == (5 if flexible else 4)
        back = decode_response_header(
            memoryview(data), 0, len(data), api_key=api.key, api_version=version
        )
        assert back == (99, len(data))
        for length in range(len(data)):
            with pytest.raises(MalformedMessage):
                decode_response_header(
                    memoryview(data), 0, length, api_key=api.key, api_version=version
                )
