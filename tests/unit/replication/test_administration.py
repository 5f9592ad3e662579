"""Elections and reassignments by request: what is refused, and what no write may hide or undo."""

import asyncio

import pytest

from ottla.cluster.in_time import Patience
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.apis.list_partition_reassignments import ListPartitionReassignments
from ottla.ids import NodeId, TopicPartition
from ottla.metadata.store import Delete, Put
from ottla.metadata.values import NO_LEADER, KnownBrokerValue, encode_known_broker
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.replication.administration import (
    AT_ONCE,
    Election,
    Move,
    ReplicaAdministration,
)
from ottla.replication.elector import ElectionRules
from tests.unit.replication.test_hand_overs import A, B, C, World, state

ON_THE_WAY = state((C, A, B), isr=(A, B), adding=(C,), removing=(B,))


@pytest.fixture
async def world():
    world = World()
    yield world
    world.hand_overs.stop()
    await world.follower.close()
    await world.store.close()


def administration(world, *, syncs=True):
    rules = ElectionRules(1, may_be_unclean=False, leader_syncs=syncs)
    return ReplicaAdministration(world.store, world.keys, world.follower, lambda topic: rules)


async def outcomes(world, pending):
    """Return a code for each partition; None: it was done."""
    for _ in range(5000):
        if pending.is_done:
            return [each and each.code for each in pending.value]
        await asyncio.sleep(0)
        world.clock.advance(0.001)
    pytest.fail("no outcome")


async def elect(world, election, *numbers, syncs=True):
    wheres = [TopicPartition("t", number) for number in numbers]
    patience = Patience(world.clock, 60_000)
    pending = administration(world, syncs=syncs).elect(election, wheres, patience)
    return await outcomes(world, pending)


async def reassign(world, *moves, may_change_factor=True):
    wanted = [Move(TopicPartition("t", number), replicas) for number, replicas in moves]
    pending = administration(world).reassign(
        wanted, Patience(world.clock, 60_000), may_change_factor=may_change_factor
    )
    return await outcomes(world, pending)


async def test_preferred_leaders_are_elected_where_they_can_and_need_to(world):
    await world.begin(state(), state((B, A, C)), state((C, A), isr=(A,)), state(leader=B))
    found = await elect(world, Election.PREFERRED, 0, 1, 2, 3, 4)
    assert found == [
        ErrorCode.ELECTION_NOT_NEEDED,
        None,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        None,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [(await world.state(n)).leader for n in range(4)] == [A, B, A, A]


async def test_a_full_node_is_not_elected_as_preferred_leader(world):
    await world.begin(state((B, A, C)))
    await world.register(B, is_full=True)
    found = await elect(world, Election.PREFERRED, 0)
    assert found == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert (await world.state()).leader == A


@pytest.mark.parametrize("syncs", [True, False])
async def test_a_leader_that_did_not_sync_is_out_of_the_isr_when_another_is_preferred(world, syncs):
    """A power cut may take what it has acknowledged: it must not be elected before it has it."""
    await world.begin(state((B, A, C)))
    assert await elect(world, Election.PREFERRED, 0, syncs=syncs) == [None]
    after = await world.state()
    assert (after.leader, {*after.isr}) == (B, {A, B, C} if syncs else {B, C})


async def test_a_leader_that_did_not_sync_and_is_away_stays_no_candidate(world):
    gone = NodeId(9)
    await world.begin(state((gone, B), isr=(gone, B), leader=gone))
    assert await elect(world, Election.UNCLEAN, 0, syncs=False) == [None]
    after = await world.state()
    assert (after.leader, after.isr, after.elr, after.unclean) == (B, (B,), (), False)


async def test_unclean_leaders_are_elected_only_where_nobody_has_all(world):
    gone = NodeId(9)
    await world.begin(
        state(),
        state((gone, B), isr=(), elr=(gone,), leader=NO_LEADER),
        state((gone, B, C), isr=(), elr=(C, gone), leader=NO_LEADER),
        state((gone,), isr=(gone,), leader=gone),
    )
    found = await elect(world, Election.UNCLEAN, 0, 1, 2, 3)
    assert found == [
        ErrorCode.ELECTION_NOT_NEEDED,
        None,
        None,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ]
    lossy, clean = await world.state(1), await world.state(2)
    assert (lossy.leader, lossy.isr, lossy.unclean) == (B, (B,), True)
    assert (clean.leader, clean.unclean) == (C, False)


async def test_bad_targets_are_refused_and_nothing_changes(world):
    before = state((A, B), isr=(A, B))
    await world.begin(before)
    for replicas in ([], [A, A], [A, 9], [-1]):
        assert await reassign(world, (0, replicas)) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert await reassign(world, (0, None)) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    assert await reassign(world, (7, [A])) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await reassign(world, (0, [A]), may_change_factor=False) == [
        ErrorCode.INVALID_REPLICATION_FACTOR
    ]
    assert await reassign(world, (0, [A, B])) == [None], "it is so already"
    assert await world.state() == before


async def test_a_target_may_be_down_if_it_belongs_to_the_cluster(world):
    """As in Kafka, where a fenced broker is registered."""
    down = NodeId(9)
    known = encode_known_broker(KnownBrokerValue({}))
    await world.store.commit([], [Put(world.keys.known_broker(down), known)])
    await world.begin(state((A, B), isr=(A, B)))
    assert await reassign(world, (0, [A, down])) == [None]
    after = await world.state()
    assert (after.replicas, after.adding, after.removing) == ((A, down, B), (down,), (B,))


async def test_the_factor_counts_without_those_that_go(world):
    await world.begin(ON_THE_WAY)
    assert await reassign(world, (0, [A, B]), may_change_factor=False) == [None]


async def test_a_reassignment_that_would_lose_records_is_not_called_off(world):
    await world.begin(ON_THE_WAY, ON_THE_WAY._replace(isr=(C,), leader=C))
    assert await reassign(world, (0, None), (1, None)) == [
        None,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ]
    after = await world.state()
    assert (after.replicas, after.leader, after.leader_epoch) == ((A, B), A, 6)


async def test_a_leader_whose_process_is_newer_is_granted_its_leadership_in_the_same_write(world):
    await world.begin(state((A, B), isr=(A, B)))
    await world.register(A)
    assert await reassign(world, (0, [A, C])) == [None]
    after = await world.state()
    assert (after.leader, after.leader_epoch, after.adding) == (A, 6, (C,))


async def test_a_leader_that_registers_just_now_fails_the_write_and_not_the_request(world):
    await world.begin(state((A, B), isr=(A, B)))
    commit = world.store.commit

    async def registered_before(guards, ops):
        world.store.commit = commit
        await world.register(A)
        return await commit(guards, ops)

    world.store.commit = registered_before
    assert await reassign(world, (0, [A, C])) == [None]
    assert (await world.state()).leader_epoch == 6


async def test_many_are_changed_in_few_commits_and_one_that_fails_alone_fails_alone(world):
    count = AT_ONCE + 5
    await world.begin(*[state((A, B), isr=(A, B))] * count)
    commits = []
    commit = world.store.commit

    async def counted(guards, ops):
        commits.append(len(ops))
        return await commit(guards, ops)

    world.store.commit = counted
    wanted = [(n, [A, A] if n == 3 else [A, C]) for n in range(count)]
    found = await reassign(world, *wanted)
    assert found[3] is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert set(found[:3] + found[4:]) == {None}
    assert commits == [0, AT_ONCE - 1, 5], "the first asks what others have done"


async def test_one_named_twice_is_changed_twice(world):
    await world.begin(state())
    assert await reassign(world, (0, [A, B]), (0, [B, C])) == [None, None]
    after = await world.state()
    assert (after.replicas, after.removing) == ((B, C, A), (A,))


async def test_what_is_not_done_in_time_is_refused(world):
    await world.begin(state())
    pending = administration(world).reassign(
        [Move(TopicPartition("t", 0), [A])], Patience(world.clock, 0), may_change_factor=True
    )
    (error,) = pending.value
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert await world.state() == state()


async def test_no_node_gets_a_replica_of_a_topic_that_was_just_deleted(world, monkeypatch):
    """The deletion's mark does not name it: its directory would be taken for another cluster's."""
    await world.begin(state((A, B), isr=(A, B)))
    commit = world.store.commit

    async def after_the_deletion(guards, ops):
        monkeypatch.undo()
        await commit([], [Delete(world.keys.topic("t"))])
        return await commit(guards, ops)

    monkeypatch.setattr(world.store, "commit", after_the_deletion)
    assert await reassign(world, (0, [A, C])) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (await world.state()).replicas == (A, B)


def hear_late(world):
    """Let this node hear of changes some turns of the loop later than others."""
    mirror = world.follower.mirror
    hear = mirror._apply

    def later(change_set, turns=50):
        if turns:
            asyncio.get_running_loop().call_soon(later, change_set, turns - 1)
        else:
            hear(change_set)

    mirror._apply = later


async def test_what_was_done_by_way_of_another_node_is_known_before_nothing_is_to_be_done(world):
    """A move back was told as done, and the replicas went on; a cancel, that there is no move."""
    before = state((A, B), isr=(A, B))
    await world.begin(before, before, before)
    hear_late(world)
    for number in (0, 1):
        await world.put(number, ON_THE_WAY)
    assert await reassign(world, (0, (A, B)), (1, None)) == [None, None]
    back, cancelled = await world.state(0), await world.state(1)
    assert (back.replicas, back.removing) == ((A, B, C), (C,))
    assert (cancelled.replicas, cancelled.adding) == ((A, B), ())
    await world.put(2, before._replace(leader=B, partition_epoch=8))
    assert await elect(world, Election.PREFERRED, 2) == [None]
    assert (await world.state(2)).leader == A


async def test_a_reassignment_that_another_node_was_asked_for_is_listed_at_once(world):
    """It was taken for one that is over: its old nodes might be stopped."""
    await world.begin(state((A, B), isr=(A, B)))
    hear_late(world)
    await world.put(0, ON_THE_WAY)
    handler = ListPartitionReassignments(administration(world), world.follower.image, world.clock)
    steps = handler.handle(ListPartitionReassignmentsRequest(topics=None), None)
    heard = next(steps)
    assert await outcomes(world, heard) == [None]
    (topic,) = answer_of(steps, heard.value).topics
    assert [part.partition_index for part in topic.partitions] == [0]


def answer_of(steps, value):
    """Send what a handler waits for, and return its answer."""
    try:
        steps.send(value)
        while True:
            next(steps)
    except StopIteration as end:
        return end.value
