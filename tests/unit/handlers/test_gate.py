"""The gate: every request passes it once, whichever way it goes; answers carry a throttle time."""

import struct

import pytest

from ottla.env.clock import ManualClock
from ottla.errors import CloseConnection
from ottla.handlers import gate
from ottla.handlers.apis.api_versions import ApiVersions
from ottla.handlers.call import NOT_DIRECT
from ottla.handlers.client import Client
from ottla.handlers.router import LONG_FRAME_BYTES, Router
from ottla.handlers.throttle import throttle_position
from ottla.ids import ANONYMOUS, Principal
from ottla.network.connection import Peer
from ottla.pending import Pending
from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.header import encode_request_header, response_header_is_flexible
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from ottla.sliced import Slices
from ottla.turns import Turns

ALICE = Principal("User", "alice")
CLIENT = Client("10.0.0.9", 5000, "10.0.0.1", 9092, ALICE)
THROTTLE_MS = 0x01020304
CORRELATION = 7


class Passage(gate.Passage):
    def __init__(self, throttle_ms):
        self.throttle_ms = throttle_ms
        self.answers = 0

    def answered(self, *, has_answer=True):
        self.answers += 1
        return self.throttle_ms


class Gate:
    """Counts everything, and throttles all alike."""

    def __init__(self, throttle_ms=THROTTLE_MS):
        self.throttle_ms = throttle_ms
        self.asked = []
        self.passages = []

    def admit(self, key, frame, client, client_id_bytes):
        self.asked.append((key, bytes(frame), client))
        assert client_id_bytes == len("me")
        self.passages.append(Passage(self.throttle_ms))
        return self.passages[-1]

    @property
    def answers(self):
        return [passage.answers for passage in self.passages]


class Scripted:
    """Answers what it is told to, and keeps what it was asked."""

    def __init__(self, response):
        self.response = response
        self.calls = []

    def handle(self, request, call):
        self.calls.append(call)
        return self.response


class Direct(Scripted):
    """Has a direct way as well, which answers ``direct_answer`` encoded."""

    def __init__(self, response, direct_answer):
        super().__init__(response)
        self.direct_answer = direct_answer

    def direct(self, version, encode):
        def serve(frame, position, correlation_id, client):
            answer = self.direct_answer
            return encode(answer, correlation_id) if isinstance(answer, ProduceResponse) else answer

        return serve


def router_of(key, handler, gate):
    return Router({key: lambda: handler}, Slices(Turns(ManualClock())), gate.admit)


def heartbeat(version=4, group="g"):
    body = HeartbeatRequest(group_id=group, generation_id=1, member_id="m").encode(version)
    return memoryview(encode_request_header(12, version, CORRELATION, "me") + bytes(body))


def produce(version):
    body = ProduceRequest(acks=1, timeout_ms=5, topic_data=[]).encode(version)
    return memoryview(encode_request_header(0, version, CORRELATION, "me") + bytes(body))


def told(answer, response, version):
    """The message in an answer, whose length and correlation id are right."""
    data = b"".join(map(bytes, answer))
    length, correlation = struct.unpack_from(">ii", data)
    assert (length, correlation) == (len(data) - 4, CORRELATION)
    begin = 8 + response_header_is_flexible(response.API_KEY, version)
    return response.decode(memoryview(data[begin:]), version)


def in_steps(response):
    yield None
    return response


def resolved(value):
    pending = Pending()
    pending.resolve(value)
    return pending


def heartbeat_answers():
    return HeartbeatResponse(error_code=0)


@pytest.mark.parametrize("group", ["g", "g" * LONG_FRAME_BYTES], ids=["short", "long"])
@pytest.mark.parametrize(
    "way",
    [
        heartbeat_answers,
        lambda: resolved(heartbeat_answers()),
        lambda: in_steps(heartbeat_answers()),
        lambda: resolved(in_steps(heartbeat_answers())),
        lambda: in_steps(resolved(heartbeat_answers())),
    ],
    ids=["now", "later", "in steps", "later in steps", "in steps, later"],
)
@pytest.mark.parametrize("version", range(5))
def test_a_request_passes_the_gate_once_and_its_answer_tells_the_throttle_time(version, way, group):
    gate = Gate()
    handler = Scripted(way())
    router = router_of(ApiKey.HEARTBEAT, handler, gate)
    data = heartbeat(version, group[: 32767 - 1])
    answer = router.dispatch(data, CLIENT)
    if isinstance(answer, Pending):
        assert answer.error is None
        answer = answer.value
    assert gate.asked == [(ApiKey.HEARTBEAT, bytes(data), CLIENT)]
    assert gate.answers == [1]
    expected = THROTTLE_MS if version >= 1 else 0
    assert told(answer, HeartbeatResponse, version).throttle_time_ms == expected
    assert [call.principal for call in handler.calls] == [ALICE]


def test_the_gate_is_told_of_a_waiting_answer_when_it_is_ready():
    gate = Gate()
    waiting = Pending()
    answer = router_of(ApiKey.HEARTBEAT, Scripted(waiting), gate).dispatch(heartbeat(), CLIENT)
    assert gate.answers == [0]
    waiting.resolve(heartbeat_answers())
    assert gate.answers == [1]
    assert told(answer.value, HeartbeatResponse, 4).throttle_time_ms == THROTTLE_MS


@pytest.mark.parametrize("response", [None, resolved(None), in_steps(None)])
def test_the_gate_is_told_of_a_request_without_an_answer(response):
    gate = Gate()
    answer = router_of(ApiKey.PRODUCE, Scripted(response), gate).dispatch(produce(9), CLIENT)
    assert (answer.value if isinstance(answer, Pending) else answer) is None
    assert gate.answers == [1]


def test_the_larger_throttle_time_counts():
    """A handler sets one as well: of the quota on changes of topics."""
    gate = Gate(throttle_ms=5)
    for own, expected in ((3, 5), (9, 9)):
        handler = Scripted(HeartbeatResponse(error_code=0, throttle_time_ms=own))
        answer = router_of(ApiKey.HEARTBEAT, handler, gate).dispatch(heartbeat(), CLIENT)
        assert told(answer, HeartbeatResponse, 4).throttle_time_ms == expected


def produce_answer():
    part = PartitionProduceResponse(index=3, base_offset=2**40)
    return ProduceResponse(
        responses=[TopicProduceResponse(name="t", topic_id=b"t" * 16, partition_responses=[part])]
    )


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("is_later", [False, True])
def test_the_answer_of_a_direct_way_tells_the_throttle_time(version, is_later):
    frames = []
    for throttle_ms in (0, THROTTLE_MS):
        gate, handler = Gate(throttle_ms), Direct(produce_answer(), NOT_DIRECT)
        router = router_of(ApiKey.PRODUCE, handler, gate)
        ordinary = router.dispatch(produce(version), CLIENT)
        plain = router_of(ApiKey.PRODUCE, Scripted(produce_answer()), Gate(0))
        framed = plain.dispatch(produce(version), CLIENT)
        handler.direct_answer = resolved(framed) if is_later else framed
        answer = router.dispatch(produce(version), CLIENT)
        assert len(handler.calls) == 1, "the second request went the direct way"
        assert gate.answers == [1, 1]
        frames.append((answer.value if is_later else answer, ordinary))
    for direct, ordinary in frames:
        assert b"".join(map(bytes, direct)) == b"".join(map(bytes, ordinary))
    assert told(frames[1][0], ProduceResponse, version).throttle_time_ms == THROTTLE_MS


def test_what_the_direct_way_leaves_to_the_ordinary_one_passes_the_gate_once():
    gate = Gate()
    router = router_of(ApiKey.PRODUCE, Direct(produce_answer(), NOT_DIRECT), gate)
    for _ in range(2):  # The first one makes the route.
        router.dispatch(produce(9), CLIENT)
    assert gate.answers == [1, 1]


def test_tags_behind_the_throttle_time_stay():
    """The ordinary answer of a node that does not lead names the leaders in a tag at the end."""
    response = produce_answer()
    leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
    response.responses[0].partition_responses[0].current_leader = leader
    response.node_endpoints = [NodeEndpoint(node_id=2, host="second", port=9092, rack=None)]
    answer = router_of(ApiKey.PRODUCE, Scripted(response), Gate()).dispatch(produce(13), CLIENT)
    found = told(answer, ProduceResponse, 13)
    assert found.throttle_time_ms == THROTTLE_MS
    assert found.node_endpoints == response.node_endpoints


@pytest.mark.parametrize("way", ["ordinary", "direct"])
def test_a_refusal_at_the_gate_closes_the_connection_before_anything_happens(way):
    handler = Direct(produce_answer(), NOT_DIRECT)
    gate = Gate()

    def admit(key, frame, client, client_id_bytes):
        if gate.passages:
            raise CloseConnection("its session has expired")
        return gate.admit(key, frame, client, client_id_bytes)

    router = Router({ApiKey.PRODUCE: lambda: handler}, Slices(Turns(ManualClock())), admit)
    router.dispatch(produce(9), CLIENT)
    if way == "direct":
        handler.direct_answer = [b"served"]
    with pytest.raises(CloseConnection):
        router.dispatch(produce(9), CLIENT)
    assert len(handler.calls) == 1


def test_api_versions_from_the_future_passes_the_gate_once():
    gate = Gate()
    router = Router({}, Slices(Turns(ManualClock())), gate.admit)
    router.add(ApiKey.API_VERSIONS, lambda: ApiVersions(router.served))
    frame = encode_request_header(ApiKey.API_VERSIONS, 0, CORRELATION, "me")
    future = memoryview(frame[:2] + b"\0\x63" + frame[4:] + b"\0")
    found = told(router.dispatch(future, CLIENT), ApiVersionsResponse, 0)
    assert found.error_code == 35
    assert gate.answers == [1]


def test_a_response_without_the_field_is_left_alone():
    assert "throttle_time_ms" not in WriteTxnMarkersResponse.FIELDS
    position = throttle_position(WriteTxnMarkersResponse, 1, is_flexible_header=True)
    assert position is None


@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.HEARTBEAT])
def test_the_position_is_that_of_the_message_table(key):
    response = API_TABLE[key].response
    made = {ApiKey.HEARTBEAT: heartbeat_answers, ApiKey.PRODUCE: produce_answer}
    for version in response.VERSIONS:
        is_flexible = response_header_is_flexible(key, version)
        at = throttle_position(response, version, is_flexible_header=is_flexible)
        make = made.get(key, lambda: response(topics=[]))
        message = make()
        before = bytes(9 if is_flexible else 8) + bytes(message.encode(version))
        message.throttle_time_ms = THROTTLE_MS
        after = bytes(9 if is_flexible else 8) + bytes(message.encode(version))
        changed = bytearray(before)
        if at is not None:
            struct.pack_into(">i", changed, at, THROTTLE_MS)
        assert bytes(changed) == after


def test_a_connection_tells_the_handlers_all_that_it_knows_of_its_peer():
    """The broker hands the fields over one by one."""
    assert Client._fields == (*Peer._fields, "listener", "line", "access")
    assert Peer("10.0.0.9", 5000, "10.0.0.1", 9092).principal is ANONYMOUS


def test_a_client_without_credentials_is_anonymous():
    assert Client("10.0.0.9", 5000, "10.0.0.1", 9092).principal is ANONYMOUS
    assert str(ANONYMOUS) == "User:ANONYMOUS"
