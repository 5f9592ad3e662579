"""The fetches from one leader, as the leader hears them."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.env.clock import ManualClock
from ottla.errors import ErrorCode
from ottla.ids import INT64_MAX, LeaderEpoch, NodeId, TopicPartition
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.replication.fetcher import (
    BACKOFF_SECONDS_MIN,
    HANGS_SECONDS,
    READ_SECONDS,
    TAKEN_PER_TURN,
    Fetcher,
    FetcherSettings,
)
from ottla.replication.follower import Asked
from tests.unit.replication.conftest import TOPIC_ID

LEADER = NodeId(2)


class Leader:
    """Keeps requests, and answers them when the test says so."""

    def __init__(self):
        self.requests = asyncio.Queue()
        self.answers = asyncio.Queue()

    async def fetch(self, node, request):
        assert node == LEADER
        self.requests.put_nowait(request)
        return await self.answers.get()

    async def next_part(self):
        """The partition that the next request names."""
        (topic,) = (await self.requests.get()).topics
        (part,) = topic.partitions
        return part

    def tell(self, high_watermark):
        """Answer with a high watermark."""
        data = PartitionData(partition_index=0, high_watermark=high_watermark, records=b"")
        topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])
        self.answers.put_nowait(FetchResponse(session_id=1, responses=[topic]))


class Follows:
    """A partition that follows, and takes whatever comes."""

    is_full = False

    def __init__(self, partition):
        self.partition = partition

    def next_request(self):
        return Asked(1, LEADER, LeaderEpoch(0), 1, 0, -1)

    async def take(self, asked, fetched):
        self.partition.followed(fetched.high_watermark)


class Me:
    node_id, broker_epoch = NodeId(1), 1


@pytest.fixture
async def leader():
    return Leader()


@pytest.fixture
async def following(make_node, leader):
    """A fetcher of one partition; its ``readers`` are the partitions that consumers wait for."""
    clock, readers = ManualClock(), set()
    settings = FetcherSettings(500, 1, 1 << 20, 10 << 20, 1000)
    fetcher = Fetcher(LEADER, Me, leader, settings, clock, is_waited_for=readers.__contains__)
    follows = Follows(make_node(partitions=1).partition())
    fetcher.add(follows)
    yield fetcher, follows.partition, readers, clock
    await fetcher.stop()


@pytest.mark.timeout(60)
async def test_it_says_what_it_knows_while_consumers_read_here(leader, following):
    _, partition, readers, clock = following
    assert (await leader.next_part()).high_watermark == INT64_MAX, "nobody reads here"
    readers.add(partition.topic_partition)
    leader.tell(0)
    assert (await leader.next_part()).high_watermark == 0
    readers.clear()
    leader.tell(0)
    assert (await leader.next_part()).high_watermark == 0, "the consumer will soon ask again"
    clock.advance(READ_SECONDS)
    leader.tell(0)
    assert (await leader.next_part()).high_watermark == INT64_MAX


@pytest.mark.timeout(60)
async def test_a_stop_does_not_wait_for_an_answer(leader, following):
    fetcher, *_ = following
    await leader.next_part()
    await fetcher.stop()


@pytest.mark.timeout(60)
async def test_an_answer_about_very_many_partitions_is_taken_in_several_turns(leader):
    taken, turns = [], []

    class Counted(Follows):
        async def take(self, asked, fetched):
            taken.append(len(turns))

    settings = FetcherSettings(500, 1, 1 << 20, 10 << 20, 1000)
    fetcher = Fetcher(LEADER, Me, leader, settings, ManualClock())
    count = 3 * TAKEN_PER_TURN
    for number in range(count):
        where = TopicPartition("t", number)
        log = SimpleNamespace(log_start_offset=0)
        fetcher.add(Counted(SimpleNamespace(topic_id=TOPIC_ID, topic_partition=where, log=log)))
    (topic,) = (await leader.requests.get()).topics
    parts = [
        PartitionData(partition_index=part.partition, high_watermark=0, records=b"")
        for part in topic.partitions
    ]
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=parts)
    leader.answers.put_nowait(FetchResponse(session_id=1, responses=[topic]))
    while len(taken) < count:
        turns.append(None)
        await asyncio.sleep(0)
    assert max(map(taken.count, taken)) == TAKEN_PER_TURN
    await fetcher.stop()


def without_session(code):
    """An answer about the one partition, of a leader that keeps no session."""
    data = PartitionData(partition_index=0, error_code=code, high_watermark=7, records=b"")
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])
    return FetchResponse(session_id=0, responses=[topic])


@pytest.mark.timeout(60)
async def test_a_leader_that_keeps_no_session_is_not_asked_again_at_once(leader, following):
    """It refuses all partitions so until it has heard of this node's registration."""
    *_, clock = following
    for pause_seconds in (BACKOFF_SECONDS_MIN, 2 * BACKOFF_SECONDS_MIN):
        await leader.next_part()
        leader.answers.put_nowait(without_session(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for _ in range(20):
            await asyncio.sleep(0)
        assert leader.requests.empty()
        clock.advance(pause_seconds)
    await leader.next_part()


@pytest.mark.timeout(60)
async def test_what_comes_without_a_session_is_taken(leader, following, monkeypatch):
    taken = []

    async def take(self, asked, fetched):
        taken.append(fetched.high_watermark)

    monkeypatch.setattr(Follows, "take", take)
    await leader.next_part()
    leader.answers.put_nowait(without_session(ErrorCode.NONE))
    await leader.next_part()
    assert taken == [7]


async def turns(count=10):
    for _ in range(count):
        await asyncio.sleep(0)


def parts_of(request):
    return [part.partition for topic in request.topics for part in topic.partitions]


@pytest.mark.timeout(60)
async def test_a_partition_whose_disk_hangs_holds_up_no_other_one(leader):
    """Once all that follow the same leader left their ISRs with it, whatever disk they are on."""
    goes_on, clock, taken = asyncio.Event(), ManualClock(), []

    class OnDisk(Follows):
        async def take(self, asked, fetched):
            if self.partition.topic_partition.partition == 1:
                await goes_on.wait()
            taken.append(self.partition.topic_partition.partition)

    settings = FetcherSettings(500, 1, 1 << 20, 10 << 20, 1000)
    fetcher = Fetcher(LEADER, Me, leader, settings, clock)
    for number in range(2):
        where, log = TopicPartition("t", number), SimpleNamespace(log_start_offset=0)
        fetcher.add(OnDisk(SimpleNamespace(topic_id=TOPIC_ID, topic_partition=where, log=log)))

    def answer(request):
        parts = [
            PartitionData(partition_index=part, high_watermark=0, records=b"x")
            for part in parts_of(request)
        ]
        topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=parts)
        leader.answers.put_nowait(FetchResponse(session_id=1, responses=[topic]))

    first = await leader.requests.get()
    assert parts_of(first) == [0, 1]
    answer(first)
    await turns()
    assert taken == [0]
    clock.advance(HANGS_SECONDS)
    for _ in range(3):
        request = await leader.requests.get()
        assert parts_of(request) == [0]
        answer(request)
    assert request.session_epoch > 0
    goes_on.set()
    while 1 not in parts_of(request):
        request = await leader.requests.get()
        answer(request)
    assert taken.count(1) == 1, "it was not asked for meanwhile"
    await fetcher.stop()
    assert taken.count(1) >= 1


@pytest.mark.timeout(60)
async def test_a_stop_waits_for_a_partition_that_was_left_behind(leader):
    goes_on, clock = asyncio.Event(), ManualClock()

    class Hangs(Follows):
        async def take(self, asked, fetched):
            await goes_on.wait()

    settings = FetcherSettings(500, 1, 1 << 20, 10 << 20, 1000)
    fetcher = Fetcher(LEADER, Me, leader, settings, clock)
    where, log = TopicPartition("t", 0), SimpleNamespace(log_start_offset=0)
    fetcher.add(Hangs(SimpleNamespace(topic_id=TOPIC_ID, topic_partition=where, log=log)))
    await leader.requests.get()
    leader.tell(0)
    await turns()
    clock.advance(HANGS_SECONDS)
    await turns()
    assert leader.requests.empty()
    stopping = asyncio.ensure_future(fetcher.stop())
    await turns()
    assert not stopping.done(), "its log may not be closed yet"
    goes_on.set()
    await stopping


@pytest.mark.timeout(60)
async def test_no_records_are_asked_for_while_there_is_no_space_for_them(leader, following):
    """Once they were fetched each second, and dropped."""
    fetcher, *_ = following
    (follows,) = (member.following for member in fetcher._members.values())
    assert (await leader.next_part()).partition_max_bytes == 1 << 20
    follows.is_full = True
    leader.tell(0)
    assert (await leader.next_part()).partition_max_bytes == 0

    def tell_nothing():
        leader.answers.put_nowait(FetchResponse(session_id=1, responses=[]))

    tell_nothing()
    assert not (await leader.requests.get()).topics, "the leader knows"
    follows.is_full = False  # Nobody says so: its log may be in another directory by now.
    tell_nothing()
    assert (await leader.next_part()).partition_max_bytes == 1 << 20
    tell_nothing()
    assert not (await leader.requests.get()).topics
