"""Subscriptions and assignments of consumers are read in every version, and refused when torn."""

import struct

import pytest

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
