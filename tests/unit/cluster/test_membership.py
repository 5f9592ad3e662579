"""A node is a member of its cluster for as long as it lives, whatever becomes of its session."""

import asyncio
from math import inf
from types import SimpleNamespace

import pytest

from ottla.cluster.membership import REJOIN_RETRY_SECONDS, AlreadyRegistered, Membership
from ottla.env.clock import ManualClock
from ottla.ids import NodeId
from ottla.metadata.image import MetadataDelta
from ottla.metadata.keys import Keys
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Ambiguous, Delete, Put, SessionState, Unavailable
from ottla.metadata.values import (
    NO_LEADER,
    BrokerState,
    BrokerValue,
    decode_broker,
    decode_controller,
    encode_controller,
)

KEYS = Keys("local")
BROKER = BrokerValue(host="here", port=9092, rack=None)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def store(clock):
    store = MemoryStore(clock)
    yield store
    await store.close()


@pytest.fixture
async def membership(store, clock):
    membership = Membership(store, KEYS, NodeId(7), BROKER, clock=clock)
    yield membership
    await membership.leave()


async def turns(count=50):
    for _ in range(count):
        await asyncio.sleep(0)


async def is_member(store):
    live = await store.get(KEYS.live_broker(NodeId(7)))
    seat = await store.get(KEYS.controller)
    assert (live is None) == (seat is None)
    return live is not None and decode_controller(seat.value) == 7


async def test_a_node_that_must_not_register_leaves_no_trace(store, membership):
    async def refuse():
        raise Unavailable("it is of another history")

    membership.before = refuse
    with pytest.raises(Unavailable):
        await membership.join()
    assert not await is_member(store)


@pytest.mark.parametrize("after_commits", [0, 1])
async def test_a_session_that_is_lost_while_a_node_joins_is_replaced(
    store, clock, membership, after_commits, monkeypatch
):
    """World n1129q.186: a node that stood still for a while amid its start ended."""
    commit, left = store.commit, [after_commits]

    async def late(guards, ops):
        left[0] -= 1
        if left[0] == -1:
            await membership._session.close()
        return await commit(guards, ops)

    monkeypatch.setattr(store, "commit", late)
    joining = asyncio.ensure_future(membership.join())
    await turns()
    assert not joining.done()
    assert not await is_member(store)
    clock.advance(REJOIN_RETRY_SECONDS)
    await turns()
    assert joining.result() > 0
    assert await is_member(store)


async def test_whether_it_may_register_is_asked_again_when_its_session_is_lost(
    store, clock, membership
):
    asked = []

    async def may():
        asked.append(await is_member(store))

    membership.before = may
    await membership.join()
    await membership._session.close()
    membership._heard(1, SessionState.LOST)
    await turns()
    assert asked == [False, False]
    assert await is_member(store)


@pytest.mark.parametrize("stall_seconds", [6.5, 9.5, 11.0, 60.0])
async def test_a_stall_of_any_length_at_any_phase_leaves_the_node_registered(
    store, clock, membership, stall_seconds
):
    await membership.join()
    for step in range(200):
        clock.advance(step * 0.1)
        clock.stall(stall_seconds)
        assert await is_member(store), "not even for a moment"


async def test_a_node_whose_session_is_lost_joins_again_with_another_epoch(
    store, clock, membership
):
    await membership.join()
    for _ in range(3):
        before = await store.get(KEYS.live_broker(NodeId(7)))
        membership._session.abandon()
        clock.advance(9)
        assert membership.state is SessionState.LOST
        await turns()
        assert await is_member(store)
        after = await store.get(KEYS.live_broker(NodeId(7)))
        assert after.create_rev > before.create_rev
        assert after.value == before.value
        assert membership.state is SessionState.CONNECTED


async def test_it_tries_again_until_the_store_answers(store, clock, membership, monkeypatch):
    await membership.join()
    commit, refused = store.commit, []

    async def refuse(guards, ops):
        refused.append(ops)
        raise Unavailable("no room")

    monkeypatch.setattr(store, "commit", refuse)
    membership._session.abandon()
    clock.advance(9)
    for tries in range(1, 5):
        await turns()
        assert len(refused) == tries
        clock.advance(REJOIN_RETRY_SECONDS)
    monkeypatch.setattr(store, "commit", commit)
    clock.advance(REJOIN_RETRY_SECONDS)
    await turns()
    clock.advance(REJOIN_RETRY_SECONDS)
    await turns()
    assert await is_member(store)
    assert len(store._sessions._sessions) == 1, "a failed try leaves no session behind"


async def test_a_node_that_left_does_not_come_back(store, clock, membership):
    await membership.join()
    await membership.leave()
    await turns()
    clock.advance(60)
    await turns()
    assert not await is_member(store)


async def test_a_seat_that_is_given_up_while_a_node_joins_is_taken(
    store, clock, membership, monkeypatch
):
    """The image told of it before the node was a member; nobody else may be there to take it."""
    other = await store.session(9, lambda _: None)
    seat = Put(KEYS.controller, encode_controller(NodeId(8)), other.id)
    await store.commit([], [seat])
    commit = store.commit

    async def amid(guards, ops):
        try:
            return await commit(guards, ops)
        finally:
            if ops[0].key == KEYS.controller:
                monkeypatch.setattr(store, "commit", commit)
                await other.close()
                image = SimpleNamespace(controller=NO_LEADER, brokers={})
                membership.apply(image, MetadataDelta(revision=9, controller_changed=True))

    monkeypatch.setattr(store, "commit", amid)
    await membership.join()
    await turns()
    assert await is_member(store)


async def test_leaving_in_the_middle_of_joining_again_ends(store, clock, membership, monkeypatch):
    await membership.join()

    async def refuse(guards, ops):
        raise Unavailable("no room")

    with monkeypatch.context() as patched:
        patched.setattr(store, "commit", refuse)
        membership._session.abandon()
        clock.advance(9)
        await turns()
        await membership.leave()
    clock.advance(60)
    await turns()
    assert not await is_member(store)


async def test_a_second_process_of_the_same_id_is_refused_and_leaves_no_session(
    store, clock, membership
):
    await membership.join()
    second = Membership(store, KEYS, NodeId(7), BROKER, clock=clock)
    with pytest.raises(AlreadyRegistered):
        await second.join()
    clock.advance(60)
    assert await is_member(store)
    assert len(store._sessions._sessions) == 1


async def test_a_fault_of_ours_at_joining_again_is_logged_and_tried_again(
    store, clock, membership, monkeypatch, caplog
):
    await membership.join()
    begin, faults = store.session, [ZeroDivisionError("of ours")]

    async def faulty(*arguments):
        if faults:
            raise faults.pop()
        return await begin(*arguments)

    monkeypatch.setattr(store, "session", faulty)
    await membership._session.close()
    await turns()
    assert not faults
    assert not await is_member(store)
    assert "ZeroDivisionError" in caplog.text
    clock.advance(REJOIN_RETRY_SECONDS)
    await turns()
    assert await is_member(store)


async def test_an_error_that_ends_the_attempts_to_join_again_is_told(
    store, membership, monkeypatch
):
    class Ended(BaseException):
        pass

    await membership.join()
    told = []
    membership.on_failed = told.append

    async def faulty(*arguments):
        raise Ended

    monkeypatch.setattr(store, "session", faulty)
    await membership._session.close()
    await turns()
    assert [type(one) for one in told] == [Ended]


async def test_a_session_lost_while_the_last_answer_is_on_its_way_is_replaced(
    store, membership, monkeypatch
):
    put = membership._put_keys

    async def put_and_lose(session):
        monkeypatch.setattr(membership, "_put_keys", put)
        revision = await put(session)
        await session.close()
        return revision

    monkeypatch.setattr(membership, "_put_keys", put_and_lose)
    await membership.join()
    await turns()
    assert await is_member(store)


class Seat:
    """The part of an image that tells who is the controller."""

    def __init__(self):
        self.controller = NO_LEADER
        self.brokers = {}


class SeatChanged:
    brokers = ()
    controller_changed = True


@pytest.mark.parametrize("error", [Unavailable("away"), Ambiguous("no answer")])
async def test_the_seat_is_taken_later_when_the_store_was_away_as_it_became_free(
    store, clock, membership, error
):
    """All nodes lose their sessions when a store stalls; without a controller nobody is elected."""
    await membership.join()
    await store.commit([], [Delete(KEYS.controller)])
    commit, failures = store.commit, [error, error]

    async def away(guards, ops):
        if failures:
            raise failures.pop()
        return await commit(guards, ops)

    store.commit = away
    image = Seat()
    membership.apply(image, SeatChanged())
    for _ in range(4):
        await turns()
        clock.advance(1)
    assert await is_member(store)
    image.controller = NodeId(7)
    clock.advance(1)
    await turns()
    assert membership._seating is None, "it tries no more"


async def registration(store):
    return decode_broker((await store.get(KEYS.live_broker(NodeId(7)))).value)


async def test_what_it_tells_of_its_space_holds_when_it_joins_again(store, clock, membership):
    assert await membership.tell_full(True) is None, "it is no member yet"
    await membership.join()
    assert (await registration(store)).is_full
    assert await membership.tell_full(False) > 0
    assert not (await registration(store)).is_full
    await membership.tell_full(True)
    clock.advance(60)
    for _ in range(5):
        await turns()
        clock.advance(1)
    assert (await registration(store)).is_full


async def test_a_stop_and_a_full_disk_are_both_told_though_at_the_same_time(store, membership):
    await membership.join()
    told = await asyncio.gather(membership.drain(), membership.tell_full(True))
    assert None not in told
    found = await registration(store)
    assert (found.state, found.is_full) == (BrokerState.DRAINING, True)


async def test_a_node_is_no_member_for_certain_before_its_new_registration_is_seen(
    store, clock, membership, monkeypatch
):
    """World n1130d2.69: it took its registration of before for that of its new session."""
    image = SimpleNamespace(brokers={}, controller=7)

    async def see():
        entry = await store.get(KEYS.live_broker(NodeId(7)))
        image.brokers[7] = SimpleNamespace(epoch=entry.create_rev)
        membership.apply(image, MetadataDelta(entry.create_rev, brokers=(NodeId(7),)))

    await membership.join()
    assert membership.certain_until() == -inf
    await see()
    assert membership.certain_until() == inf
    commit, held = store.commit, asyncio.Event()

    async def late(guards, ops):
        await held.wait()
        return await commit(guards, ops)

    monkeypatch.setattr(store, "commit", late)
    await membership._session.close()
    await turns()
    assert membership.state is SessionState.CONNECTED
    assert membership.certain_until() == -inf
    held.set()
    await turns()
    assert membership.certain_until() == -inf
    await see()
    assert membership.certain_until() == inf
