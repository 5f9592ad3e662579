"""Committed offsets expire when KIP-211 says so."""

import pytest

from ottla.coordinator.group.classic.group import ClassicGroup, GroupState
from ottla.coordinator.group.offsets.committed import CommittedOffset, Offsets
from ottla.coordinator.group.offsets.expiry import expired_offsets
from ottla.sliced import at_once

RETENTION_MS = 1000


def world(*, state=GroupState.EMPTY, protocol_type="consumer", subscribed=(), empty_since=5000):
    group = ClassicGroup("g", empty_since)
    group.state = state
    group.protocol_type = protocol_type
    group.subscribed_topics = None if subscribed is None else frozenset(subscribed)
    offsets = Offsets()
    for topic, committed_ms in (("old", 100), ("new", 4900)):
        offsets.put("g", topic, 0, CommittedOffset(1, -1, "", committed_ms))
    return group, offsets


def expired(group, offsets, now_ms):
    keys, is_all = at_once(expired_offsets(group, offsets, now_ms, RETENTION_MS))
    return {key.topic for key in keys}, is_all


def test_an_empty_group_keeps_them_from_when_it_became_empty():
    group, offsets = world()
    assert expired(group, offsets, 5999) == (set(), False)
    assert expired(group, offsets, 6000) == ({"old", "new"}, True)


def test_clients_without_a_group_keep_them_from_each_commit():
    group, offsets = world(protocol_type=None, subscribed=None)
    assert expired(group, offsets, 1099) == (set(), False)
    assert expired(group, offsets, 1100) == ({"old"}, False)
    assert expired(group, offsets, 5900) == ({"old", "new"}, True)


def test_members_keep_what_they_read():
    group, offsets = world(state=GroupState.STABLE, subscribed=["old"])
    assert expired(group, offsets, 10_000) == ({"new"}, False)


@pytest.mark.parametrize(
    "fields",
    [
        {"state": GroupState.STABLE, "subscribed": None},
        {"state": GroupState.STABLE, "protocol_type": "connect", "subscribed": None},
        {"state": GroupState.PREPARING_REBALANCE, "subscribed": []},
        {"state": GroupState.COMPLETING_REBALANCE, "subscribed": []},
    ],
)
def test_nothing_expires_while_it_is_not_known_what_is_read(fields):
    assert expired(*world(**fields), 10_000) == (set(), False)


def test_a_client_may_have_asked_for_a_time_of_its_own():
    group, offsets = world()
    offsets.put("g", "new", 0, CommittedOffset(1, -1, "", 4900, expire_timestamp_ms=5050))
    assert expired(group, offsets, 5050) == ({"new"}, False)


def test_what_a_transaction_is_about_to_change_stays():
    group, offsets = world()
    offsets.put("g", "old", 0, CommittedOffset(1, -1, "", 100), producer_id=3)
    assert expired(group, offsets, 10_000) == ({"new"}, False)


def test_a_group_without_offsets_has_nothing_left():
    group, _ = world()
    assert expired(group, Offsets(), 0) == (set(), True)
