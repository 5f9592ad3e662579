import asyncio

import pytest

from ottla.client.asyncio.connection import Connection
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.wire.errors import ConnectionFailed, NoAnswer
from ottla.client.wire.exchange import AHEAD_BYTES, BUFFER_BYTES, Exchange, FrameReader
from ottla.client.wire.settings import Address
from ottla.client.wire.view import metadata_request
from ottla.env.real_net import AsyncioNet
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.protocol.apis import ApiKey
from ottla.protocol.fields import Versions
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse


@pytest.fixture
def address(broker):
    return Address("localhost", broker.port)


async def test_a_call_is_answered_at_the_newest_common_version(broker, address, settings):
    broker.versions[ApiKey.METADATA] = Versions.parse("0-5")
    connection = await Connection.open(broker.net, address, settings)
    answer = await connection.call(metadata_request(["t"]), MetadataResponse)
    assert [each.name for each in answer.topics] == ["t"]
    assert connection.exchange.version(MetadataRequest) == 5
    connection.close()


async def test_an_older_broker_is_asked_again_in_its_own_version(broker, address, settings):
    broker.versions[ApiKey.API_VERSIONS] = Versions.parse("0-1")
    connection = await Connection.open(broker.net, address, settings)
    assert connection.exchange.versions[ApiKey.API_VERSIONS] == (0, 1)
    connection.close()


async def test_an_api_that_is_not_served_is_named(broker, address, settings):
    del broker.versions[ApiKey.METADATA]
    connection = await Connection.open(broker.net, address, settings)
    with pytest.raises(KafkaError, match="Metadata 0-13 wanted, the broker does not serve it"):
        await connection.call(metadata_request([]), MetadataResponse)
    connection.close()


async def test_pipelined_answers_find_their_requests(broker, address, settings):
    connection = await Connection.open(broker.net, address, settings)
    futures = [
        connection.send(metadata_request([f"t{number}"]), MetadataResponse) for number in range(20)
    ]
    answers = await asyncio.gather(*futures)
    assert [each.topics[0].name for each in answers] == [f"t{number}" for number in range(20)]
    connection.close()


async def test_nothing_listens(broker, settings):
    with pytest.raises(ConnectionFailed) as caught:
        await Connection.open(broker.net, Address("localhost", 7), settings)
    assert caught.value.refused
    assert (caught.value.host, caught.value.port) == ("localhost", 7)


async def test_a_silent_peer_does_not_hold_a_client_for_ever(broker, address, settings):
    broker.is_silent = True
    with pytest.raises(ConnectionFailed, match=r"no answer to ApiVersions within 0\.2 s"):
        await Connection.open(broker.net, address, settings)


@pytest.mark.parametrize("turns", range(6))
async def test_who_gives_up_while_it_opens_leaves_no_connection(broker, address, settings, turns):
    """Also when that happens between the connect and the first word."""
    broker.is_silent = True
    opening = asyncio.ensure_future(Connection.open(broker.net, address, settings))
    for _ in range(turns):
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    for _ in range(6):
        await asyncio.sleep(0)
    assert all(transport.is_closing() for transport in broker.connections)
    assert broker.connections or turns < 3


async def test_an_answer_that_never_comes_ends_the_connection(broker, address, settings):
    connection = await Connection.open(broker.net, address, settings)
    broker.is_silent = True
    with pytest.raises(NoAnswer, match="no answer to Metadata"):
        await connection.call(metadata_request([]), MetadataResponse, timeout_ms=20)
    with pytest.raises(ConnectionFailed, match="closed"):
        await connection.call(metadata_request([]), MetadataResponse)


async def test_a_lost_connection_fails_what_is_due(broker, address, settings):
    connection = await Connection.open(broker.net, address, settings)
    broker.is_silent = True
    due = connection.send(metadata_request([]), MetadataResponse)
    broker.connections[-1].abort()
    with pytest.raises(ConnectionFailed):
        await due
    assert connection.is_closed


async def test_garbage_ends_the_connection_with_a_word(broker, address, settings):
    connection = await Connection.open(broker.net, address, settings)
    broker.is_silent = True
    due = connection.send(metadata_request([]), MetadataResponse)
    broker.connections[-1].write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ConnectionFailed, match="is that a Kafka broker"):
        await due


def feed(reader, data):
    """Receive ``data``; return the frames that it completes."""
    frames = []
    while data:
        room = reader.writable()
        assert len(room)
        piece, data = data[: len(room)], data[len(room) :]
        room[: len(piece)] = piece
        frames += reader.received(len(piece))
    return frames


def framed(*bodies):
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def test_frames_are_found_however_the_stream_is_cut():
    bodies = [b"abcd", b"x" * 300, b"12345"]
    stream = framed(*bodies)
    for step in (1, 2, 3, 7, 100, len(stream)):
        reader = FrameReader()
        frames = []
        for position in range(0, len(stream), step):
            frames += feed(reader, stream[position : position + step])
        assert frames == bodies, step


def test_frames_around_the_size_of_the_buffer_are_whole_and_keep_their_bytes():
    sizes = [BUFFER_BYTES + more for more in (-9, -4, -3, -1, 0, 1, 200_000)] + [5, AHEAD_BYTES * 3]
    bodies = [SeededRng(size).random_bytes(size) for size in (*sizes, *sizes)]
    stream = framed(*bodies)
    for step in (999, 60_000, 1 << 20, len(stream)):
        reader = FrameReader(1 << 30)
        frames = []
        for position in range(0, len(stream), step):
            frames += feed(reader, stream[position : position + step])
        assert [len(frame) for frame in frames] == [len(body) for body in bodies], step
        assert frames == bodies, step


def test_who_only_says_that_much_is_coming_is_not_believed():
    reader = FrameReader(1 << 30)
    feed(reader, (1 << 29).to_bytes(4, "big") + bytes(100))
    assert len(reader.writable()) < AHEAD_BYTES


@pytest.mark.parametrize("size", [-1, 0, 3, 2**31 - 1])
def test_an_impossible_size_is_refused_before_its_bytes_come(size):
    with pytest.raises(MalformedMessage):
        feed(FrameReader(max_bytes=1000), size.to_bytes(4, "big", signed=True))


def test_an_answer_out_of_turn_is_refused():
    exchange = Exchange("me")
    with pytest.raises(MalformedMessage, match="no request asked"):
        exchange.answer(memoryview(bytes(10)))
    exchange.request(ApiVersionsRequest(), ApiVersionsResponse, 0)
    with pytest.raises(MalformedMessage, match="answer 9 came where 0 was due"):
        exchange.answer(memoryview((9).to_bytes(4, "big") + bytes(10)))


def test_an_unusable_api_versions_answer_is_an_error():
    refused = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    steps = Exchange("me").negotiate()
    assert next(steps).highest == ApiVersionsRequest.VERSIONS.last
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        steps.send(refused)


def test_too_new_an_api_versions_is_asked_again_in_the_version_that_is_served():
    exchange = Exchange("me")
    steps = exchange.negotiate()
    next(steps)
    served = [ApiVersion(api_key=ApiVersionsRequest.API_KEY, min_version=0, max_version=2)]
    refused = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=served)
    assert steps.send(refused).highest == 2
    with pytest.raises(StopIteration):
        steps.send(ApiVersionsResponse(error_code=0, api_keys=served))
    assert exchange.versions == {ApiVersionsRequest.API_KEY: (0, 2)}


@pytest.mark.parametrize("host", ["a..b", "a" * 70])
async def test_a_host_that_is_no_name_is_one_that_is_away(host, settings):
    with pytest.raises(ConnectionFailed, match="no name of a host"):
        await Connection.open(AsyncioNet(), Address(host, 9092), settings)
    with pytest.raises(ConnectionFailed, match="no name of a host"):
        BlockingConnection(Address(host, 9092), settings)
