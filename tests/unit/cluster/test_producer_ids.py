"""Producer ids over a store in memory: none is given twice, whatever the store has forgotten."""

import asyncio

import pytest

from ottla.cluster.producer_ids import BLOCK_SIZE, ProducerIds, id_of_now
from ottla.env.clock import ManualClock
from ottla.metadata.store import Put, Unavailable
from ottla.pending import outcome_of


@pytest.fixture
def make(following):
    return lambda: ProducerIds(following.store, following.keys.producer_id_block)


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_an_id_that_a_transactional_id_has_is_given_to_nobody_by_an_older_store(make):
    """Once one of a transactional id that had written nothing was given a second time."""
    ids, of_another_node = make(), make()
    ids.known(1234)
    await settle()
    assert await outcome_of(ids.next()) == 1235
    assert await outcome_of(of_another_node.next()) > 1234 + BLOCK_SIZE


async def test_a_restored_etcd_gives_no_id_twice_though_its_owner_starts_later(make, following):
    """What the other host's logs know is not known yet: a resend would be taken for stored."""
    clock, key = ManualClock(), following.keys.producer_id_block

    def start():
        ids = make()
        ids.lowest = lambda: id_of_now(clock)
        return ids

    await outcome_of(start().next())
    backup = await following.store.get(key)
    given = {await outcome_of(start().next()) for _ in range(20)}
    await following.store.commit([], [Put(key, backup.value)])
    clock.advance(60)  # It takes a person at least that long.
    later = start()
    assert given.isdisjoint([await outcome_of(later.next()) for _ in range(20 * BLOCK_SIZE)])


async def test_ids_of_the_block_at_hand_that_somebody_has_are_left_out(make):
    ids = make()
    assert await outcome_of(ids.next()) == 0
    ids.known(500)
    assert await outcome_of(ids.next()) == 501
    ids.known(499)
    assert await outcome_of(ids.next()) == 502
    ids.known(BLOCK_SIZE - 1)
    assert await outcome_of(ids.next()) == BLOCK_SIZE


async def test_a_store_that_gave_the_ids_is_asked_once(make, following):
    await outcome_of(make().next())
    before = following.image.revision
    ids = make()
    for known in (7, 3, 900):
        ids.known(known)
        await settle()
    assert (await following.store.scan(""))[1] == before
    assert await outcome_of(ids.next()) == BLOCK_SIZE


async def test_ids_that_could_not_be_reserved_are_when_a_block_is_taken(make, following):
    async def fail(commit):
        raise Unavailable("gone")

    following.store.before = fail
    ids = make()
    ids.known(1234)
    await settle()
    assert await outcome_of(ids.next()) == 1235
    assert await outcome_of(make().next()) > 1234
