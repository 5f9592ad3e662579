"""The direct way of Produce against the ordinary one: the same bytes, the same effects, always."""

import pytest

from ottla.env.clock import ManualClock
from ottla.env.faulty_disk import DiskCall
from ottla.errors import CloseConnection, MalformedMessage
from ottla.handlers import gate
from ottla.handlers.advertised import Advertised
from ottla.handlers.apis.produce.direct import DirectProduce
from ottla.handlers.apis.produce.ordinary import Produce
from ottla.handlers.call import NOT_DIRECT
from ottla.handlers.client import Client
from ottla.handlers.router import Router
from ottla.ids import NodeId, TopicPartition
from ottla.pending import Pending
from ottla.protocol.apis import ApiKey
from ottla.protocol.header import encode_request_header
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.records.batch import TimestampType
from ottla.records.compression import Codec
from ottla.sliced import Slices
from ottla.turns import Turns

CLIENT = Client("10.0.0.9", 5000, "10.0.0.1", 9092)
VERSIONS = range(3, 14)


class Ordinary:
    """A Produce handler without its direct way."""

    def __init__(self, produce):
        self.handle = produce.handle


class Way:
    """A broker that serves Produce, one way or the other."""

    def __init__(self, broker, wrap, admit=None):
        self.node = broker.node
        self.image = broker.image
        handler = Produce(
            broker.node.replica_manager,
            broker.image,
            Advertised(NodeId(1), {"": ("here", 9092)}),
            lambda: broker.transactions,
        )
        slices = Slices(Turns(ManualClock()))
        self.router = Router({ApiKey.PRODUCE: lambda: wrap(handler)}, slices, admit)

    def say(self, frame):
        """What the router does with a frame, in words that can be compared."""
        try:
            answer = self.router.dispatch(memoryview(bytearray(frame)), CLIENT)
        except (MalformedMessage, CloseConnection) as error:
            return type(error)
        if isinstance(answer, Pending):
            overlaps, answer = answer.overlaps, None
            self.node.executor.run_all()
            return overlaps, answer
        return None if answer is None else b"".join(map(bytes, answer))

    def log(self, index=0):
        log = self.node.partition(index).log
        region = log.read(0, max_bytes=10**6, upper_offset=10**6, min_one_message=True).region
        return log.log_end_offset, b"" if region is None else region.read()


@pytest.fixture
def ways(serve, words):
    """Both ways, each with a broker of its own in the same state; taught every version."""

    def start(**config):
        config.setdefault("flush_messages", words.ASYNC_FLUSH)
        both = [Way(serve(**config), wrap) for wrap in (lambda handler: handler, Ordinary)]
        for way in both:
            for version in VERSIONS:  # The first request of a version makes its route.
                way.say(frame(version, [("nowhere", [(0, b"")])]))
        assert len(both[0].router._directs) == len(VERSIONS)
        assert not both[1].router._directs
        return both

    return start


def frame(version, topics, *, acks=-1, client_id="me", transactional_id=None, topic_id=None):
    """``topics``: (name, [(partition, records)])."""
    data = []
    for name, parts in topics:
        topic = TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=n, records=r) for n, r in parts],
        )
        if topic_id is not None:
            topic.topic_id = topic_id
        data.append(topic)
    body = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=data
    ).encode(version)
    return encode_request_header(ApiKey.PRODUCE, version, 7, client_id) + bytes(body)


def agree(both, data):
    """Let both ways serve ``data``; return what both said."""
    said, expected = [way.say(data) for way in both]
    assert said == expected
    assert both[0].log() == both[1].log()
    return said


@pytest.fixture
def direct_ways(monkeypatch):
    """Counts the requests that went the direct way to their end."""
    counted = []
    serve = DirectProduce.serve

    def counting(self, *arguments):
        answer = serve(self, *arguments)
        counted.append(answer is not NOT_DIRECT)
        return answer

    monkeypatch.setattr(DirectProduce, "serve", counting)
    return counted


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_id", ["me", "", None, "x" * 300, "ä"])
def test_a_good_batch_is_answered_to_the_byte_alike(
    ways, words, topic_id, direct_ways, version, client_id
):
    both = ways()
    direct_ways.clear()
    for size in (1, 200):  # A compact length of one byte, and of two.
        records = words.batch(b"v" * size)
        for acks in (1, -1):
            options = {"acks": acks, "client_id": client_id, "topic_id": topic_id}
            said = agree(both, frame(version, [("t", [(0, records)])], **options))
            assert isinstance(said, bytes)
    assert direct_ways
    assert all(direct_ways), "all of these are of the direct form"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_append_time_and_the_log_start_are_told_alike(ways, words, topic_id, version):
    both = ways(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    data = frame(version, [("t", [(1, words.batch(b"a"))])], topic_id=topic_id)
    assert isinstance(agree(both, data), bytes)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_waiting_answer_is_the_same_once_it_is_there(serve, words, topic_id, version):
    both = [Way(serve(), wrap) for wrap in (lambda handler: handler, Ordinary)]
    data = frame(version, [("t", [(0, words.batch())])], topic_id=topic_id)
    for _ in range(2):
        answers = [way.router.dispatch(memoryview(bytearray(data)), CLIENT) for way in both]
        assert [answer.overlaps for answer in answers] == [True, True]
        for way in both:
            way.node.executor.run_all()
        assert answers[0].value == answers[1].value


class Throttled(gate.Passage):
    """A passage whose client has to wait."""

    def answered(self, *, has_answer=True):
        return 0x01020304


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_tell_the_throttle_time_alike(serve, words, topic_id, version):
    """At once, when the answer is there, and in a refusal."""
    both = [
        Way(serve(), wrap, lambda *_: Throttled()) for wrap in (lambda handler: handler, Ordinary)
    ]
    for records in (words.batch(b"a"), words.batch(b"b"), words.batch(b"c")[:-1] + b"?"):
        data = frame(version, [("t", [(0, records)])], topic_id=topic_id)
        answers = [way.router.dispatch(memoryview(bytearray(data)), CLIENT) for way in both]
        for way in both:
            way.node.executor.run_all()
        said = [
            b"".join(map(bytes, one.value if isinstance(one, Pending) else one)) for one in answers
        ]
        assert said[0] == said[1]
        assert b"\x01\x02\x03\x04" in said[0][-5:]


@pytest.mark.parametrize("version", VERSIONS)
def test_refusals_are_answered_alike(ways, words, topic_id, version):
    both = ways(max_message_bytes=500)
    good = words.batch(b"a")
    bad_sum = bytearray(good)
    bad_sum[-1] ^= 1
    for where, records in (
        (("t", 0), bad_sum),
        (("t", 0), words.batch(b"x" * 600)),
        (("t", 0), good + good),
        (("t", 0), good[:40]),
        (("t", 0), b""),
        (("t", 0), None),
        (("t", 9), good),
        (("nowhere", 0), good),
        (("t", 0), words.batch(b"a", codec=Codec.ZSTD)),
    ):
        name, index = where
        data = frame(version, [(name, [(index, records)])], topic_id=topic_id)
        agree(both, data)
    agree(both, frame(version, [("t", [(0, good)])], topic_id=b"no such topic id"[:16]))


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_of_other_forms_go_the_ordinary_way(ways, words, topic_id, direct_ways, version):
    both = ways()
    good = words.batch(b"a")
    direct_ways.clear()
    for topics, options in (
        ([("t", [(0, good)] * 129)], {}),
        ([("t", [(0, good)]), ("t", [])], {}),
        ([("t", [(0, good), (1, good[:60])])], {}),
        ([("t", [(0, good), (9, good)])], {}),
        ([("t", [(0, good), (1, words.batch(b"a", transactional=True))])], {}),
        ([("t", [(0, good), (1, good)])], {"acks": 0}),
        ([("t", [(0, good), (1, good)])], {"transactional_id": "x"}),
        ([("t", [])], {}),
        ([], {}),
        ([("t", [(0, good)])], {"acks": 0}),
        ([("t", [(0, good)])], {"acks": 2}),
        ([("t", [(0, good)])], {"transactional_id": "x"}),
        *([([("__consumer_offsets", [(0, good)])], {})] if version < 13 else []),
        ([("t", [(0, words.batch(b"a", transactional=True))])], {}),
    ):
        agree(both, frame(version, topics, topic_id=topic_id, **options))
    assert not any(direct_ways)


@pytest.mark.parametrize("version", VERSIONS)
def test_broken_frames_end_alike_wherever_they_are_cut_or_changed(ways, words, topic_id, version):
    data = frame(version, [("t", [(0, words.batch(b"a"))])], topic_id=topic_id)
    head = len(data) - len(words.batch(b"a")) + 30
    both = ways()
    for size in range(10, len(data)):
        agree(both, data[:size])
    agree(both, data + b"\0")
    for position in [*range(8, head), *range(len(data) - 4, len(data))]:
        for flip in (1, 0x80, 0xFF):
            changed = bytearray(data)
            changed[position] ^= flip
            agree(both, changed)


@pytest.mark.parametrize("version", VERSIONS)
def test_at_the_wrong_node_both_name_the_leader(ways, words, topic_id, version):
    both = ways()
    for way in both:
        way.node.change(way.node.led(0, epoch=3, leader=2))
    name = "" if version >= 13 else "t"
    said = agree(both, frame(version, [(name, [(0, words.batch())])], topic_id=topic_id))
    assert (b"second" in said) == (version >= 10)


@pytest.mark.parametrize("version", VERSIONS)
def test_nobody_writes_to_the_brokers_own_topics_by_the_direct_way(ways, words, topic_id, version):
    """The offsets of all groups stand there."""
    both = ways()
    for way in both:
        partition = way.node.partition()
        own = TopicPartition("__consumer_offsets", 0)
        way.node.replica_manager._partitions[own] = partition
        way.image.names[topic_id] = own.topic
    data = frame(version, [("__consumer_offsets", [(0, words.batch())])], topic_id=topic_id)
    assert b"\0\x11" in agree(both, data), "INVALID_TOPIC_EXCEPTION"
    assert both[0].log() == (0, b"")


SEVERAL = (
    [("t", (0, 1))],
    [("t", (1, 0, 1))],
    [("t", (0,)), ("t", (1, 0))],
    [("t", (0,) * 128)],
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("layout", SEVERAL)
def test_a_batch_for_each_of_some_partitions_is_answered_to_the_byte_alike(
    ways, words, topic_id, direct_ways, version, layout
):
    both = ways()
    direct_ways.clear()
    for size in (1, 200):
        records = words.batch(b"v" * size)
        topics = [(name, [(index, records) for index in indexes]) for name, indexes in layout]
        for acks in (1, -1):
            assert isinstance(
                agree(both, frame(version, topics, acks=acks, topic_id=topic_id)), bytes
            )
            assert both[0].log(1) == both[1].log(1)
    assert direct_ways == [True] * 4


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_refused_among_others_is_answered_alike(ways, words, topic_id, version):
    both = ways(max_message_bytes=500)
    good, bad_sum = words.batch(b"a"), words.batch(b"b")
    bad_sum[-1] ^= 1
    for other in (bad_sum, words.batch(b"x" * 600), good + good, b"", None, good[:61]):
        for parts in ([(0, good), (1, other)], [(1, other), (0, good)]):
            agree(both, frame(version, [("t", parts)], topic_id=topic_id))
            assert both[0].log(1) == both[1].log(1)
    agree(both, frame(version, [("t", [(0, good), (9, good)])], topic_id=topic_id))
    agree(both, frame(version, [("nowhere", [(0, good), (1, good)])], topic_id=topic_id))
    agree(both, frame(version, [("t", [(0, good), (1, good)])], topic_id=b"no such topic id"[:16]))


@pytest.mark.parametrize("version", VERSIONS)
def test_several_that_wait_are_answered_alike_and_told_the_throttle_time(
    serve, words, topic_id, version
):
    both = [
        Way(serve(), wrap, lambda *_: Throttled()) for wrap in (lambda handler: handler, Ordinary)
    ]
    data = frame(version, [("t", [(0, words.batch()), (1, words.batch())])], topic_id=topic_id)
    for _ in range(2):
        answers = [way.router.dispatch(memoryview(bytearray(data)), CLIENT) for way in both]
        assert [answer.overlaps for answer in answers] == [True, True]
        for way in both:
            way.node.executor.run_all()
        said = [b"".join(map(bytes, answer.value)) for answer in answers]
        assert said[0] == said[1]
        assert b"\x01\x02\x03\x04" in said[0][-5:]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_flush_that_fails_under_several_is_told_alike(serve, words, topic_id, version):
    both = [Way(serve(), wrap) for wrap in (lambda handler: handler, Ordinary)]
    data = frame(version, [("t", [(0, words.batch()), (1, words.batch())])], topic_id=topic_id)
    for way in both:
        way.say(data)
    answers = [way.router.dispatch(memoryview(bytearray(data)), CLIENT) for way in both]
    for way in both:
        way.node.disk.fail(DiskCall.SYNC_VOLUME)
        way.node.executor.run_all()
    said = [b"".join(map(bytes, answer.value)) for answer in answers]
    assert said[0] == said[1]
    assert b"\0\x38" in said[0], "KAFKA_STORAGE_ERROR"


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_of_several_end_alike_wherever_they_are_cut_or_changed(
    ways, words, topic_id, version
):
    good = words.batch(b"a")
    data = frame(version, [("t", [(0, good), (1, good)]), ("t", [(1, good)])], topic_id=topic_id)
    both = ways()
    for size in range(10, len(data)):
        agree(both, data[:size])
    agree(both, data + b"\0")
    for position in range(8, len(data)):
        for flip in (1, 0x80, 0xFF):
            changed = bytearray(data)
            changed[position] ^= flip
            agree(both, changed)
            assert both[0].log(1) == both[1].log(1)


@pytest.mark.parametrize("version", VERSIONS)
def test_several_of_which_one_is_led_elsewhere_name_the_leader_alike(
    ways, words, topic_id, version
):
    both = ways()
    for way in both:
        way.node.change(way.node.led(1, epoch=3, leader=2))
    name = "" if version >= 13 else "t"
    parts = [(0, words.batch()), (1, words.batch())]
    said = agree(both, frame(version, [(name, parts)], topic_id=topic_id))
    assert (b"second" in said) == (version >= 10)
