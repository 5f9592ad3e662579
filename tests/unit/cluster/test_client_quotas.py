"""Changing quotas over a store in memory: what is kept, what is refused, what a fault leaves."""

import pytest

from ottla.cluster.client_quotas import (
    ALTERATIONS_MAX,
    ANY,
    DEFAULT,
    EXACT,
    Alteration,
    ClientQuotas,
    Filter,
    is_match,
    parts_of,
)
from ottla.errors import ErrorCode
from ottla.ids import QuotaEntity
from ottla.metadata.store import Put, Unavailable
from ottla.metadata.values import encode_quota

PRODUCE = "producer_byte_rate"
ENTITIES_MAX = 5


@pytest.fixture
def quotas(following):
    return ClientQuotas(
        following.store, following.keys, following.follower, entities_max=ENTITIES_MAX
    )


@pytest.fixture
def alter(quotas, outcome):
    async def alter(*asked, validate_only=False):
        alterations = [Alteration(tuple(parts), tuple(changes)) for parts, changes in asked]
        outcomes = await outcome(quotas.alter(alterations, validate_only=validate_only))
        return [None if one.error is None else one.error.code for one in outcomes]

    return alter


@pytest.fixture
def outcome():
    from ottla.pending import outcome_of

    return outcome_of


async def test_quotas_are_merged_kept_and_gone(alter, quotas):
    ann = [("user", "ann")]
    assert await alter((ann, [(PRODUCE, 5.0), ("request_percentage", 0.5)])) == [None]
    assert await alter((ann, [(PRODUCE, None), ("consumer_byte_rate", 7.0)])) == [None]
    kept = {"request_percentage": 0.5, "consumer_byte_rate": 7.0}
    assert dict(quotas.known) == {QuotaEntity("ann"): kept}
    assert await alter((ann, [(PRODUCE, 9.0)]), validate_only=True) == [None]
    assert dict(quotas.known) == {QuotaEntity("ann"): kept}
    assert await alter((ann, [(key, None) for key in kept])) == [None]
    assert dict(quotas.known) == {}


async def test_addresses_are_written_one_way(alter, quotas):
    for text in ("::ffff:10.0.0.1", "0:0:0:0:0:0:0:1", "localhost"):
        assert await alter(([("ip", text)], [("connection_creation_rate", 1.0)])) == [None]
    assert set(quotas.known) == {
        QuotaEntity(ip="10.0.0.1"),
        QuotaEntity(ip="::1"),
        QuotaEntity(ip="127.0.0.1"),
    }


@pytest.fixture
def rival(following):
    """``rival(count)``: somebody else is faster so many times; None: each time."""

    def rival(count, seconds=0):
        left = count

        async def meanwhile(commit):
            nonlocal left
            left = None if left is None else left - 1
            following.clock.advance(seconds)
            key = following.keys.quota(QuotaEntity("ann"))
            await commit([], [Put(key, encode_quota({"consumer_byte_rate": 7.0}))])
            if left != 0:
                following.store.before = meanwhile

        following.store.before = meanwhile

    return rival


@pytest.mark.usefixtures("pauses_pass")
async def test_who_loses_twenty_times_in_a_row_gets_through(alter, quotas, rival):
    """Of three nodes that changed a quota at once, one gave up after ten lost races."""
    rival(20)
    assert await alter(([("user", "ann")], [(PRODUCE, 5.0)])) == [None]
    assert dict(quotas.known) == {QuotaEntity("ann"): {PRODUCE: 5.0, "consumer_byte_rate": 7.0}}


async def test_who_always_loses_is_told_so_in_words(quotas, outcome, rival):
    """He was told a key of the metadata store, and which revisions of it were expected."""
    rival(None, seconds=10)
    asked = Alteration((("user", "ann"),), ((PRODUCE, 5.0),))
    (told,) = await outcome(quotas.alter([asked], validate_only=False))
    assert told.error.code is ErrorCode.REQUEST_TIMED_OUT
    why = "others change the quotas of these entities all the time; nothing was changed: try again"
    assert told.error.why == why


async def test_there_are_so_many_and_no_more(alter, quotas):
    asked = [([("user", f"u{n}")], [(PRODUCE, 1.0)]) for n in range(ENTITIES_MAX + 2)]
    over = ErrorCode.POLICY_VIOLATION
    assert await alter(*asked) == [None] * ENTITIES_MAX + [over] * 2
    assert await alter(asked[0], asked[-1]) == [None, over]
    assert await alter(([("user", "u0")], [(PRODUCE, None)])) == [None]
    assert await alter(asked[-1]) == [None]
    assert len(quotas.known) == ENTITIES_MAX


async def test_one_request_changes_a_thousand_at_most(alter, quotas):
    asked = [([("user", f"u{n}")], [(PRODUCE, None)]) for n in range(ALTERATIONS_MAX)]
    assert set(await alter(*asked)) == {None}
    more = [*asked, ([("user", "one more")], [(PRODUCE, None)])]
    assert set(await alter(*more)) == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 0.0])
async def test_what_is_no_bound_is_refused(alter, value):
    for key in (PRODUCE, "request_percentage"):
        refused = await alter(([("user", "a")], [(key, value)]))
        assert refused == [ErrorCode.INVALID_REQUEST]


async def test_a_name_that_no_key_can_hold_is_refused(alter):
    assert await alter(([("user", "ü" * 4000)], [(PRODUCE, 1.0)])) == [ErrorCode.INVALID_REQUEST]


async def test_a_store_that_is_gone_is_told(alter, following, monkeypatch):
    async def fail(*_):
        raise Unavailable("gone")

    monkeypatch.setattr(following.store, "commit", fail)
    told = await alter(([("user", "a")], [(PRODUCE, 1.0)]), ([("user", "")], [(PRODUCE, 1.0)]))
    assert told == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_REQUEST]


BOTH = QuotaEntity("ann", "")


@pytest.mark.parametrize(
    ("filters", "strict", "matches"),
    [
        ([], False, True),
        ([], True, False),
        ([("user", EXACT, "ann")], False, True),
        ([("user", EXACT, "ann")], True, False),
        ([("user", EXACT, "bob")], False, False),
        ([("user", DEFAULT, None)], False, False),
        ([("user", ANY, None), ("client-id", DEFAULT, None)], True, True),
        ([("user", ANY, None), ("client-id", EXACT, "")], True, False),
        ([("ip", ANY, None)], False, False),
    ],
)
def test_filters(filters, strict, matches):
    assert is_match(BOTH, [Filter(*one) for one in filters], strict=strict) is matches


def test_parts_are_told_in_kafkas_order():
    assert parts_of(BOTH) == (("client-id", None), ("user", "ann"))


async def test_two_administrators_take_nothing_away_from_each_other(alter, quotas, following):
    """Each wrote all quotas of the entity as it knew them: one change of two was lost."""
    ann = [("user", "ann")]

    async def meanwhile(_commit):
        assert await alter((ann, [("consumer_byte_rate", 7.0)])) == [None]

    following.store.before = meanwhile
    assert await alter((ann, [(PRODUCE, 5.0)])) == [None]
    assert dict(quotas.known) == {QuotaEntity("ann"): {PRODUCE: 5.0, "consumer_byte_rate": 7.0}}
