"""Changing ACLs over a store in memory: what is kept, what is refused, what a fault leaves."""

import asyncio

import pytest

from ottla.cluster.acls import NAME_LENGTH_MAX, Acls, why_invalid
from ottla.errors import ErrorCode
from ottla.metadata.acl_values import acl_digest
from ottla.metadata.store import OPS_MAX, Delete, Unavailable
from ottla.pending import outcome_of
from ottla.security.acl import Acl, Operation, Pattern, Permission, Resource, ResourceType, Rule

ACLS_MAX = 2 * OPS_MAX + 5


def acl(name="orders", *, kind=ResourceType.TOPIC, principal="User:alice", host="*"):
    rule = Rule(principal, host, Operation.READ, Permission.ALLOW)
    return Acl(Resource(kind, name), Pattern.LITERAL, rule)


def many(count, first=0):
    return [acl(f"orders-{number}") for number in range(first, first + count)]


@pytest.fixture
def acls(following):
    return Acls(following.keys, following.follower, acls_max=ACLS_MAX)


@pytest.fixture
def create(acls):
    async def create(*asked):
        outcomes = await outcome_of(acls.create(asked))
        return [None if one is None else one.code for one in outcomes]

    return create


def known(following):
    return set(following.image.acls.values())


async def test_acls_are_made_once_and_gone(acls, create, following):
    assert await create(acl("a"), acl("b"), acl("a")) == [None] * 3
    assert known(following) == {acl("a"), acl("b")}
    assert await create(acl("a")) == [None]
    assert len(following.image.acls) == 2
    assert await outcome_of(acls.delete([acl("a"), acl("never")])) == {
        acl("a"): None,
        acl("never"): None,
    }
    assert known(following) == {acl("b")}


async def test_long_names_of_many_characters_take_as_many_commits_as_the_store_needs(
    acls, create, following
):
    """A character may take twelve bytes; etcd refused such requests as a whole, for ever."""
    name = "\U0001f600" * NAME_LENGTH_MAX
    asked = [
        acl(f"{number}{name}"[:NAME_LENGTH_MAX], principal=f"User:{name}"[:NAME_LENGTH_MAX])
        for number in range(OPS_MAX)
    ]
    assert await create(*asked) == [None] * OPS_MAX
    assert known(following) == set(asked)
    assert set((await outcome_of(acls.delete(asked))).values()) == {None}
    assert not known(following)


async def test_what_is_invalid_hinders_no_others(create, following):
    wrong = acl(""), acl(principal="alice"), acl("other", kind=ResourceType.CLUSTER)
    assert await create(wrong[0], acl("a"), *wrong[1:]) == [
        ErrorCode.INVALID_REQUEST,
        None,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert known(following) == {acl("a")}


@pytest.mark.parametrize("field", ["name", "principal", "host"])
def test_a_text_of_an_acl_has_a_bound(field):
    def sized(count):
        text = ("User:" + "x" * count)[:count]
        return acl(text) if field == "name" else acl(**{field: text})

    assert why_invalid(sized(NAME_LENGTH_MAX)) is None
    assert why_invalid(sized(NAME_LENGTH_MAX + 1)).code is ErrorCode.INVALID_REQUEST


async def test_more_than_the_bound_is_refused_and_nothing_else(acls, create, following):
    told = await create(*many(ACLS_MAX + 3))
    assert told == [None] * ACLS_MAX + [ErrorCode.POLICY_VIOLATION] * 3
    assert len(following.image.acls) == ACLS_MAX
    assert await create(acl("orders-0")) == [None], "it is there"
    await outcome_of(acls.delete(many(2)))
    assert await create(*many(3, first=1_000)) == [None, None, ErrorCode.POLICY_VIOLATION]


async def test_requests_at_a_time_pass_the_bound_no_more_than_one(create, following):
    told = await asyncio.gather(
        create(*many(OPS_MAX + 50)), create(*many(OPS_MAX + 50, first=1_000))
    )
    made = [code for codes in told for code in codes]
    assert made.count(None) == ACLS_MAX
    assert made.count(ErrorCode.POLICY_VIOLATION) == len(made) - ACLS_MAX
    assert len(following.image.acls) == ACLS_MAX


async def test_a_store_that_is_away_fails_only_what_it_was_asked_for(create, following):
    async def away(commit):
        raise Unavailable("away")

    following.store.before = away
    told = await create(*many(OPS_MAX + 2))
    assert told == [ErrorCode.REQUEST_TIMED_OUT] * OPS_MAX + [None] * 2
    assert known(following) == set(many(2, first=OPS_MAX))
    assert await create(*many(ACLS_MAX)) == [None] * ACLS_MAX, "what failed takes no room"


async def test_a_node_that_is_behind_takes_no_acl_for_one_that_is_there(acls, create, following):
    """It was deleted by way of another node just before: "there already" left nobody with it."""
    assert await create(acl("a")) == [None]
    held = following.follower.mirror._apply
    late = []
    following.follower.mirror._apply = late.append
    try:
        key = following.keys.acl(acl_digest(acl("a")))
        await following.store.commit([], [Delete(key)])
        again = asyncio.ensure_future(create(acl("a")))
        behind = asyncio.ensure_future(outcome_of(acls.catch_up()))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not again.done()
        assert not behind.done()
    finally:
        following.follower.mirror._apply = held
    for one in late:
        held(one)
    assert await again == [None]
    assert await behind is None
    assert (await following.store.get(key)) is not None
    assert known(following) == {acl("a")}
