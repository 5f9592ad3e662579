"""From a frame to a handler and back; the bytes are those of a live Kafka where it says so."""

import struct
from functools import partial

import pytest

from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.errors import CloseConnection, MalformedMessage
from ottla.handlers.apis.api_versions import ApiVersions
from ottla.handlers.client import Client
from ottla.handlers.router import Router
from ottla.pending import Pending
from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.header import encode_request_header
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.primitives import SPLICE_BYTES
from ottla.records.region import Region
from ottla.sliced import Slices
from ottla.turns import Turns

CLIENT = Client("10.0.0.9", 5000, "10.0.0.1", 9092)
CORRELATION = 7


class Scripted:
    """Answers what it is told to, and keeps what it was asked."""

    def __init__(self, response=None):
        self.response = response
        self.asked = []

    def handle(self, request, call):
        self.asked.append((request, call))
        if isinstance(self.response, Exception):
            raise self.response
        return self.response


def frame(key, version, body=b"", client_id="me"):
    header = encode_request_header(key, version, CORRELATION, client_id)
    return memoryview(header + bytes(body))


def joined(answer):
    """The bytes of an answer; its length and correlation id are checked."""
    data = b"".join(bytes(c) if not isinstance(c, Region) else c.read() for c in answer)
    length, correlation = struct.unpack_from(">ii", data)
    assert length == len(data) - 4
    assert correlation == CORRELATION
    return data[8:]


@pytest.fixture
def handlers():
    return {
        ApiKey.PRODUCE: Scripted(),
        ApiKey.FETCH: Scripted(),
        ApiKey.METADATA: Scripted(MetadataResponse(brokers=[], cluster_id="c", topics=[])),
    }


@pytest.fixture
def router(handlers):
    makers = {key: partial(handlers.get, key) for key in handlers}
    router = Router(makers, Slices(Turns(ManualClock())))
    router.add(ApiKey.API_VERSIONS, lambda: ApiVersions(router.served))
    return router


def test_a_handler_is_made_at_the_first_request_of_its_api_and_once():
    made = []

    def make():
        made.append(Scripted(MetadataResponse(brokers=[], cluster_id="c", topics=[])))
        return made[-1]

    router = Router({ApiKey.METADATA: make}, Slices(Turns(ManualClock())))
    assert list(router.served()) == [ApiKey.METADATA]
    assert not made
    for version in (9, 9, 12):
        request = MetadataRequest(topics=None).encode(version)
        router.dispatch(frame(ApiKey.METADATA, version, request), CLIENT)
    (handler,) = made
    assert len(handler.asked) == 3


def test_a_request_reaches_its_handler_with_its_circumstances(router, handlers):
    request = MetadataRequest(topics=None)
    answer = router.dispatch(frame(ApiKey.METADATA, 9, request.encode(9)), CLIENT)
    ((asked, call),) = handlers[ApiKey.METADATA].asked
    assert asked == request
    assert (call.api_version, call.client_id, call.client) == (9, "me", CLIENT)
    assert joined(answer)[:1] == b"\0", "a flexible response has tags in its header"
    assert MetadataResponse.decode(joined(answer)[1:], 9).cluster_id == "c"


def test_an_inflexible_response_has_no_tags_in_its_header(router):
    body = MetadataRequest(topics=[]).encode(4)
    answer = router.dispatch(frame(ApiKey.METADATA, 4, body), CLIENT)
    assert MetadataResponse.decode(joined(answer), 4).cluster_id == "c"


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (999, 0),
        (-1, 0),
        (ApiKey.METADATA, 99),
        (ApiKey.METADATA, -1),
        (ApiKey.FETCH, 3),
        (ApiKey.LIST_OFFSETS, 7),  # Known, but nobody serves it here.
        (4, 0),
        (52, 0),
    ],
)
def test_what_is_not_served_closes_the_connection(router, key, version):
    # Twice: a refusal is not remembered as a route.
    for _ in range(2):
        with pytest.raises(MalformedMessage):
            router.dispatch(memoryview(struct.pack(">hhihx", key, version, 1, -1)), CLIENT)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produces_are_advertised_and_closed(router, handlers, version):
    """librdkafka wants to see v0 in the table, and never sends it (as a live Kafka)."""
    assert version in router.served()[ApiKey.PRODUCE]
    with pytest.raises(MalformedMessage):
        router.dispatch(frame(ApiKey.PRODUCE, version, bytes(20)), CLIENT)
    assert handlers[ApiKey.PRODUCE].asked == []


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_api_versions_from_the_future_get_error_35_as_on_the_wire(router, version):
    answer = router.dispatch(frame(ApiKey.API_VERSIONS, version), CLIENT)
    assert b"".join(answer)[4:].hex() == "00000007002300000001001200000004"
    joined(answer)


def test_api_versions_of_a_negative_version_too(router):
    data = struct.pack(">hhih", ApiKey.API_VERSIONS, -1, CORRELATION, -1)
    answer = router.dispatch(memoryview(data), CLIENT)
    assert b"".join(answer)[4:].hex() == "00000007002300000001001200000004"


def test_a_future_api_versions_without_the_new_header_closes(router):
    data = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, CORRELATION, -1)
    with pytest.raises(MalformedMessage):
        router.dispatch(memoryview(data), CLIENT)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_exactly_what_is_served(router, handlers, version):
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1.0-a")
    answer = router.dispatch(frame(ApiKey.API_VERSIONS, version, request.encode(version)), CLIENT)
    response = ApiVersionsResponse.decode(joined(answer), version)
    assert response.error_code == 0
    told = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    assert set(told) == {*handlers, ApiKey.API_VERSIONS}
    for key, (first, last) in told.items():
        served = API_TABLE[ApiKey(key)].advertised_versions
        assert (first, last) == (served.first, served.last)


@pytest.mark.parametrize(
    ("name", "software_version"),
    [("bad name!", "1"), ("", "1"), ("-x", "1"), ("a", "a b"), ("a", ""), ("a.", "1"), ("é", "1")],
)
@pytest.mark.parametrize("version", [3, 4])
def test_an_unusable_software_name_is_an_invalid_request(router, name, software_version, version):
    request = ApiVersionsRequest(
        client_software_name=name, client_software_version=software_version
    )
    answer = router.dispatch(frame(ApiKey.API_VERSIONS, version, request.encode(version)), CLIENT)
    response = ApiVersionsResponse.decode(joined(answer), version)
    assert (response.error_code, response.api_keys) == (42, [])


@pytest.mark.parametrize("cut", [0, 2, 7, 8, 9])
def test_a_short_header_closes(router, cut):
    data = bytes(frame(ApiKey.METADATA, 0, struct.pack(">i", 0)))[:cut]
    with pytest.raises(MalformedMessage):
        router.dispatch(memoryview(data), CLIENT)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, struct.pack(">i", 2**31 - 1)),
        (9, b"\xff\xff\xff\xff\x0f"),
        (9, b"\x80\x80\x80\x80\x80\x01"),
        (1, struct.pack(">ih", 1, -1)),
        (9, b"\x01"),
    ],
)
def test_a_body_that_cannot_be_decoded_closes(router, handlers, version, body):
    with pytest.raises(MalformedMessage):
        router.dispatch(frame(ApiKey.METADATA, version, body), CLIENT)
    assert handlers[ApiKey.METADATA].asked == []


def test_bytes_behind_a_request_are_ignored_as_kafka_does(router):
    body = MetadataRequest(topics=[]).encode(0) + b"abc"
    assert router.dispatch(frame(ApiKey.METADATA, 0, body), CLIENT)


def test_a_client_id_may_be_absent_or_no_text(router, handlers):
    body = MetadataRequest(topics=[]).encode(0)
    for length, text in ((-1, b""), (-2, b""), (2, b"\xff\xfe")):
        header = struct.pack(">hhih", ApiKey.METADATA, 0, CORRELATION, length) + text
        joined(router.dispatch(memoryview(header + body), CLIENT))
    ids = [call.client_id for _, call in handlers[ApiKey.METADATA].asked]
    assert ids == [None, None, "\ufffd\ufffd"]


def test_a_handler_without_answer(router, handlers):
    body = ProduceRequest(acks=0, timeout_ms=0, topic_data=[]).encode(9)
    assert router.dispatch(frame(ApiKey.PRODUCE, 9, body), CLIENT) is None


def test_a_handler_may_close_the_connection(router, handlers):
    handlers[ApiKey.PRODUCE].response = CloseConnection("acks=0")
    body = ProduceRequest(acks=0, timeout_ms=0, topic_data=[]).encode(9)
    with pytest.raises(CloseConnection):
        router.dispatch(frame(ApiKey.PRODUCE, 9, body), CLIENT)


@pytest.mark.parametrize("is_early", [True, False])
def test_a_pending_response_becomes_a_pending_answer(router, handlers, is_early):
    pending = handlers[ApiKey.PRODUCE].response = Pending(overlaps=True)
    body = ProduceRequest(acks=1, timeout_ms=0, topic_data=[]).encode(9)
    if is_early:
        pending.resolve(ProduceResponse(responses=[]))
    answer = router.dispatch(frame(ApiKey.PRODUCE, 9, body), CLIENT)
    assert isinstance(answer, Pending)
    assert answer.overlaps
    if not is_early:
        assert not answer.is_done
        pending.resolve(ProduceResponse(responses=[]))
    assert ProduceResponse.decode(joined(answer.value)[1:], 9).responses == []


def test_a_pending_response_may_turn_out_to_be_none(router, handlers):
    pending = handlers[ApiKey.PRODUCE].response = Pending()
    body = ProduceRequest(acks=0, timeout_ms=0, topic_data=[]).encode(9)
    answer = router.dispatch(frame(ApiKey.PRODUCE, 9, body), CLIENT)
    pending.resolve(None)
    assert answer.is_done
    assert answer.value is None


def test_a_pending_response_may_fail(router, handlers):
    pending = handlers[ApiKey.PRODUCE].response = Pending()
    body = ProduceRequest(acks=0, timeout_ms=0, topic_data=[]).encode(9)
    answer = router.dispatch(frame(ApiKey.PRODUCE, 9, body), CLIENT)
    error = CloseConnection("later")
    pending.fail(error)
    assert answer.error is error


def region(data):
    file = MemoryDisk().open("/0.log", create=True)
    file.write_at(0, b"xyz" + data)
    return Region(file, 3, len(data))


@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_records_stay_where_they_are_and_stand_in_the_right_places(router, handlers, version):
    small, large = b"s" * 10, b"l" * (SPLICE_BYTES * 3)
    parts = [region(b"one" * 50), small, large, region(b"two" * 30_000), b"", region(b"z")]
    handlers[ApiKey.FETCH].response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="t",
                partitions=[
                    PartitionData(partition_index=index, high_watermark=5, records=part)
                    for index, part in enumerate(parts)
                ],
            )
        ]
    )
    body = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]).encode(version)
    answer = router.dispatch(frame(ApiKey.FETCH, version, body), CLIENT)
    regions = [chunk for chunk in answer if isinstance(chunk, Region)]
    assert regions == [parts[0], parts[3], parts[5]]
    assert any(chunk is large for chunk in answer), "large records are not copied"
    data = joined(answer)
    if version >= 12:
        data = data[1:]
    (topic,) = FetchResponse.decode(data, version).responses
    expected = [part.read() if isinstance(part, Region) else part for part in parts]
    assert [bytes(part.records or b"") for part in topic.partitions] == expected
