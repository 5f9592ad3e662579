"""Groups and committed offsets on the wire: what every client relies on. Also with --target kafka.

The long comparison with a live Kafka, request by request, is ``test_differential_groups``.
"""

import time
import uuid

import pytest

from tools.wire_client import Closed, batch

NOT_READY = (14, 15, 16)


@pytest.fixture
def group(wire):
    """A group's name whose coordinator serves."""
    name = f"g-{uuid.uuid4().hex[:12]}"
    deadline = time.monotonic() + 60
    while True:
        found = wire.call("find_coordinator", 4, key_type=0, coordinator_keys=[name])
        code = found["coordinators"][0]["error_code"]
        if code == 0:
            asked = [{"group_id": name, "topics": []}]
            code = wire.call("offset_fetch", 8, groups=asked)["groups"][0]["error_code"]
        if code not in NOT_READY:
            assert code == 0
            return name
        assert time.monotonic() < deadline, code
        time.sleep(0.05)


def commit(wire, group, offset, *, topic, version=8, **fields):
    part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
    asked = {"group_id": group, "generation_id_or_member_epoch": -1, **fields}
    topics = [{"name": topic, "partitions": [part]}]
    answer = wire.call("offset_commit", version, **asked, topics=topics)
    return answer["topics"][0]["partitions"][0]["error_code"]


def fetch(wire, group):
    answer = wire.call("offset_fetch", 8, groups=[{"group_id": group, "topics": None}])
    return {
        (topic["name"], part["partition_index"]): (part["committed_offset"], part["metadata"])
        for topic in answer["groups"][0]["topics"]
        for part in topic["partitions"]
    }


def join(wire, group, member_id="", **fields):
    asked = {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\x00\x00\x00\x00\x00\x00"}],
    }
    return wire.call("join_group", 9, **asked | fields)


def test_the_topic_of_groups_is_internal_and_compacted(wire, group):
    asked = [{"topic_id": None, "name": "__consumer_offsets"}]
    (topic,) = wire.call("metadata", 12, topics=asked)["topics"]
    assert topic["is_internal"]
    assert len(topic["partitions"]) == 50
    resource = {"resource_type": 2, "resource_name": "__consumer_offsets"}
    (found,) = wire.call("describe_configs", 4, resources=[resource])["results"]
    configs = {one["name"]: one["value"] for one in found["configs"]}
    assert configs["cleanup.policy"] == "compact"
    assert configs["segment.bytes"] == "104857600"
    assert configs["compression.type"] == "producer"


def test_clients_do_not_write_to_it(wire, group):
    for version in (8, 9):
        answer = wire.produce("__consumer_offsets", batch([b"v"], keys=[b"k"]), version=version)
        assert answer["error_code"] == 17
    topics = [{"name": "__consumer_offsets", "partition_data": [
        {"index": partition, "records": batch([b"v"], keys=[b"k"])} for partition in (0, 1)
    ]}]  # fmt: skip
    answer = wire.call("produce", 9, acks=-1, timeout=1000, topic_data=topics)
    codes = [one["error_code"] for one in answer["responses"][0]["partition_responses"]]
    assert codes == [17, 17]


def test_what_is_committed_is_fetched(wire, group, topic_name):
    wire.create_topic(topic_name, 1)
    assert fetch(wire, group) == {}
    assert commit(wire, group, 5, topic=topic_name) == 0
    assert fetch(wire, group) == {(topic_name, 0): (5, "m")}
    assert commit(wire, group, 4, topic=topic_name) == 0
    assert fetch(wire, group) == {(topic_name, 0): (4, "m")}


def test_a_topic_that_goes_takes_its_offsets_along(wire, group, topic_name):
    wire.create_topic(topic_name, 1)
    assert commit(wire, group, 5, topic=topic_name) == 0
    wire.call("delete_topics", 5, topic_names=[topic_name], timeout=10_000)
    deadline = time.monotonic() + 10
    while fetch(wire, group):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_members_life(wire, group, topic_name):
    wire.create_topic(topic_name, 1)
    sent = join(wire, group)
    assert sent["error_code"] == 79
    member = sent["member_id"]
    joined = join(wire, group, member)
    assert (joined["error_code"], joined["leader"]) == (0, member)
    generation = joined["generation_id"]
    assert [one["member_id"] for one in joined["members"]] == [member]
    mine = {"group_id": group, "member_id": member, "generation_id": generation}
    synced = wire.call(
        "sync_group",
        5,
        **mine,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": member, "assignment": b"A"}],
    )
    assert (synced["error_code"], synced["assignment"]) == (0, b"A")
    assert wire.call("heartbeat", 4, **mine)["error_code"] == 0
    outsider = commit(wire, group, 1, topic=topic_name)
    assert outsider == 25, "who is no member does not commit beside members"
    fields = {"generation_id_or_member_epoch": generation, "member_id": member}
    assert commit(wire, group, 1, topic=topic_name, **fields) == 0
    (told,) = wire.call("describe_groups", 6, groups=[group])["groups"]
    assert (told["group_state"], told["protocol_data"]) == ("Stable", "range")
    (one,) = told["members"]
    assert (one["client_id"], one["client_host"]) == ("wire", "/127.0.0.1")
    assert one["member_assignment"] == b"A"
    (deleted,) = wire.call("delete_groups", 2, groups_names=[group])["results"]
    assert deleted["error_code"] == 68
    members = [{"member_id": member}]
    assert wire.call("leave_group", 5, group_id=group, members=members)["error_code"] == 0
    assert wire.call("heartbeat", 4, **mine)["error_code"] == 25
    (deleted,) = wire.call("delete_groups", 2, groups_names=[group])["results"]
    assert deleted["error_code"] == 0
    (told,) = wire.call("describe_groups", 6, groups=[group])["groups"]
    assert (told["error_code"], told["group_state"]) == (69, "Dead")
    assert "not found" in told["error_message"]


def test_members_that_die_are_found_out(connect, group):
    """A connection that breaks is no farewell: the session's end is."""
    wire = connect()
    member = join(wire, group)["member_id"]
    join(wire, group, member, session_timeout=6000)
    wire.close()
    other = connect(timeout_seconds=30)
    newcomer = join(other, group)["member_id"]
    started = time.monotonic()
    joined = join(other, group, newcomer, rebalance_timeout=60_000)
    assert [one["member_id"] for one in joined["members"]] == [newcomer]
    assert 2 < time.monotonic() - started < 20


def test_names_of_any_kind(connect, wire, group, topic_name):
    wire.create_topic(topic_name, 1)
    for name in ("../../etc/passwd", "a/b\x00c", "  ", "é😀", "x" * 20_000, "%s{}$(id)"):
        assert commit(wire, name, 5, topic=topic_name) == 0
        assert fetch(wire, name)[topic_name, 0] == (5, "m")
        (one,) = wire.call("delete_groups", 2, groups_names=[name])["results"]
        assert one["error_code"] == 0
    with pytest.raises(Closed):
        commit(connect(), "x" * 40_000, 5, topic=topic_name)
    assert commit(wire, group, 5, topic=topic_name) == 0


def test_a_group_whose_members_know_too_much(wire, group):
    """All that members say goes into one record: Kafka's limit of a record is the group's."""
    protocols = [{"name": "range", "metadata": bytes(600_000)}]
    joined = join(wire, group, group_instance_id="i", protocols=protocols)
    assert joined["error_code"] == 0
    member = joined["member_id"]
    synced = wire.call(
        "sync_group",
        5,
        group_id=group,
        member_id=member,
        group_instance_id="i",
        generation_id=joined["generation_id"],
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": member, "assignment": bytes(600_000)}],
    )
    assert synced["error_code"] == -1
    members = [{"member_id": member, "group_instance_id": "i"}]
    assert wire.call("leave_group", 5, group_id=group, members=members)["error_code"] == 0


@pytest.mark.parametrize(
    "pattern",
    [
        "(a|a)*" * 20 + "$",
        "(a*)*b",
        "(" * 900,
        "(.*.*.*.*)*q",
        "\x00",
        "a{1000}" * 10,
        "x" * 20_000,
    ],
    ids=lambda pattern: pattern[:12],
)
def test_an_expression_that_explodes_holds_nobody_up(wire, group, topic_name, pattern):
    wire.create_topic("a" * 100 + topic_name, 1)
    wire.create_topic(topic_name, 1)

    def beat(member, **fields):
        asked = {"group_id": group, "member_id": member, "member_epoch": 0}
        asked |= {"rebalance_timeout": 60_000, "topic_partitions": []}
        return wire.call("consumer_group_heartbeat", 1, **asked | fields)

    started = time.monotonic()
    first = beat("first", subscribed_topic_regex=pattern, subscribed_topic_names=None)
    assert first["error_code"] in (0, 128)
    assert beat("second", subscribed_topic_names=[topic_name])["error_code"] == 0
    assert time.monotonic() - started < 10
    for member in ("first", "second"):
        beat(member, member_epoch=-1, rebalance_timeout=-1)


def test_a_commit_larger_than_a_batch_may_be_is_refused_and_the_group_goes_on(wire, topic_name):
    """Kafka 4.3 says -1. Its coordinator of before said 28 INVALID_COMMIT_OFFSET_SIZE."""
    wire.create_topic(topic_name)
    group = f"large-{topic_name}"

    def commit(metadata):
        asked = [
            {
                "partition_index": 0,
                "committed_offset": 1,
                "committed_leader_epoch": -1,
                "committed_metadata": metadata,
            }
            for _ in range(400)  # The last one counts; all are written.
        ]
        answer = wire.call(
            "offset_commit",
            8,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"name": topic_name, "partitions": asked}],
        )
        return {one["error_code"] for one in answer["topics"][0]["partitions"]}

    deadline = time.monotonic() + 60
    while commit("") != {0}:  # The coordinator is being made.
        wire.call("find_coordinator", 4, key_type=0, coordinator_keys=[group])
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert commit("x" * 3000) == {-1}
    assert commit("x" * 100) == {0}


def test_each_description_names_a_group_of_the_other_kind(wire, group):
    wire.call(
        "consumer_group_heartbeat",
        1,
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout=60_000,
        subscribed_topic_names=["nothing"],
        topic_partitions=[],
    )
    found = wire.call("describe_groups", 6, groups=[group])["groups"][0]
    assert (found["error_code"], found["group_state"]) == (69, "Dead")
    assert found["error_message"] == f"Group {group} is not a classic group."
    found = wire.call("describe_groups", 5, groups=[group])["groups"][0]
    assert (found["error_code"], found["group_state"]) == (0, "Dead")

    classic = f"{group}-classic"
    joined = join(wire, classic)
    assert joined["error_code"] in (0, 79)
    found = wire.call("consumer_group_describe", 1, group_ids=[classic])["groups"][0]
    assert found["error_code"] == 69
    assert found["error_message"] == f"Group {classic} is not a consumer group."
