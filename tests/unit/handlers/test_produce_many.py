"""Produce over very many partitions: in slices, and to the same effect as at once."""

import asyncio

import pytest

from ottla.env.clock import ManualClock
from ottla.errors import CloseConnection, ErrorCode
from ottla.handlers.advertised import Advertised
from ottla.handlers.apis.produce.many import PARTITIONS_AT_A_TIME
from ottla.handlers.apis.produce.ordinary import Produce
from ottla.handlers.client import Client
from ottla.handlers.router import LONG_FRAME_BYTES, Router
from ottla.ids import NodeId
from ottla.pending import Pending
from ottla.protocol.apis import ApiKey
from ottla.protocol.header import encode_request_header
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.request_memory import RequestMemory
from ottla.sliced import Slices
from ottla.turns import Turns

CLIENT = Client("10.0.0.9", 5000, "10.0.0.1", 9092)


class AtOnce:
    """A Produce handler that knows no long requests."""

    def __init__(self, produce):
        self.handle = produce.handle


class Way:
    """A broker that serves Produce, one way or the other, a slice at a time."""

    def __init__(self, broker, wrap):
        self.broker = broker
        self.node = broker.node
        self.memory = RequestMemory(1 << 30)
        self.clock = ManualClock()
        self.turns = Turns(self.clock)
        produce = Produce(
            broker.node.replica_manager,
            broker.image,
            Advertised(NodeId(1), {"": ("here", 9092)}),
            lambda: broker.transactions,
        )
        self.router = Router({ApiKey.PRODUCE: lambda: wrap(produce)}, Slices(self.turns))
        self.waiting = None

    def say(self, data):
        frame = memoryview(bytearray(data))

        def keep(kept):
            return memoryview(bytearray(kept)), self.memory.hold(len(kept))

        answer = self.router.dispatch(frame, CLIENT, keep)
        frame[:] = bytes(len(frame))  # The connection receives something else into it.
        return answer

    async def answered(self, data):
        answer = self.say(data)
        if isinstance(answer, Pending):
            while not answer.is_done:
                self.node.executor.run_all()
                await asyncio.sleep(0)
            if answer.error is not None:
                raise answer.error
            answer = answer.value
        assert self.memory.used_bytes == 0
        return b"".join(map(bytes, answer))

    def log(self, index=0):
        log = self.node.partition(index).log
        region = log.read(0, max_bytes=10**8, upper_offset=10**6, min_one_message=True).region
        return log.log_end_offset, b"" if region is None else region.read()


@pytest.fixture
def ways(serve):
    return lambda **config: [Way(serve(**config), wrap) for wrap in (lambda one: one, AtOnce)]


def frame(version, topics, *, acks=-1, transactional_id=None):
    data = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=n, records=r) for n, r in parts],
        )
        for name, parts in topics
    ]
    body = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=data
    ).encode(version)
    made = encode_request_header(ApiKey.PRODUCE, version, 7, "me") + bytes(body)
    assert len(made) > LONG_FRAME_BYTES
    return made


def codes(answer, version=9):
    response = ProduceResponse.decode(answer[9 if version >= 9 else 8 :], version)
    return [[part.error_code for part in topic.partition_responses] for topic in response.responses]


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize("first", [1, PARTITIONS_AT_A_TIME - 1, PARTITIONS_AT_A_TIME, 300, 900])
async def test_what_is_served_part_by_part_is_answered_and_written_as_at_once(
    ways, words, version, first
):
    record = words.batch(b"one")
    known = [(0, record)] * first
    unknown = [(index, record) for index in range(5, 1000)]
    empty = [("t", []), ("nothing", [])]
    data = frame(version, [("t", known), ("x", unknown), *empty, ("t", [(0, b""), *known])])
    both = ways()
    parts, at_once = [await way.answered(data) for way in both]
    assert parts == at_once
    assert both[0].log() == both[1].log()
    assert both[0].log()[0] == 2 * first


async def test_others_have_their_turns_while_very_much_is_produced(ways, words):
    way, _ = ways()
    record = words.batch(b"one")
    look = way.clock.monotonic
    way.clock.monotonic = lambda: (way.clock.hold(0.001), look())[1]
    answer = way.say(frame(9, [("t", [(0, record)] * 2000)]))
    assert isinstance(answer, Pending)
    for _ in range(1000):
        if way.log()[0]:
            break
        await asyncio.sleep(0)
    assert not answer.is_done
    assert not answer.overlaps, "a successor of the connection would be written before its end"
    assert way.log()[0] < 2000
    assert way.memory.used_bytes > 0
    answer.cancel()  # Its client is gone.
    assert way.memory.used_bytes == 0


def test_without_acks_all_are_written_and_then_the_connection_ends(ways, words):
    record = words.batch(b"one")
    some = [(0, record)] * 600
    way, _ = ways()
    assert way.say(frame(9, [("t", some * 2)], acks=0)) is None
    with pytest.raises(CloseConnection):
        way.say(frame(9, [("t", some), ("x", some), ("t", some)], acks=0))
    assert way.log()[0] == 2400


async def test_several_transactional_producers_in_one_request_are_refused_all_of_them(ways, words):
    batches = [
        words.batch(b"one", producer_id=number, producer_epoch=0, transactional=True)
        for number in (1, 2)
    ]
    way, _ = ways()
    parts = [(0, batches[0])] * 1000 + [(0, batches[1])]
    answer = await way.answered(frame(9, [("t", parts), ("x", parts[:1])], transactional_id="id"))
    refused = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert codes(answer) == [[refused] * 1001, [refused]]
    assert way.log()[0] == 0


def test_a_long_request_of_few_partitions_is_read_where_it_was_received(ways, words):
    way, _ = ways()
    record = words.batch(b"x" * 50_000)

    def never(_):
        raise AssertionError("it was copied")

    data = frame(9, [("t", [(0, record)] * 2)])
    answer = way.router.dispatch(memoryview(bytearray(data)), CLIENT, never)
    assert isinstance(answer, Pending)
    assert answer.overlaps
