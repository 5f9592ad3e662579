"""Proposals of one turn are committed together, and each gets the outcome that it has alone."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.env.clock import ManualClock
from ottla.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Ambiguous, Put
from ottla.metadata.values import (
    BrokerValue,
    PartitionState,
    TopicValue,
    decode_partition,
    encode_broker,
    encode_partition,
    encode_topic,
)
from ottla.replication.isr_changes import Outcome
from ottla.replication.proposing import AT_ONCE, StoreProposals
from ottla.replication.replica_state import Proposal

TOPIC_ID = TopicId(b"0123456789abcdef")
A, B, C = NODES = tuple(map(NodeId, (1, 2, 3)))
BEFORE = PartitionState(NODES, (A,), A, LeaderEpoch(5), 7)
COUNT = 2 * AT_ONCE + 20


class World:
    def __init__(self):
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.keys = Keys("c")
        self.follower = ImageFollower(self.store, self.keys, self.clock)
        self.me = SimpleNamespace(node_id=A, broker_epoch=-1)
        self.sessions = {}
        self.proposals = StoreProposals(self.store, self.keys, self.follower, self.me)
        self.commits = []
        self._commit = self.store.commit
        self.store.commit = self.counted

    async def counted(self, guards, ops):
        self.commits.append(len(ops))
        return await self._commit(guards, ops)

    async def begin(self):
        await self.store.commit(
            [], [Put(self.keys.topic("t"), encode_topic(TopicValue(TOPIC_ID, COUNT)))]
        )
        for number in range(COUNT):
            await self.put(number, BEFORE)
        for node in NODES:
            self.sessions[node] = session = await self.store.session(9, lambda _: None)
            value = encode_broker(BrokerValue("h", 9092))
            await self.store.commit([], [Put(self.keys.live_broker(node), value, session.id)])
        await self.follower.start()
        self.me.broker_epoch = self.follower.image.brokers[A].epoch
        self.commits.clear()

    async def put(self, number, state):
        key = self.keys.partition(TOPIC_ID, number)
        await self.store.commit([], [Put(key, encode_partition(state))])

    async def isr(self, number):
        entry = await self.store.get(self.keys.partition(TOPIC_ID, number))
        return decode_partition(entry.value).isr

    async def outcomes(self, joining, count=COUNT):
        """Propose in one turn that ``joining(number)`` joins each ISR; return the outcomes."""
        told = []
        for number in range(count):
            node = joining(number)
            after = BEFORE._replace(isr=(A, node), partition_epoch=8)
            epoch = self.follower.image.brokers[node].epoch
            proposal = Proposal(after, node, epoch)
            told.append(self.proposals(TopicPartition("t", number), TOPIC_ID, BEFORE, proposal))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert all(each.is_done for each in told)
        return [each.value for each in told]


@pytest.fixture
async def world():
    world = World()
    await world.begin()
    yield world
    await world.follower.close()
    await world.store.close()


def b_or_c(number):
    return (B, C)[number % 2]


async def test_a_node_that_is_in_very_many_isrs_takes_few_commits(world):
    assert await world.outcomes(b_or_c) == [Outcome.COMMITTED] * COUNT
    assert world.commits == [AT_ONCE, AT_ONCE, 20]
    assert [await world.isr(number) for number in (0, COUNT - 1)] == [(A, B), (A, C)]


async def test_a_changed_key_stops_its_own_proposal_only(world):
    await world.follower.close()  # The leader has not heard of it.
    other = BEFORE._replace(isr=(A, C), partition_epoch=8)
    for number in (3, 5):
        await world.put(number, other)
    outcomes = await world.outcomes(lambda _: B, 10)
    assert [n for n, each in enumerate(outcomes) if each is Outcome.KEY_CHANGED] == [3, 5]
    assert outcomes.count(Outcome.COMMITTED) == 8
    assert [await world.isr(number) for number in (3, 4, 5)] == [(A, C), (A, B), (A, C)]


async def test_who_registered_anew_stops_only_what_it_was_to_join(world):
    await world.follower.close()
    await world.sessions[C].close()
    outcomes = await world.outcomes(b_or_c, 10)
    assert outcomes == [Outcome.COMMITTED, Outcome.REGISTRATION_GONE] * 5
    assert [await world.isr(number) for number in (0, 1)] == [(A, B), (A,)]


async def test_without_a_registration_of_its_own_a_leader_changes_nothing(world):
    await world.follower.close()
    await world.sessions[A].close()
    assert await world.outcomes(b_or_c, 10) == [Outcome.REGISTRATION_GONE] * 10
    assert await world.isr(0) == (A,)


async def test_nobody_knows_what_becomes_of_any_when_the_store_does_not_say(world):
    async def lost(guards, ops):
        raise Ambiguous("no answer")

    world.store.commit = lost
    assert await world.outcomes(b_or_c, 10) == [Outcome.UNKNOWN] * 10


async def test_a_fault_of_ours_leaves_nobody_waiting(world):
    async def faulty(guards, ops):
        raise ZeroDivisionError

    world.store.commit = faulty
    assert await world.outcomes(b_or_c, 10) == [Outcome.UNKNOWN] * 10


async def test_a_proposal_depends_on_the_registration_that_it_was_made_under(world):
    after = BEFORE._replace(isr=(A, B), partition_epoch=8)
    proposal = Proposal(after, B, world.follower.image.brokers[B].epoch)
    pending = world.proposals(TopicPartition("t", 0), TOPIC_ID, BEFORE, proposal)
    world.me.broker_epoch += 1  # It registers anew in the same turn.
    for _ in range(50):
        await asyncio.sleep(0)
    assert pending.value is Outcome.COMMITTED
    late = world.proposals(TopicPartition("t", 1), TOPIC_ID, BEFORE, proposal)
    for _ in range(50):
        await asyncio.sleep(0)
    assert late.value is Outcome.REGISTRATION_GONE


async def test_what_is_given_away_is_asked_for_once_at_a_time_and_again_if_it_failed(world):
    answers, commit = [], world.store.commit

    async def late(guards, ops):
        answers.append(asyncio.get_running_loop().create_future())
        await answers[-1]
        return await commit(guards, ops)

    def give_away():
        state = world.follower.image.topic("t").partitions[0]
        world.proposals.hand_over(TopicPartition("t", 0), TOPIC_ID, state, 1)

    async def settle():
        for _ in range(100):
            await asyncio.sleep(0)

    await world.put(0, BEFORE._replace(isr=(A, B), partition_epoch=8))
    await settle()
    world.store.commit = late
    for _ in range(2):
        give_away()
        give_away()
        await settle()
    assert len(answers) == 1
    answers[0].set_exception(Ambiguous("no answer"))
    await settle()
    give_away()
    await settle()
    answers[1].set_result(None)
    await settle()
    assert world.follower.image.topic("t").partitions[0].leader == B
