"""What a controller does with a partition, by the registrations that there are."""

import asyncio

import pytest

from ottla.env.clock import ManualClock
from ottla.ids import LeaderEpoch, NodeId, TopicId
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import ConfigType, Keys
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import GuardFailed, Put
from ottla.metadata.values import (
    NO_LEADER,
    BrokerValue,
    PartitionState,
    TopicValue,
    encode_broker,
    encode_config,
    encode_controller,
    encode_partition,
    encode_topic,
)
from ottla.replication.elector import PAUSE_SECONDS, ElectionRules, Elector, next_state

TOPIC_ID = TopicId(b"0123456789abcdef")

ALL = {NodeId(node): 10 + node for node in (1, 2, 3)}
WRITTEN = 20
"""The revision of the partition's key: newer than all registrations."""


def state(*, leader=1, isr=(1, 2, 3), elr=(), epoch=5):
    nodes = tuple(map(NodeId, (1, 2, 3)))
    return PartitionState(nodes, isr, NodeId(leader), LeaderEpoch(epoch), 7, elr=elr)


def look(before, live=ALL, *, mod_rev=WRITTEN, gone=None, minimum=1, unclean=False, syncs=True):
    missing = {1, 2, 3} - set(live) if gone is None else gone
    return next_state(
        before,
        mod_rev,
        live=live,
        is_gone=missing.__contains__,
        rules=ElectionRules(minimum, unclean, syncs),
    )


def without(*nodes):
    return {node: epoch for node, epoch in ALL.items() if node not in nodes}


def test_nothing_is_done_while_all_is_well():
    before = state()
    assert look(before) is before


def test_the_only_replica_is_left_alone():
    before = PartitionState((NodeId(1),), (NodeId(1),), NodeId(1), LeaderEpoch(0), 0)
    assert look(before, {}) is before


def test_another_one_of_the_isr_leads_when_the_leader_is_gone():
    after = look(state(), without(1))
    assert (after.leader, after.leader_epoch, after.isr, after.elr) == (2, 6, (2, 3), ())
    assert after.partition_epoch == 8


def test_a_follower_that_is_gone_leaves_the_isr_and_the_leader_leads_on():
    after = look(state(), without(3))
    assert (after.leader, after.leader_epoch, after.isr) == (1, 5, (1, 2))


def test_who_leaves_a_small_isr_may_still_lead():
    after = look(state(isr=(1, 2)), without(2), minimum=2)
    assert (after.isr, after.elr) == ((1,), (2,))
    nobody = look(after, without(1, 2), minimum=2)
    assert (nobody.leader, nobody.isr, set(nobody.elr)) == (NO_LEADER, (), {1, 2})
    assert look(nobody, without(1), minimum=2).leader == 2


def test_a_leader_that_did_not_sync_is_not_eligible_where_others_have_it_all():
    """It may come back from a power cut without what the others have acknowledged, too."""
    after = look(state(isr=(1, 2)), without(1), minimum=2, syncs=False)
    assert (after.leader, after.isr, after.elr) == (2, (2,), ())
    follower = look(state(isr=(1, 2)), without(2), minimum=2, syncs=False)
    assert (follower.isr, follower.elr) == ((1,), (2,)), "a follower syncs"
    both = look(state(isr=(1, 2)), without(1, 2), minimum=2, syncs=False)
    assert (both.leader, both.isr, both.elr) == (NO_LEADER, (), (2,))
    alone = look(state(isr=(1,)), without(1), minimum=2, syncs=False)
    assert alone.elr == (1,), "nobody has more"
    eligible = look(state(isr=(1,), elr=(2,)), without(1), minimum=2, syncs=False)
    assert (eligible.leader, eligible.isr, eligible.elr) == (2, (2,), ())


def test_a_leader_that_did_not_sync_is_no_candidate_whoever_is_gone_with_it():
    """The nodes may be looked at in any order: the one that led is not forgotten on the way."""
    both = look(state(isr=(2, 1)), without(1, 2), minimum=2, syncs=False)
    assert (both.leader, both.isr, both.elr) == (NO_LEADER, (), (2,))
    another = look(state(isr=(2, 3, 1)), without(1, 2), minimum=2, syncs=False)
    assert (another.leader, another.isr, another.elr) == (3, (3,), (2,))


def test_who_was_never_seen_is_not_called_gone():
    before = state(leader=1)
    assert look(before, without(2, 3), gone=()) is before


def test_a_newer_process_of_the_leader_is_granted_a_new_epoch():
    registered_again = {**ALL, NodeId(1): WRITTEN + 1}
    after = look(state(), registered_again)
    assert (after.leader, after.leader_epoch, after.isr) == (1, 6, (1, 2, 3))
    assert look(after, registered_again, mod_rev=WRITTEN + 2) is after


def test_a_fence_of_another_node_does_not_pass_for_a_grant():
    after = look(state(), {NodeId(1): WRITTEN + 1, NodeId(2): 12})
    assert (after.leader, after.leader_epoch, after.isr) == (1, 6, (1, 2))


@pytest.mark.parametrize("unclean", [False, True])
def test_a_replica_that_may_lack_records_leads_only_if_that_is_allowed(unclean):
    after = look(state(isr=(1,)), without(1), unclean=unclean)
    assert after.leader == (2 if unclean else NO_LEADER)
    assert after.unclean is unclean


def test_nobody_leads_uncleanly_while_one_that_has_all_may_come():
    before = state(leader=NO_LEADER, isr=(), elr=(1,))
    assert look(before, without(1), gone=(), unclean=True) is before


class Cluster:
    """A store with a topic of three replicas, and the elector of node 2."""

    def __init__(self):
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.keys = Keys("c")
        self.follower = ImageFollower(self.store, self.keys, self.clock)
        self.sessions = {}
        self.may_be_unclean = False

    async def begin(self):
        await self.register(1)
        await self.store.commit([], [self.seat(1)])
        topic = TopicValue(TOPIC_ID, 1)
        await self.store.commit(
            [],
            [
                Put(self.keys.topic("t"), encode_topic(topic)),
                Put(self.keys.partition(TOPIC_ID, 0), encode_partition(state())),
            ],
        )
        await self.follower.start()
        self.elector = None
        self.follower.add_listener(self.apply)
        await self.register(2)
        await self.register(3)

    def apply(self, image, delta):
        """As a node does: it is made when there is somebody else."""
        if self.elector is None:
            self.elector = Elector(
                self.store,
                self.keys,
                self.follower,
                node_id=NodeId(2),
                rules=lambda _: ElectionRules(1, self.may_be_unclean),
                clock=self.clock,
                ttl_seconds=9,
            )
        self.elector.apply(image, delta)

    def seat(self, node):
        return Put(self.keys.controller, encode_controller(node), self.sessions[node].id)

    async def register(self, node):
        session = self.sessions[node] = await self.store.session(9, lambda _: None)
        value = encode_broker(BrokerValue("h", 9092))
        put = Put(self.keys.live_broker(NodeId(node)), value, session.id)
        revision = await self.store.commit([], [put])
        if node > 1:  # The image begins after node 1.
            await self.follower.reached(revision)

    async def until(self, is_so):
        for _ in range(500):
            found = self.follower.image.topic("t").partitions[0]
            if is_so(found):
                return found
            await asyncio.sleep(0)
        pytest.fail(f"{found}")

    async def end(self):
        self.elector.stop()
        await self.follower.close()
        await self.store.close()


@pytest.fixture
async def cluster():
    cluster = Cluster()
    await cluster.begin()
    yield cluster
    await cluster.end()


async def test_a_node_that_was_there_before_this_one_is_gone_when_it_goes(cluster):
    await cluster.sessions[1].close()
    await cluster.store.commit([], [cluster.seat(2)])
    found = await cluster.until(lambda one: one.leader == 2)
    assert (found.leader_epoch, found.isr) == (6, (2, 3))


async def test_only_the_controller_elects(cluster):
    await cluster.sessions[1].close()
    for _ in range(100):
        await asyncio.sleep(0)
    assert cluster.follower.image.topic("t").partitions[0] == state()


async def test_who_never_comes_is_gone_when_the_time_is_over(cluster):
    never = state()._replace(replicas=(NodeId(4), NodeId(2)), isr=(4, 2), leader=NodeId(4))
    await cluster.sessions[1].close()
    await cluster.store.commit([], [cluster.seat(2)])
    key = cluster.keys.partition(TOPIC_ID, 0)
    await cluster.until(lambda one: one.leader == 2)
    await cluster.follower.reached(
        await cluster.store.commit([], [Put(key, encode_partition(never))])
    )
    for _ in range(100):
        await asyncio.sleep(0)
    assert cluster.follower.image.topic("t").partitions[0] == never
    cluster.clock.advance(9)
    found = await cluster.until(lambda one: one.leader == 2)
    assert found.isr == (2,)


@pytest.mark.parametrize("of", [(ConfigType.TOPIC, "t"), (ConfigType.BROKER, "")])
async def test_an_unclean_election_follows_when_it_is_allowed(cluster, of):
    key = cluster.keys.partition(TOPIC_ID, 0)
    await cluster.store.commit([], [Put(key, encode_partition(state(isr=(1,))))])
    await cluster.sessions[1].close()
    await cluster.store.commit([], [cluster.seat(2)])
    await cluster.until(lambda one: one.leader == NO_LEADER)
    for _ in range(100):  # It looks at what it has done itself.
        await asyncio.sleep(0)
    cluster.may_be_unclean = True  # As the configuration tells, which hears of it first.
    await cluster.store.commit([], [Put(cluster.keys.config(*of), encode_config({}))])
    found = await cluster.until(lambda one: one.leader == 2)
    assert found.unclean


async def test_many_that_have_to_be_looked_at_again_are_one_pause(cluster):
    """All of a commit may have had a guard on a node that has registered anew."""
    count = 30
    await cluster.store.commit(
        [],
        [
            cluster.seat(1)._replace(value=encode_controller(2), session=cluster.sessions[2].id),
            Put(cluster.keys.topic("t"), encode_topic(TopicValue(TOPIC_ID, count))),
            *(
                Put(cluster.keys.partition(TOPIC_ID, number), encode_partition(state()))
                for number in range(count)
            ),
        ],
    )
    await cluster.until(lambda _: cluster.follower.image.controller == 2)
    commit, refused = cluster.store.commit, set()

    async def behind(guards, ops):
        """Refuse each of them once, alone."""
        is_first = len(refused) < count if len(ops) > 1 else ops[0].key not in refused
        if is_first:
            if len(ops) == 1:
                refused.add(ops[0].key)
            raise GuardFailed(guards[0], None)
        return await commit(guards, ops)

    cluster.store.commit = behind
    await cluster.sessions[1].close()
    for _ in range(500):
        await asyncio.sleep(0)
    cluster.clock.advance(PAUSE_SECONDS)
    await cluster.until(
        lambda _: all(one.leader == 2 for one in cluster.follower.image.topic("t").partitions)
    )


async def test_a_leader_that_registers_anew_amid_a_fence_of_others_is_granted_a_new_epoch(cluster):
    """Else its leadership is of a former registration for ever: it refuses what it is to lead."""
    other_id = TopicId(b"fedcba9876543210")
    await cluster.store.commit(
        [],
        [
            cluster.seat(1)._replace(value=encode_controller(2), session=cluster.sessions[2].id),
            Put(cluster.keys.topic("u"), encode_topic(TopicValue(other_id, 1))),
            Put(cluster.keys.partition(other_id, 0), encode_partition(state())),
        ],
    )
    await cluster.until(lambda _: cluster.follower.image.controller == 2)
    commit = cluster.store.commit

    async def amid(guards, ops):
        if len(ops) == 2:  # Both partitions, of which node 3 is gone.
            cluster.store.commit = commit
            await cluster.sessions[1].close()
            await cluster.register(1)
            for _ in range(50):  # The image tells, but the elector has made its plan.
                await asyncio.sleep(0)
        return await commit(guards, ops)

    cluster.store.commit = amid
    await cluster.sessions[3].close()
    for _ in range(20):  # What could not be written is looked at again.
        for _ in range(50):
            await asyncio.sleep(0)
        cluster.clock.advance(0.1)
    found = cluster.follower.image.topic("t").partitions[0]
    assert (found.leader, found.leader_epoch, found.isr) in {(1, 6, (1, 2)), (2, 6, (2,))}
