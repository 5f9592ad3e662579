"""No request holds the loop for long, however much it names."""

import asyncio
import gc
import socket
import struct

import pytest

from ottla.broker import Broker
from ottla.config.files import broker_config
from ottla.env.clock import ManualClock
from ottla.handlers.client import Client
from ottla.handlers.router import Router
from ottla.pending import Pending
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.sliced import Slices
from ottla.turns import Turns
from tools.loop_meter import LoopMeter
from tools.worst_requests import Topics, framed, requests

pytestmark = pytest.mark.slow

TOPICS = 1000
ELEMENTS = 60_000
TURN_SECONDS_MAX = 0.05
"""Of CPU. Slices take 20 ms together at most; most of these requests in one turn 100 to 600."""
TIMES_MAX = 3
"""How often a request that took longer is asked: on a machine short of memory the system's own work
counts, too. Work that is in no slice takes as long each time."""
ASKED = [
    ("FETCH", "long unknown v12"),
    ("FETCH", "long unknown v13"),
    ("LIST_OFFSETS", "long unknown v6"),
    ("OFFSET_FOR_LEADER_EPOCH", "long one v4"),
    ("METADATA", "long unknown v12"),
    ("DELETE_RECORDS", "long unknown v2"),
    ("DESCRIBE_CONFIGS", "long unknown v4"),
    ("DESCRIBE_PRODUCERS", "long unknown v0"),
    ("FIND_COORDINATOR", "long unknown v4"),
    ("OFFSET_COMMIT", "long one v9"),
    ("OFFSET_FETCH", "long unknown v9"),
    ("OFFSET_DELETE", "long one v0"),
    ("LEAVE_GROUP", "long unknown v4"),
    ("DESCRIBE_GROUPS", "long unknown v5"),
    ("CONSUMER_GROUP_DESCRIBE", "long unknown v1"),
    ("DELETE_GROUPS", "long unknown v2"),
    ("ADD_PARTITIONS_TO_TXN", "long one v3"),
    ("TXN_OFFSET_COMMIT", "long one v3"),
    ("WRITE_TXN_MARKERS", "long one v1"),
    ("WRITE_TXN_MARKERS", "long unknown v1"),
    ("DESCRIBE_TOPIC_PARTITIONS", "long unknown v0"),
    ("DESCRIBE_TRANSACTIONS", "long unknown v0"),
    ("DELETE_RECORDS", "long one v2"),
    ("ALTER_CONFIGS", "long one v2"),
    ("ADD_PARTITIONS_TO_TXN", "long unknown v5"),
    ("CREATE_TOPICS", "long one v6"),
    ("CREATE_TOPICS", "long one v7"),
    ("CREATE_PARTITIONS", "long unknown v3"),
    ("DELETE_TOPICS", "long unknown v5"),
    ("JOIN_GROUP", "long unknown v3"),
    ("SYNC_GROUP", "long unknown v3"),
    ("CONSUMER_GROUP_HEARTBEAT", "long unknown v1"),
    ("CONSUMER_GROUP_HEARTBEAT", "long unknown v0"),
    ("PRODUCE", "long known v9"),
    ("PRODUCE", "long unknown v9"),
    ("METADATA", "all v12"),
]


def ask(connection, frame):
    connection.sendall(frame)
    (size,) = struct.unpack(">i", receive(connection, 4))
    return receive(connection, size)


def receive(connection, size):
    found = bytearray()
    while len(found) < size:
        piece = connection.recv(size - len(found))
        assert piece, "it hung up"
        found += piece
    return bytes(found)


def talk(address, meter):
    """Make the topics, ask everything; return the longest turn of each."""
    with socket.create_connection(address, timeout=300) as connection:
        made = [
            CreatableTopic(
                name=f"t{n}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            for n in range(TOPICS)
        ]
        fields = {"topics": made, "timeout_ms": 300_000}
        answer = ask(connection, framed("CREATE_TOPICS", 7, fields))
        made = CreateTopicsResponse.decode(answer[5:], 7).topics
        assert {topic.error_code for topic in made} == {0}
        ids = {topic.name: topic.topic_id for topic in made}
        for kind in (0, 1):  # Their topics are made by the first who asks.
            coordinator = {"key_type": kind, "coordinator_keys": ["worst-1"]}
            ask(connection, framed("FIND_COORDINATOR", 4, coordinator))
        longest = {}
        topics = Topics(list(ids), list(ids.values()), 1)
        for request in requests(topics, ELEMENTS, only=ASKED):
            turns = []
            while len(turns) < TIMES_MAX and min(turns, default=(1,))[0] > TURN_SECONDS_MAX:
                meter.reset()
                assert len(ask(connection, request.frame)) > 10
                turns.append((meter.longest_seconds, meter.what))
            longest[request.api, request.what] = min(turns)
    return longest


async def test_a_long_request_is_decoded_in_slices():
    class Slow(ManualClock):
        def monotonic(self):
            self.hold(0.001)
            return super().monotonic()

    class Handler:
        def handle(self, request, call):
            return MetadataResponse(brokers=[], topics=[])

    router = Router({ApiKey.METADATA: Handler}, Slices(Turns(Slow())))
    table = MetadataRequest.FIELDS["topics"].of
    asked = [table(topic_id=bytes(16), name=f"name-{n}") for n in range(20_000)]
    frame = memoryview(framed("METADATA", 12, {"topics": asked}))[4:]
    found = router.dispatch(frame, Client("10.0.0.9", 5000, "10.0.0.1", 9092))
    assert isinstance(found, Pending)
    done = asyncio.Event()
    found.on_done(lambda _: done.set())
    await done.wait()
    assert found.error is None


@pytest.mark.timeout(300)
async def test_a_request_that_names_very_much_holds_the_loop_for_no_more_than_a_slice():
    meter = LoopMeter()
    config = broker_config({"listeners": "PLAINTEXT://127.0.0.1:0"})
    broker = Broker(config, memory=True)
    await broker.start()
    gc.disable()  # The client's objects are in this process, too.
    try:
        with meter.measuring():
            longest = await asyncio.to_thread(talk, broker.address, meter)
    finally:
        gc.enable()
        await broker.stop()
    assert set(longest) == set(ASKED)
    held = {asked: turn for asked, turn in longest.items() if turn[0] > TURN_SECONDS_MAX}
    assert not held
