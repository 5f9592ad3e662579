"""Groups and offsets that Apache Kafka wrote are served here, and ours by it: the same files."""

import json
import re
import shutil
import time

import pytest

from tools.differential import Play

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(180)]

GROUPS = ["simple", "expiring", "deleted", "empty", "stable", "static", "é😀"]
OPTIONS = {"group.initial.rebalance.delay.ms": 0}
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"


def join(play, group, instance=None):
    """Let one member form a generation; return its id."""
    asked = {
        "group_id": group,
        "session_timeout": 300_000,
        "rebalance_timeout": 300_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
        "group_instance_id": instance,
        "member_id": "",
    }
    joined = play.prepare("join_group", 9, **asked)
    if joined["error_code"] == 79:
        joined = play.prepare("join_group", 9, **asked | {"member_id": joined["member_id"]})
    member, generation = joined["member_id"], joined["generation_id"]
    synced = play.prepare(
        "sync_group",
        5,
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": member, "assignment": b"mine"}],
    )
    assert synced["error_code"] == 0
    return member


def commit(play, group, offset, version=8, **fields):
    parts = [
        {"partition_index": index, "committed_offset": offset + index, "committed_metadata": "m"}
        for index in range(3)
    ]
    asked = {"group_id": group, "generation_id_or_member_epoch": -1, **fields}
    topics = [{"name": "t", "partitions": parts}]
    answer = play.prepare("offset_commit", version, **asked, topics=topics)
    assert {one["error_code"] for one in answer["topics"][0]["partitions"]} == {0}


def fill(play):
    """Write a record of each kind."""
    play.create_topic("t", 3)
    play.wait_for_coordinator(*GROUPS)
    for offset in (1, 100):
        commit(play, "simple", offset)
        commit(play, "é😀", offset)
        commit(play, "deleted", offset)
    commit(play, "expiring", 5, version=4, retention_time=100_000_000)
    play.prepare("delete_groups", 2, groups_names=["deleted"])
    parts = [{"partition_index": 1}]
    topics = [{"name": "t", "partitions": parts}]
    play.prepare("offset_delete", 0, group_id="simple", topics=topics)
    member = join(play, "empty")
    commit(play, "empty", 7, generation_id_or_member_epoch=1, member_id=member)
    play.prepare("leave_group", 5, group_id="empty", members=[{"member_id": member}])
    member = join(play, "stable")
    commit(play, "stable", 8, generation_id_or_member_epoch=1, member_id=member)
    join(play, "static", instance="i")
    join(play, "static", instance="i")  # It has restarted, and goes on under a new id.


def told(play):
    """What a broker says of all groups."""
    play.wait_for_coordinator(*GROUPS)
    asked = [{"group_id": group, "topics": None} for group in GROUPS]
    fetched = play.prepare("offset_fetch", 8, groups=asked)["groups"]
    described = play.prepare("describe_groups", 5, groups=GROUPS)["groups"]
    for group in fetched:
        for topic in group["topics"]:
            topic["partitions"].sort(key=lambda part: part["partition_index"])
    return (
        sorted(fetched, key=lambda group: group["group_id"]),
        sorted(described, key=lambda group: group["group_id"]),
    )


def check_members_live(play, described):
    """The members that were, still are: their next heartbeat is welcome."""
    alive = {group["group_id"]: group["members"] for group in described if group["members"]}
    assert set(alive) == {"stable", "static"}
    for group, (member,) in alive.items():
        answer = play.prepare(
            "heartbeat",
            4,
            group_id=group,
            member_id=member["member_id"],
            generation_id=1,
            group_instance_id=member["group_instance_id"],
        )
        assert answer["error_code"] == 0


@pytest.mark.parametrize("end", ["clean stop", "kill -9"])
def test_what_kafka_wrote_is_served_here(kafka_server_factory, ottla_server_factory, tmp_path, end):
    kafka = kafka_server_factory(OPTIONS)
    with Play(kafka.bootstrap) as play:
        fill(play)
        expected = told(play)
    if end == "clean stop":
        kafka.stop()
    else:
        kafka.kill9()
    shutil.copytree(kafka.data, tmp_path / "copy")
    ottla = ottla_server_factory(OPTIONS, data=tmp_path / "copy")
    with Play(ottla.bootstrap) as play:
        assert told(play) == expected
        check_members_live(play, expected[1])
        commit(play, "simple", 1000)
        expected = told(play)
    ottla.kill9()
    ottla.start()
    with Play(ottla.bootstrap) as play:
        assert told(play) == expected


@pytest.mark.parametrize("end", ["clean stop", "kill -9"])
def test_what_is_written_here_is_served_by_kafka(kafka_server_factory, ottla_server_factory, end):
    ottla = ottla_server_factory(OPTIONS)
    with Play(ottla.bootstrap) as play:
        fill(play)
        expected = told(play)
    if end == "clean stop":
        ottla.stop()
    else:
        ottla.kill9()
    kafka = kafka_server_factory(OPTIONS)
    with Play(kafka.bootstrap) as play:
        play.create_topic("t", 3)
        play.wait_for_coordinator(*GROUPS)
    kafka.stop()
    for ours in ottla.data.glob("__consumer_offsets-*"):
        theirs = kafka.data / ours.name
        for path in [*theirs.iterdir()]:
            if path.name != "partition.metadata":
                path.unlink()
        for path in ours.iterdir():
            if path.name != "partition.metadata":
                shutil.copy(path, theirs / path.name)
    kafka.start()
    with Play(kafka.bootstrap) as play:
        deadline = time.monotonic() + 30
        while told(play) != expected and time.monotonic() < deadline:
            time.sleep(0.2)  # It serves groups as it loads them.
        assert told(play) == expected
        check_members_live(play, expected[1])


def test_dump_log_segments_decodes_what_is_written_here(ottla_server_factory, kafka_tool):
    ottla = ottla_server_factory(OPTIONS)
    with Play(ottla.bootstrap) as play:
        fill(play)
    ottla.stop()
    logs = [path for path in ottla.data.glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    told = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--offsets-decoder", "--files", ",".join(map(str, logs))),
    )
    assert "isvalid: false" not in told
    found = {}
    for key, value in re.findall(r"key: (\{.*?\}\}) payload: (.*)", told):
        values = found.setdefault(json.dumps(json.loads(key)["data"], sort_keys=True), [])
        values.append(None if value == "<DELETE>" else json.loads(value))
    simple = found[json.dumps({"group": "simple", "topic": "t", "partition": 1}, sort_keys=True)]
    assert [one and one["data"]["offset"] for one in simple] == [2, 101, None]
    assert simple[0]["version"] == "4"
    assert simple[0]["data"]["topicId"] == simple[1]["data"]["topicId"]
    key = json.dumps({"group": "expiring", "topic": "t", "partition": 0}, sort_keys=True)
    (expiring,) = found[key]
    times = expiring["data"]["expireTimestamp"] - expiring["data"]["commitTimestamp"]
    assert (expiring["version"], times) == ("1", 100_000_000)
    new, first, second = found['{"group": "static"}']
    assert {one["version"] for one in (new, first, second)} == {"3"}
    assert (new["data"]["generation"], new["data"]["members"]) == (0, [])
    (old_member,), (member,) = first["data"]["members"], second["data"]["members"]
    assert old_member["memberId"] != member["memberId"]
    assert member["groupInstanceId"] == "i"
    assert found['{"group": "deleted"}'] == [None]
