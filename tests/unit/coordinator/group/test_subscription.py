"""Subscriptions and assignments of consumers are read in every version, and refused when torn."""

import struct
import time

import pytest

from ottla.coordinator.group.classic import subscription
from ottla.coordinator.group.classic.subscription import (
    assignment_bytes,
    read_assignment,
    read_subscription,
    subscribed_topics_of,
)

HEAD = struct.pack(">i", 1) + b"\0\1t" + struct.pack(">i", 2) + b"ud"
OWNED = struct.pack(">i", 1) + b"\0\1t" + struct.pack(">iii", 2, 3, 1)


def said(version):
    parts = [b"", OWNED, struct.pack(">i", 7), b"\0\1r"]
    return struct.pack(">h", version) + HEAD + b"".join(parts[: version + 1])


@pytest.mark.parametrize("version", range(4))
def test_every_version_is_read(version):
    topics, owned, rack_id = read_subscription(said(version))
    assert topics == ("t",)
    assert owned == ({"t": (3, 1)} if version >= 1 else {})
    assert rack_id == ("r" if version >= 3 else None)


def test_a_later_version_is_read_as_the_last_one_known():
    data = struct.pack(">h", 9) + said(3)[2:] + b"more"
    assert read_subscription(data) == read_subscription(said(3))
    assert assignment_bytes(data, {})[:2] == b"\0\3"


@pytest.mark.parametrize("version", range(4))
def test_torn_bytes_are_refused(version):
    whole = said(version)
    for size in range(len(whole)):
        with pytest.raises(ValueError, match=r"."):
            read_subscription(whole[:size])


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xff", b"\0\1" + struct.pack(">i", -1), b"\0\1" + struct.pack(">i", 1 << 30)],
)
def test_senseless_counts_are_refused(data):
    with pytest.raises(ValueError, match=r"."):
        read_subscription(data)
    with pytest.raises(ValueError, match=r"."):
        read_assignment(data)
    assert subscribed_topics_of([data]) is None


def test_an_assignment_has_the_version_of_its_member():
    for version in range(4):
        data = assignment_bytes(said(version), {"u": [2], "t": {1, 0}})
        assert data[:2] == struct.pack(">h", version)
        assert read_assignment(data) == {"t": (0, 1), "u": (2,)}


def test_nobody_waits_for_a_subscription_of_millions_of_topics():
    """One of 10 MiB, of names without a letter, held the loop for 1.8 s when its group began."""
    data = struct.pack(">hi", 1, 1_500_000) + bytes(10_000_000)
    started = time.process_time()
    assert subscribed_topics_of([data]) is None
    with pytest.raises(ValueError, match="too many"):
        read_subscription(data)
    with pytest.raises(ValueError, match="too many"):
        read_assignment(data)
    assert time.process_time() - started < 0.5


def test_many_members_that_read_the_same_topics_cost_one():
    names = [f"topic-{number}" for number in range(1_000)]
    listed = b"".join(struct.pack(">h", len(name)) + name.encode() for name in names)
    head = struct.pack(">hi", 1, len(names)) + listed + struct.pack(">i", -1)
    members = [head + struct.pack(">ih1sii", 1, 1, b"t", 1, owned) for owned in range(500)]
    assert subscribed_topics_of(members) == set(names)


def test_the_topics_of_very_different_members_are_not_known(monkeypatch):
    monkeypatch.setattr(subscription, "ELEMENTS_MAX", 10 * subscription.NAME_COST)
    members = [struct.pack(">hih1si", 0, 1, 1, bytes((one,)), -1) for one in range(65, 76)]
    assert subscribed_topics_of(members[:10]) == set("ABCDEFGHIJ")
    assert subscribed_topics_of(members) is None
