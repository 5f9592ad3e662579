"""What CreateTopics, DeleteTopics and CreatePartitions say to bad requests.

Asked of Apache Kafka 4.3.0 (``--target kafka``).
"""

import uuid

import pytest

from tests.broken_names import BROKEN_NAMES
from tools.wire_client import WireClient, batch

BATCH = batch([b"x" * 1000] * 2)


@pytest.fixture(scope="module")
def topic(target):
    """A topic of two partitions with six records in the first one; its name and id."""
    name = f"req-{uuid.uuid4().hex[:8]}"
    with WireClient(target.bootstrap) as client:
        topic_id = client.create_topic(name, 2)
        for _ in range(3):
            assert client.produce(name, BATCH)["error_code"] == 0
    return name, topic_id


def metadata(wire, version, topics, **fields):
    return wire.call("metadata", version, topics=topics, **fields)


def create(wire, *topics, version=7, **fields):
    got = wire.call("create_topics", version, topics=list(topics), timeout=10_000, **fields)
    return {t["name"]: (t["error_code"], t.get("num_partitions")) for t in got["topics"]}


def spec(name, partitions=1, factor=1, **fields):
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, **fields}


def placed(*brokers):
    return [{"partition_index": number, "broker_ids": ids} for number, ids in enumerate(brokers)]


REFUSED_TOPICS = {
    "0 partitions": ({"partitions": 0}, 37),
    "-2 partitions": ({"partitions": -2}, 37),
    "10^7 partitions": ({"partitions": 10**7}, 44),
    "factor 2 on one node": ({"factor": 2}, 38),
    "factor 0": ({"factor": 0}, 38),
    "assignment and factor": ({"assignments": placed([1])}, 42),
    "assignment to nobody": ({"partitions": -1, "factor": -1, "assignments": placed([9])}, 39),
    "assignment twice": ({"partitions": -1, "factor": -1, "assignments": placed([1, 1])}, 39),
    "empty assignment": ({"partitions": -1, "factor": -1, "assignments": placed([])}, 39),
    "unknown config": ({"configs": [{"name": "nope.key", "value": "1"}]}, 40),
    "config not a number": ({"configs": [{"name": "retention.ms", "value": "abc"}]}, 40),
    "config out of range": ({"configs": [{"name": "retention.ms", "value": "-2"}]}, 40),
    "config null": ({"configs": [{"name": "retention.ms", "value": None}]}, 40),
    "config not a choice": ({"configs": [{"name": "cleanup.policy", "value": "nope"}]}, 40),
    "config too small": ({"configs": [{"name": "segment.bytes", "value": "10"}]}, 40),
}


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(("fields", "code"), REFUSED_TOPICS.values(), ids=REFUSED_TOPICS)
def test_create_topics_refusal(wire, topic_name, fields, code, validate_only):
    got = create(wire, spec(topic_name, **fields), validate_only=validate_only)
    assert got == {topic_name: (code, -1)}
    told = metadata(wire, 9, [{"name": topic_name}], allow_auto_topic_creation=False)
    assert told["topics"][0]["error_code"] == 3


@pytest.mark.parametrize("name", BROKEN_NAMES)
def test_row_20_create_topics_illegal_name(wire, name):
    assert create(wire, spec(name)) == {name: (17, -1)}


def test_create_topics_defaults_duplicates_and_existing(wire, topic, topic_name):
    assert create(wire, spec(topic_name, -1, -1)) == {topic_name: (0, 1)}
    twice = topic_name + "-twice"
    got = create(wire, spec(topic[0]), spec(twice), spec(twice, 2), spec(topic_name + "-other"))
    assert got == {topic[0]: (36, -1), twice: (42, -1), topic_name + "-other": (0, 1)}


def test_create_topics_collision_of_dot_and_underscore(wire, topic_name):
    assert create(wire, spec(topic_name + "_a"))[topic_name + "_a"][0] == 0
    assert create(wire, spec(topic_name + ".a")) == {topic_name + ".a": (17, -1)}


def test_create_topics_validate_only_creates_nothing(wire, topic_name):
    assert create(wire, spec(topic_name, 3), validate_only=True) == {topic_name: (0, 3)}
    told = metadata(wire, 9, [{"name": topic_name}], allow_auto_topic_creation=False)
    assert told["topics"][0]["error_code"] == 3


def test_create_topics_assignment(wire, topic_name):
    node = metadata(wire, 1, [])["controller_id"]
    got = create(wire, spec(topic_name, -1, -1, assignments=placed([node], [node])))
    assert got == {topic_name: (0, 2)}


def test_create_topics_v5_tells_the_configs(wire, topic_name):
    asked = spec(topic_name, configs=[{"name": "retention.ms", "value": "1000"}])
    got = wire.call("create_topics", 5, topics=[asked], timeout=5000)["topics"][0]
    told = {config["name"]: (config["value"], config["config_source"]) for config in got["configs"]}
    assert told["retention.ms"] == ("1000", 1)
    assert told["cleanup.policy"] == ("delete", 5)


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics_every_version(wire, topic_name, version):
    assert create(wire, spec(topic_name), version=version)[topic_name][0] == 0
    assert create(wire, spec(topic_name), version=version)[topic_name][0] == 36


@pytest.mark.parametrize("version", range(1, 6))
def test_delete_topics_every_version_by_name(wire, topic_name, version):
    wire.create_topic(topic_name)
    names = [topic_name, "nobody-made-this", "../x", ""]
    got = wire.call("delete_topics", version, topic_names=names, timeout=5000)["responses"]
    assert {t["name"]: t["error_code"] for t in got} == {
        topic_name: 0,
        names[1]: 3,
        "../x": 3,
        "": 3,
    }
    assert wire.produce(topic_name, BATCH)["error_code"] == 3
    assert wire.fetch(topic_name)["error_code"] == 3


def test_delete_topics_by_id(wire, topic_name):
    topic_id = wire.create_topic(topic_name)
    asked = [{"name": None, "topic_id": topic_id}, {"name": None, "topic_id": uuid.UUID(int=7)}]
    got = wire.call("delete_topics", 6, topics=asked, timeout=5000)["responses"]
    assert {(t["name"], t["error_code"]) for t in got} == {(topic_name, 0), (None, 100)}


def test_a_topic_named_by_name_and_by_id_is_not_deleted(wire, topic_name):
    topic_id = wire.create_topic(topic_name)
    by_name = {"name": topic_name, "topic_id": None}
    by_id = {"name": None, "topic_id": topic_id}
    for asked in ([by_name, by_id], [by_id, by_name]):
        (got,) = wire.call("delete_topics", 6, topics=asked, timeout=5000)["responses"]
        assert (got["name"], got["topic_id"], got["error_code"]) == (topic_name, topic_id, 42)
        assert got["error_message"] == (
            "The provided topic name maps to an ID that was already supplied."
        )
    (got,) = wire.call("delete_topics", 6, topics=[by_id], timeout=5000)["responses"]
    assert got["error_code"] == 0, "it is still there"


def test_delete_topics_contradictions_are_42(wire, topic):
    name, topic_id = topic
    for asked in (
        [{"name": name, "topic_id": topic_id}],
        [{"name": None, "topic_id": None}],
        [{"name": None, "topic_id": topic_id}] * 2,
        [{"name": name, "topic_id": None}] * 2,
    ):
        got = wire.call("delete_topics", 6, topics=asked, timeout=5000)["responses"]
        assert [t["error_code"] for t in got] == [42], asked
    assert wire.list_offsets(name, [0]) == [(0, 6)]


def test_deleted_topic_can_be_created_again_and_is_empty(wire, topic_name):
    first = wire.create_topic(topic_name)
    wire.produce(topic_name, BATCH)
    wire.call("delete_topics", 5, topic_names=[topic_name], timeout=5000)
    second = wire.create_topic(topic_name)
    assert first != second
    assert wire.list_offsets(topic_name, [0]) == [(0, 0)]


def grow(wire, name, count, assignments=None, version=3, **fields):
    asked = [{"name": name, "count": count, "assignments": assignments}]
    got = wire.call("create_partitions", version, topics=asked, timeout=10_000, **fields)
    return got["results"][0]["error_code"]


def test_create_partitions(wire, topic_name):
    wire.create_topic(topic_name, 2)
    node = metadata(wire, 1, [])["controller_id"]
    ours = {"broker_ids": [node]}
    assert [grow(wire, topic_name, count) for count in (1, 2, 0, -1)] == [37] * 4
    assert grow(wire, topic_name, 9, validate_only=True) == 0
    assert grow(wire, topic_name, 3) == 0
    assert grow(wire, topic_name, 5, [ours, ours]) == 0
    assert grow(wire, topic_name, 7, [ours]) == 39
    assert grow(wire, topic_name, 6, [{"broker_ids": [9]}]) == 39
    assert grow(wire, topic_name, 6, [{"broker_ids": []}]) == 39
    assert grow(wire, topic_name, 6, [{"broker_ids": [node, node]}]) == 39
    assert grow(wire, "nobody-made-this", 3) == 3
    assert [grow(wire, topic_name, 6 + version, version=version) for version in range(4)] == [0] * 4
    assert len(metadata(wire, 9, [{"name": topic_name}])["topics"][0]["partitions"]) == 9
    assert wire.produce(topic_name, BATCH, 8)["error_code"] == 0


def test_row_22_create_partitions_explosion_is_refused(wire, topic_name, target_kind):
    if target_kind == "kafka":
        pytest.skip("it ends in OutOfMemoryError")
    wire.create_topic(topic_name, 2)
    assert grow(wire, topic_name, 10**7) in (37, 44)
    assert wire.produce(topic_name, BATCH)["error_code"] == 0
