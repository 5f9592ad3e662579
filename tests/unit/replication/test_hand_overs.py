"""How a leader gives partitions away: who gets them, what waits meanwhile, and what stops it."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.env.clock import ManualClock
from ottla.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Ambiguous, Put, Unavailable
from ottla.metadata.values import (
    BrokerState,
    BrokerValue,
    PartitionState,
    TopicValue,
    decode_partition,
    encode_broker,
    encode_partition,
    encode_topic,
)
from ottla.replication.hand_overs import (
    CATCH_UP_SECONDS,
    DOUBT_SECONDS,
    YIELD_SECONDS,
    HandOvers,
)

TOPIC_ID = TopicId(b"0123456789abcdef")
A, B, C = NODES = tuple(map(NodeId, (1, 2, 3)))


class Led:
    """A partition that node 1 leads: what HandOvers asks of one."""

    def __init__(self, number, state, *, has, ends=10):
        self.topic_partition = TopicPartition("t", number)
        self.topic_id = TOPIC_ID
        self.min_insync_replicas = 1
        self.state = state
        self.log = SimpleNamespace(log_end_offset=ends, flushed_offset=ends)
        self.high_watermark = has
        self.remotes = dict.fromkeys((B, C), has)
        self.is_yielding = False
        self.is_given_away = False
        self.yielded = 0
        self.disk_works = True

    @property
    def is_leader(self):
        return self.state.leader == A

    @property
    def view(self):
        return self if self.is_leader else None

    def remote(self, node):
        return SimpleNamespace(end_offset=self.remotes[node])

    def yield_appends(self):
        assert not self.is_yielding
        self.is_yielding = True
        self.yielded += 1

    def go_on_appending(self):
        self.is_yielding = False

    def flush(self):
        if self.disk_works:
            self.log.flushed_offset = self.log.log_end_offset


class World:
    def __init__(self):
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.keys = Keys("c")
        self.follower = ImageFollower(self.store, self.keys, self.clock)
        self.me = SimpleNamespace(node_id=A, broker_epoch=-1)
        self.sessions = {}
        self.led = []

    async def begin(self, *states, has=10):
        await self.store.commit(
            [], [Put(self.keys.topic("t"), encode_topic(TopicValue(TOPIC_ID, len(states))))]
        )
        for number, state in enumerate(states):
            await self.put(number, state)
            self.led.append(Led(number, state, has=has))
        for node in NODES:
            await self.register(node)
        await self.follower.start()
        self.follower.add_listener(self.apply)
        self.me.broker_epoch = self.follower.image.brokers[A].epoch
        self.hand_overs = HandOvers(self.store, self.keys, self.follower, self.me, self.clock)

    async def put(self, number, state):
        key = self.keys.partition(TOPIC_ID, number)
        await self.store.commit([], [Put(key, encode_partition(state))])

    async def register(self, node, state=BrokerState.RUNNING, *, is_full=False):
        if node in self.sessions:
            await self.sessions[node].close()
        session = self.sessions[node] = await self.store.session(9, lambda _: None)
        value = encode_broker(BrokerValue("h", 9092, state=state, is_full=is_full))
        revision = await self.store.commit(
            [], [Put(self.keys.live_broker(node), value, session.id)]
        )
        if self.follower.image.revision:
            await self.follower.reached(revision)

    def apply(self, image, delta):
        for change in delta.partitions:
            self.led[change.partition].state = change.new

    async def state(self, number=0):
        entry = await self.store.get(self.keys.partition(TOPIC_ID, number))
        return decode_partition(entry.value)

    async def done(self, work):
        """Run ``work``; the clock goes on while it waits."""
        task = asyncio.ensure_future(work)
        for _ in range(2000):
            if task.done():
                break
            await asyncio.sleep(0)
            self.clock.advance(0.001)
        return task.result()


@pytest.fixture
async def world():
    world = World()
    yield world
    world.hand_overs.stop()
    await world.follower.close()
    await world.store.close()


def state(replicas=NODES, *, isr=NODES, leader=A, **more):
    return PartitionState(replicas, isr, leader, LeaderEpoch(5), 7, **more)


async def test_a_node_that_stops_leaves_the_isr_and_the_next_one_leads(world):
    await world.begin(state(), state(isr=(A,)), state(leader=B))
    assert await world.done(world.hand_overs.leave(world.led)) == 1
    after = await world.state()
    assert (after.leader, after.leader_epoch, after.isr) == (B, 6, (B, C))
    assert await world.state(1) == state(isr=(A,)), "nobody else is in sync"
    assert [led.yielded for led in world.led] == [1, 0, 0]
    assert not any(led.is_yielding for led in world.led)


async def test_a_node_that_stops_as_well_gets_nothing(world):
    await world.begin(state())
    await world.register(B, BrokerState.DRAINING)
    await world.done(world.hand_overs.leave(world.led))
    assert (await world.state()).leader == C


async def test_a_node_that_stops_gives_to_full_ones_only_what_no_other_can_lead(world):
    await world.begin(state(), state((A, B), isr=(A, B)), state(isr=(A, B), elr=(C,)))
    await world.register(B, is_full=True)
    assert await world.done(world.hand_overs.leave(world.led)) == 3
    assert [(await world.state(number)).leader for number in range(3)] == [C, B, B]


async def test_what_there_is_no_space_for_goes_to_in_sync_nodes_with_space(world):
    await world.begin(state(), state((A, B), isr=(A, B)), state(isr=(A, B), elr=(C,)))
    await world.register(A, is_full=True)
    await world.register(B, is_full=True)
    world.me.broker_epoch = world.follower.image.brokers[A].epoch
    assert await world.done(world.hand_overs.relieve(world.led)) == 1
    after = await world.state()
    assert (after.leader, after.leader_epoch, after.isr) == (C, 6, (B, C))
    assert [(await world.state(number)).leader for number in (1, 2)] == [A, A]
    assert [led.yielded for led in world.led] == [1, 0, 0]


async def test_what_there_is_no_space_for_goes_to_who_has_all_of_it(world):
    await world.begin(state(), state(), has=4)
    for led in world.led:
        led.min_insync_replicas = 2
    world.led[1].remotes[C] = 10
    assert await world.done(world.hand_overs.relieve(world.led)) == 1
    assert (await world.state(0)).leader == A, "acknowledged by acks=1, it would be lost"
    assert (await world.state(1)).leader == C


async def test_a_full_node_is_not_preferred_until_it_has_had_space_for_a_while(world):
    await world.begin(state((B, A, C)))
    await world.register(B, is_full=True)
    for _ in range(3):
        assert await world.done(world.hand_overs.prefer(world.led)) == 0
    entry = await world.store.get(world.keys.live_broker(B))
    value = encode_broker(BrokerValue("h", 9092))
    await world.follower.reached(
        await world.store.commit([], [Put(entry.key, value, entry.session)])
    )
    assert await world.done(world.hand_overs.prefer(world.led)) == 0
    assert await world.done(world.hand_overs.prefer(world.led)) == 1


async def test_appends_wait_until_the_followers_have_all_but_not_for_long(world):
    await world.begin(state(), has=4)
    (led,) = world.led
    task = asyncio.ensure_future(world.hand_overs.leave(world.led))
    for _ in range(50):
        await asyncio.sleep(0)
    assert led.is_yielding
    assert (await world.state()).leader == A
    world.clock.advance(CATCH_UP_SECONDS / 2)
    for _ in range(50):
        await asyncio.sleep(0)
    assert not task.done()
    assert await world.done(task) == 1, "the time is over"


async def test_appends_do_not_wait_for_a_store_that_is_away(world):
    """Once they waited until the store gave up, and again a second later: for as long as it was."""
    await world.begin(state())
    (led,), commit, goes_on = world.led, world.store.commit, asyncio.Event()

    async def late(guards, ops):
        await goes_on.wait()
        return await commit(guards, ops)

    world.store.commit = late
    task = asyncio.ensure_future(world.hand_overs.leave(world.led))
    for _ in range(50):
        await asyncio.sleep(0)
    assert led.is_yielding
    world.clock.advance(YIELD_SECONDS)
    assert not led.is_yielding
    led.yield_appends()  # For another hand-over, by now.
    goes_on.set()
    assert await world.done(task) == 1
    assert led.is_yielding, "it is not this one's any more"
    assert (await world.state()).leader == B


async def test_appends_wait_no_longer_where_each_look_comes_late(world):
    await world.begin(state(), has=4)
    begun = world.clock.monotonic()
    task = asyncio.ensure_future(world.hand_overs.leave(world.led))
    while world.led[0].is_yielding or not world.led[0].yielded:
        for _ in range(50):
            await asyncio.sleep(0)
        world.clock.advance(CATCH_UP_SECONDS / 2)  # The process waits for a processor.
    assert world.clock.monotonic() - begun <= 2 * CATCH_UP_SECONDS
    assert await world.done(task) == 1


async def test_preferred_leaders_get_only_what_they_have_all_of(world):
    await world.begin(state((B, A, C)), state((C, A, B)), has=4)
    await world.done(world.hand_overs.prefer([]))  # The first look.
    world.led[1].remotes[C] = 10
    assert await world.done(world.hand_overs.prefer(world.led)) == 1
    assert (await world.state(0)).leader == A
    after = await world.state(1)
    assert (after.leader, after.leader_epoch, after.isr) == (C, 6, NODES)


@pytest.mark.parametrize("disk_works", [True, False])
async def test_what_was_acknowledged_unsynced_is_synced_before_another_leads(world, disk_works):
    """A power cut may take it afterwards, and nobody asks a follower whether it has it."""
    await world.begin(state((B, A, C)))
    (led,) = world.led
    led.log.flushed_offset, led.disk_works = 4, disk_works
    await world.done(world.hand_overs.prefer([]))
    assert await world.done(world.hand_overs.prefer(world.led)) == 1
    after = await world.state()
    assert (after.leader, {*after.isr}) == (B, {A, B, C} if disk_works else {B, C})
    assert led.log.flushed_offset == (10 if disk_works else 4)


async def test_a_preferred_leader_that_has_just_come_is_left_alone(world):
    await world.begin(state((B, A, C)))
    await world.done(world.hand_overs.prefer([]))
    await world.register(B)
    assert await world.done(world.hand_overs.prefer(world.led)) == 0
    assert await world.done(world.hand_overs.prefer(world.led)) == 1


async def test_a_key_that_others_have_changed_keeps_its_value_and_the_rest_is_handed_over(world):
    await world.begin(state(), state())
    commit = world.store.commit
    other = state(isr=(A, C))._replace(partition_epoch=8)

    async def changed_before(guards, ops):
        world.store.commit = commit
        await world.put(0, other)
        return await commit(guards, ops)

    world.store.commit = changed_before
    assert await world.done(world.hand_overs.leave(world.led)) == 1
    assert await world.state(0) == other
    assert (await world.state(1)).leader == B
    assert not any(led.is_yielding for led in world.led)


async def test_what_was_judged_by_a_former_registration_is_not_committed_under_a_newer_one(world):
    await world.begin(state(), state())
    commit, live, tried = world.store.commit, world.keys.live_broker(B), []

    async def registered_anew_before(guards, ops):
        tried.append([guard for guard in guards if guard.key == live])
        if len(tried) == 1:
            world.store.commit = commit  # Those of the registration are not meant.
            await world.put(0, state(isr=(A, C))._replace(partition_epoch=8))
            await world.register(B)
            world.store.commit = registered_anew_before
        return await commit(guards, ops)

    world.store.commit = registered_anew_before
    await world.done(world.hand_overs.leave(world.led))
    together, first, second = tried[:3]
    assert together == first == second, "each alone depends on what all together did"


async def test_a_reassignment_is_ended_when_all_are_in_sync_and_tried_again_until_then(world):
    moving = state((B, C, A), isr=(B, A), adding=(C,), removing=(A,))
    await world.begin(moving)
    world.hand_overs.look_at(world.led[0])
    for _ in range(100):
        await asyncio.sleep(0)
    assert await world.state() == moving
    await world.put(0, moving._replace(isr=(B, C, A), partition_epoch=8))
    for _ in range(2500):  # It looks again by itself.
        await asyncio.sleep(0)
        world.clock.advance(0.001)
    after = await world.state()
    assert (after.replicas, after.isr, after.leader) == ((B, C), (B, C), B)
    assert (after.leader_epoch, after.left) == (6, (A,))


@pytest.mark.parametrize("full", [(B,), (B, C)])
async def test_a_reassignment_lets_one_with_space_lead_if_there_is_one(world, full):
    await world.begin(state((B, C, A), isr=(B, C, A), removing=(A,)))
    for node in full:
        await world.register(node, is_full=True)
    world.hand_overs.look_at(world.led[0])
    for _ in range(100):
        await asyncio.sleep(0)
    after = await world.state()
    assert (after.replicas, after.leader) == ((B, C), C if full == (B,) else B)


async def test_who_has_asked_that_another_one_leads_does_not_speak_for_the_partition(world):
    """A coordinator told an offset that the next one had gone beyond: it had not heard of it."""
    await world.begin(state())
    commit, asked = world.store.commit, []

    async def watched(guards, ops):
        asked.append(world.led[0].is_given_away)
        return await commit(guards, ops)

    world.store.commit = watched
    assert await world.done(world.hand_overs.leave(world.led)) == 1
    assert asked == [True]
    assert (await world.state()).leader == B
    assert not world.led[0].is_given_away, "its image tells"


@pytest.mark.parametrize("is_done", [True, False])
async def test_after_an_answer_that_was_lost_it_speaks_when_it_knows(world, is_done):
    await world.begin(state())
    commit = world.store.commit

    async def lost(guards, ops):
        if ops and is_done:
            await commit(guards, ops)
        if ops:
            raise Ambiguous("the answer was lost")
        return await commit(guards, ops)

    world.store.commit = lost
    assert await world.done(world.hand_overs.leave(world.led)) == 0
    assert world.led[0].is_given_away
    world.clock.advance(DOUBT_SECONDS)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not world.led[0].is_given_away
    assert (await world.state()).leader == (B if is_done else A)


async def test_who_could_not_ask_speaks_on(world):
    await world.begin(state())

    async def refuse(guards, ops):
        raise Unavailable("gone")

    world.store.commit = refuse
    assert await world.done(world.hand_overs.leave(world.led)) == 0
    assert not world.led[0].is_given_away
