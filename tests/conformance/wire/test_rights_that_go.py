"""A right on a group is taken away while its members wait: as by a live Kafka 4.3.

Who waits in JoinGroup or SyncGroup was let in when it asked, and is answered. Whatever it asks next
is refused, and the group goes on without it.
"""

import time
import uuid

import pytest

from tests.authorizing import OPTIONS, wait_for_acls
from tests.conformance.wire.group_requests import committing, joining, syncing
from tests.logging_in import shake_hands, token

REFUSED = 30
"""GROUP_AUTHORIZATION_FAILED."""
GROUP, TOPIC, READ, DESCRIBE, LITERAL, ALLOW = 3, 2, 3, 8, 3, 3
REBALANCE_MS = 1500


@pytest.fixture(scope="module")
def broker(made, tmp_path_factory):
    options = OPTIONS | {"group.initial.rebalance.delay.ms": 0}
    data = tmp_path_factory.mktemp("rights") / "data"
    with made(data, options, protocols=("SASL_PLAINTEXT",)) as peer:
        peer.start()
        yield peer


@pytest.fixture
def root(connect_to, broker):
    wire = connect_to(broker.bootstrap)
    topics = wire.call("metadata", 12, topics=None, allow_auto_topic_creation=False)["topics"]
    if "t" not in {topic["name"] for topic in topics}:
        wire.create_topic("t")
    return wire


@pytest.fixture
def alice(connect_to, broker):
    """Return another connection of hers with each call."""

    def connect():
        wire = connect_to(broker.secured["SASL_PLAINTEXT"])
        shake_hands(wire, "PLAIN")
        assert token(wire, "\0alice\0alice")["error_code"] == 0
        return wire

    return connect


def right(kind, name, operation):
    resource = {"resource_type": kind, "resource_name": name, "resource_pattern_type": LITERAL}
    rule = {"principal": "User:alice", "host": "*"}
    return resource | rule | {"operation": operation, "permission_type": ALLOW}


@pytest.fixture
def group(root):
    """A group's name that alice may read; its coordinator serves."""
    name = f"g-{uuid.uuid4().hex[:10]}"
    rights = [right(GROUP, name, READ), right(TOPIC, "t", READ)]
    told = root.call("create_acls", 3, creations=rights)["results"]
    assert {each["error_code"] for each in told} == {0}
    wait_for_acls(root, rights)
    deadline = time.monotonic() + 60
    while True:
        found = root.call("find_coordinator", 4, key_type=0, coordinator_keys=[name])
        asked = [{"group_id": name, "topics": []}]
        code = root.call("offset_fetch", 8, groups=asked)["groups"][0]["error_code"]
        if not code and not found["coordinators"][0]["error_code"]:
            break
        assert time.monotonic() < deadline, code
        time.sleep(0.05)
    yield name
    take_away(root)


def take_away(root):
    everything = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    root.call("delete_acls", 3, filters=[everything])
    wait_for_acls(root, [])


def refusal(wire, group, api, version, **fields):
    """Ask until the answer is no; Kafka's broker hears of a lost right a moment later."""
    deadline = time.monotonic() + 10
    while (answer := wire.call(api, version, **fields))["error_code"] != REFUSED:
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)
    return answer


def member_of(wire, group, **fields):
    """Join; return (member id, generation)."""
    asked = joining(group, session_timeout=6_000, rebalance_timeout=REBALANCE_MS, **fields)
    first = wire.call("join_group", 5, **asked)
    if first["error_code"] == 79:
        first = wire.call("join_group", 5, **asked | {"member_id": first["member_id"]})
    assert first["error_code"] == 0
    return first["member_id"], first["generation_id"]


def test_who_waits_in_join_group_is_answered_and_then_refused(alice, root, group):
    old, new = alice(), alice()
    member, generation = member_of(old, group)
    synced = old.call("sync_group", 3, **syncing(group, member, generation, [(member, b"a")]))
    assert synced["error_code"] == 0
    asked = joining(group, session_timeout=6_000, rebalance_timeout=REBALANCE_MS)
    second = new.call("join_group", 5, **asked)
    assert second["error_code"] == 79, "a member id is required"
    asked["member_id"] = second["member_id"]
    new.send_frame(new.encode("join_group", 5, **asked))
    beat = {"group_id": group, "generation_id": generation, "member_id": member}
    deadline = time.monotonic() + 10
    while old.call("heartbeat", 3, **beat)["error_code"] != 27:  # It has come: all join again.
        assert time.monotonic() < deadline
    take_away(root)
    refusal(old, group, "heartbeat", 3, **beat)
    told = new.decode("join_group", 5, new.receive_frame())
    assert (told["error_code"], told["generation_id"]) == (0, generation + 1)
    assert [each["member_id"] for each in told["members"]] == [second["member_id"]]
    me = second["member_id"]
    refusal(new, group, "sync_group", 3, **syncing(group, me, generation + 1, [(me, b"b")]))
    assert new.call("join_group", 5, **asked)["error_code"] == REFUSED
    left = new.call("leave_group", 3, group_id=group, members=[{"member_id": me}])
    assert left["error_code"] == REFUSED


def test_who_waits_in_sync_group_is_answered_and_then_refused(alice, root, group):
    follower, leader = alice(), root
    member, generation = member_of(leader, group)
    first = follower.call("join_group", 5, **joining(group, rebalance_timeout=20_000))
    mine = first["member_id"]
    asked = joining(group, mine, rebalance_timeout=20_000)
    follower.send_frame(follower.encode("join_group", 5, **asked))
    again = leader.call("join_group", 5, **joining(group, member, rebalance_timeout=20_000))
    joined = follower.decode("join_group", 5, follower.receive_frame())
    assert (again["error_code"], joined["error_code"]) == (0, 0)
    generation = again["generation_id"]
    follower.send_frame(follower.encode("sync_group", 3, **syncing(group, mine, generation)))
    take_away(root)
    other = alice()
    beat = {"group_id": group, "generation_id": generation, "member_id": mine}
    refusal(other, group, "heartbeat", 3, **beat)
    both = [(member, b"leader's"), (mine, b"follower's")]
    assert (
        leader.call("sync_group", 3, **syncing(group, member, generation, both))["error_code"] == 0
    )
    told = follower.decode("sync_group", 3, follower.receive_frame())
    assert (told["error_code"], told["assignment"]) == (0, b"follower's")
    assert follower.call("heartbeat", 3, **beat)["error_code"] == REFUSED
    commit = committing(group, 1, generation=generation, member_id=mine)
    part = follower.call("offset_commit", 7, **commit)["topics"][0]["partitions"][0]
    assert part["error_code"] == REFUSED


def test_a_member_of_the_newer_protocol_is_refused_at_its_next_heartbeat(alice, root, group):
    wire = alice()
    beat = {
        "group_id": group,
        "member_id": str(uuid.uuid4()),
        "member_epoch": 0,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    joined = wire.call("consumer_group_heartbeat", 1, **beat)
    assert joined["error_code"] == 0
    take_away(root)
    quiet = {
        "group_id": group,
        "member_id": joined["member_id"],
        "member_epoch": joined["member_epoch"],
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "topic_partitions": None,
    }
    refused = refusal(wire, group, "consumer_group_heartbeat", 1, **quiet)
    assert refused["assignment"] is None
    gone = wire.call("consumer_group_heartbeat", 1, **quiet | {"member_epoch": -1})
    assert gone["error_code"] == REFUSED, "it may not even leave"
