"""The direct way of OffsetCommit against the ordinary one: the same bytes, the same memory."""

import importlib.util
import random
from pathlib import Path

import pytest

from ottla.env.clock import ManualClock
from ottla.errors import MalformedMessage
from ottla.handlers.apis.offset_commit.direct import _KNOWN_MAX, DirectOffsetCommit
from ottla.handlers.apis.offset_commit.ordinary import OffsetCommit
from ottla.handlers.call import NOT_DIRECT
from ottla.handlers.client import Client
from ottla.handlers.router import Router
from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.metadata.image import TopicImage
from ottla.pending import Pending
from ottla.protocol.apis import ApiKey
from ottla.protocol.header import encode_request_header
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.sliced import Slices
from ottla.turns import Turns

path = Path(__file__).parents[1] / "coordinator" / "conftest.py"
spec = importlib.util.spec_from_file_location("coordinator_doubles", path)
doubles = importlib.util.module_from_spec(spec)
spec.loader.exec_module(doubles)

CLIENT = Client("10.0.0.9", 5000, "10.0.0.1", 9092)
IDS = {"t": TopicId(b"the topic with t"), "other": TopicId(b"the other topic!")}
VERSIONS = range(2, 11)


class Ordinary:
    """An OffsetCommit handler without its direct way."""

    def __init__(self, handler):
        self.handle = handler.handle


class Way:
    """A coordinator of two partitions' groups, with topics of 300 and of 2 partitions."""

    def __init__(self, wrap):
        self.groups = doubles.GroupNode()
        for name, count in (("t", 300), ("other", 2)):
            self.groups.topics[name] = TopicImage(name, IDS[name], (doubles.state_of(),) * count)
        image = self.groups.image
        image.topic_by_id = lambda topic_id: next(
            (one for one in image.topics.values() if one.topic_id == topic_id), None
        )
        handler = OffsetCommit(self.groups.coordinator, image)
        self.router = Router(
            {ApiKey.OFFSET_COMMIT: lambda: wrap(handler)}, Slices(Turns(ManualClock()))
        )
        self.direct = {
            version: DirectOffsetCommit(version, self.groups.coordinator, image)
            for version in VERSIONS
        }

    def say(self, frame):
        """What the router does with a frame, in words that can be compared."""
        try:
            answer = self.router.dispatch(memoryview(bytearray(frame)), CLIENT)
        except MalformedMessage as error:
            return type(error)
        if isinstance(answer, Pending):
            self.groups.settle()
            assert answer.error is None
            answer = answer.value
        return b"".join(map(bytes, answer))

    def offsets(self):
        machines = [shard.machine for shard in self.groups.runtime.shards]
        return [
            (sorted(group.group_id for group in one.groups), one.offsets._committed)
            for one in machines
        ]

    def logs(self):
        logs = [self.groups.partition(index).log for index in range(2)]
        return [log.log_end_offset for log in logs]


@pytest.fixture
def ways():
    """Both ways, in the same state; each has made its routes."""
    both = [Way(wrap) for wrap in (lambda handler: handler, Ordinary)]
    for way in both:
        for version in VERSIONS:
            way.say(frame(version, [("nowhere", [partition(0)])]))
    assert len(both[0].router._directs) == len(VERSIONS)
    assert not both[1].router._directs
    yield both
    for way in both:
        way.groups.check()


def partition(index, offset=5, epoch=-1, metadata=""):
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        committed_metadata=metadata,
    )


def frame(version, topics, group="g", *, client="c", **fields):
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=fields.get("generation", -1),
        member_id=fields.get("member", ""),
        group_instance_id=fields.get("instance") if version >= 7 else None,
        retention_time_ms=fields.get("retention_ms", -1) if version < 5 else -1,
        topics=[
            OffsetCommitRequestTopic(
                name=name if version < 10 else "",
                topic_id=IDS.get(name, NULL_TOPIC_ID) if version >= 10 else NULL_TOPIC_ID,
                partitions=partitions,
            )
            for name, partitions in topics
        ],
    )
    return encode_request_header(8, version, 77, client) + request.encode(version)


def same(ways, data):
    """Say it to both; return the answer."""
    answers = [way.say(data) for way in ways]
    assert answers[0] == answers[1]
    assert ways[0].offsets() == ways[1].offsets()
    assert ways[0].logs() == ways[1].logs()
    return answers[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_answer_alike(ways, version):
    epoch = 3 if version >= 6 else -1
    many = [partition(index, 2**40 + index, epoch) for index in range(300)]
    for topics in (
        [("t", [partition(1)])],
        [("t", many)],
        [("t", many[5:150]), ("other", [partition(1, 9, metadata=None)])],
        [("t", [partition(1, 6), partition(1, 7)])],
        [("t", [partition(1, metadata="x")]), ("other", [partition(0)])],
        [("t", [partition(1, metadata="x" * 9000), partition(2)])],
        [("t", [partition(300), partition(0)]), ("nowhere", [partition(0)])],
        [("t", [partition(-1)])],
        [("t", [])],
        [("nowhere", [])],
        [],
    ):
        answer = same(ways, frame(version, topics))
        assert isinstance(answer, bytes)
    same(ways, frame(version, [("t", [partition(1)])], client=None))
    for group in ("", "another", "g" * 300, "gr\u00fc\u00df", "\U0001f600"):
        same(ways, frame(version, [("t", [partition(2, 8)])], group=group))
    same(ways, frame(version, [("t", [partition(2)])], generation=4, member="m"))
    same(ways, frame(version, [("t", [partition(2)])], member="m", instance="i"))
    same(ways, frame(version, [("t", [partition(2)])], retention_ms=3_600_000))


@pytest.mark.parametrize("version", VERSIONS)
def test_commits_without_metadata_go_the_direct_way(ways, version):
    direct = ways[0].direct[version]

    def served(*arguments, **options):
        data = frame(version, *arguments, **options)
        answer = direct.serve(memoryview(data), 11, 77, CLIENT)
        ways[0].groups.settle()
        return answer is not NOT_DIRECT

    assert served([("t", [partition(1), partition(299, metadata=None)]), ("other", [partition(0)])])
    assert served([("t", [partition(1)])], retention_ms=5)
    assert served([("t", [partition(index) for index in range(300)])], group="g" * 1000)
    assert served([("t", [partition(1)])], generation=4, member="m", instance="i")
    assert not served([("t", [partition(1, metadata="x")])])
    assert not served([("t", [partition(300)])])
    assert not served([("nowhere", [partition(0)])])
    assert not served([])
    assert not served([("t", [])])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_begins_as_the_one_before_means_what_it_says(ways, version):
    direct = ways[0].router._directs[ApiKey.OFFSET_COMMIT, version].__self__
    ask = [frame(version, [("t", [partition(index, 7 + index)])]) for index in range(3)]
    for data in ask * 2:
        same(ways, data)
    assert len(direct._known) == 1
    partitions = ways[0].groups.topics["t"].partitions[:2]
    for way in ways:  # Made anew with fewer partitions, and gone.
        way.groups.topics["t"] = TopicImage("t", IDS["t"], partitions)
    same(ways, ask[1])
    same(ways, ask[2])
    assert direct.serve(memoryview(ask[2]), 11, 77, CLIENT) is NOT_DIRECT
    for way in ways:
        del way.groups.topics["t"]
    same(ways, ask[0])
    assert direct.serve(memoryview(ask[0]), 11, 77, CLIENT) is NOT_DIRECT


def test_what_requests_begin_with_is_not_kept_without_bound(ways):
    direct = ways[0].direct[7]
    for number in range(_KNOWN_MAX + 9):
        data = frame(7, [("t", [partition(1)])], group=f"g{number}", generation=3)
        direct.serve(memoryview(data), 11, 77, CLIENT)
    assert len(direct._known) == 9
    direct.serve(memoryview(frame(7, [("t", [partition(1)])], group="g" * 600)), 11, 77, CLIENT)
    assert len(direct._known) == 9
    ways[0].groups.settle()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [1, 2])
def test_both_ways_read_any_bytes_alike(ways, version, count):
    """Cut, changed and prolonged frames: refused alike, or answered alike."""
    chance = random.Random(version)
    topics = [("t", [partition(1), partition(2)]), ("other", [partition(0)])]
    if count == 1:  # The same beginning again and again.
        topics = [("t", [partition(1)])]
    good = frame(version, topics, member="m", instance="i")
    for size in range(10, len(good)):
        same(ways, good[:size])
    same(ways, good + b"\0")
    for _ in range(600):
        data = bytearray(good)
        for _ in range(chance.choice((1, 1, 2))):
            data[chance.randrange(8, len(data))] = chance.choice((0, 1, 2, 127, 128, 255))
        same(ways, bytes(data))
