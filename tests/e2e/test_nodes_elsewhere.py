"""What a node answers for partitions that other nodes lead, or nobody: as Kafka 4.3 does."""

import time

import pytest

from ottla.errors import ErrorCode
from tests.nodes import Nodes
from tools.wire_client import WireClient, batch

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
HERE, ELSEWHERE, NOWHERE = 0, 1, 7


def create(wire, name, partitions):
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    answer = wire.call("create_topics", 5, topics=[topic], timeout_ms=30_000)
    assert answer["topics"][0]["error_code"] == 0


@pytest.fixture(scope="module")
def cluster():
    with Nodes() as nodes:
        nodes.start(1, 2, 3)
        with WireClient(nodes.address(1)) as wire:
            create(wire, "t", 3)
        assert nodes.leaders("t") == [1, 2, 3]
        yield nodes


@pytest.fixture
def wire(cluster):
    with WireClient(cluster.address(1)) as wire:
        yield wire


def endpoint(nodes, node_id):
    host, port = nodes.address(node_id).split(":")
    return {"node_id": node_id, "host": host, "port": int(port), "rack": None}


def produced(wire, *partitions, version=12, acks=-1, topic="t", transactional_id=None):
    parts = [{"index": index, "records": batch([b"v"])} for index in partitions]
    answer = wire.call(
        "produce",
        version,
        transactional_id=transactional_id,
        acks=acks,
        timeout=5000,
        topic_data=[{"name": topic, "partition_data": parts}],
    )
    found = {
        part["index"]: (part["error_code"], part.get("current_leader"))
        for part in answer["responses"][0]["partition_responses"]
    }
    return found, answer.get("node_endpoints")


@pytest.mark.parametrize("also", [(), (HERE,), (NOWHERE,)], ids=["one", "two", "unknown"])
@pytest.mark.parametrize("transactional_id", [None, "x"], ids=["direct", "ordinary"])
def test_a_produce_is_told_who_leads(cluster, wire, also, transactional_id):
    found, endpoints = produced(wire, ELSEWHERE, *also, transactional_id=transactional_id)
    assert found[ELSEWHERE] == (NOT_LEADER, {"leader_id": 2, "leader_epoch": 0})
    assert found.get(HERE, (0,))[0] == ErrorCode.NONE
    assert found.get(NOWHERE, (UNKNOWN,))[0] == UNKNOWN
    assert endpoints == [endpoint(cluster, 2)]


def test_a_produce_of_an_old_version_is_told_that_it_came_to_the_wrong_node(wire):
    found, _ = produced(wire, ELSEWHERE, version=9)
    assert found[ELSEWHERE][0] == NOT_LEADER


def test_impossible_acks_come_first_and_unknown_partitions_before_them(wire):
    assert produced(wire, ELSEWHERE, acks=2)[0][ELSEWHERE][0] == ErrorCode.INVALID_REQUIRED_ACKS
    assert produced(wire, NOWHERE, acks=2)[0][NOWHERE][0] == UNKNOWN


def test_an_internal_topic_of_another_node_is_not_written_to_either(cluster, wire):
    deadline = time.monotonic() + 30
    key = {"key_type": 0, "coordinator_keys": ["g"]}
    while wire.call("find_coordinator", 4, **key)["coordinators"][0]["error_code"]:
        assert time.monotonic() < deadline
    elsewhere = cluster.leaders("__consumer_offsets").index(2)
    found, _ = produced(wire, elsewhere, topic="__consumer_offsets")
    assert found[elsewhere][0] == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_fetch_is_told_who_leads(cluster, wire):
    topic_id = wire.call("metadata", 12, topics=[{"name": "t"}])["topics"][0]["topic_id"]
    parts = [
        {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1000}
        for index in (ELSEWHERE, HERE)
    ]
    answer = wire.call(
        "fetch",
        16,
        replica_state={"replica_id": -1, "replica_epoch": -1},
        max_wait_ms=60_000,
        min_bytes=1000,
        max_bytes=1000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic_id": topic_id, "partitions": parts}],
        rack_id="",
    )
    elsewhere, here = answer["responses"][0]["partitions"]
    assert (elsewhere["error_code"], here["error_code"]) == (NOT_LEADER, 0)
    assert elsewhere["current_leader"] == {"leader_id": 2, "leader_epoch": 0}
    assert answer["node_endpoints"] == [endpoint(cluster, 2)]


def test_other_questions_to_leaders_are_refused_alike(wire):
    offsets = wire.call(
        "list_offsets",
        7,
        replica_id=-1,
        isolation_level=0,
        topics=[
            {
                "name": "t",
                "partitions": [
                    {"partition_index": index, "current_leader_epoch": -1, "timestamp": -1}
                    for index in (ELSEWHERE, NOWHERE)
                ],
            }
        ],
    )["topics"][0]["partitions"]
    deleted = wire.call(
        "delete_records",
        2,
        timeout_ms=5000,
        topics=[
            {
                "name": "t",
                "partitions": [
                    {"partition_index": index, "offset": 0} for index in (ELSEWHERE, NOWHERE)
                ],
            }
        ],
    )["topics"][0]["partitions"]
    epochs = wire.call(
        "offset_for_leader_epoch",
        4,
        replica_id=-1,
        topics=[
            {
                "topic": "t",
                "partitions": [
                    {"partition": index, "current_leader_epoch": -1, "leader_epoch": 0}
                    for index in (ELSEWHERE, NOWHERE)
                ],
            }
        ],
    )["topics"][0]["partitions"]
    producers = wire.call(
        "describe_producers",
        0,
        topics=[{"name": "t", "partition_indexes": [ELSEWHERE, NOWHERE]}],
    )["topics"][0]["partitions"]
    for answers in (offsets, deleted, epochs, producers):
        assert [part["error_code"] for part in answers] == [NOT_LEADER, UNKNOWN]


def leadership(wire):
    topic = wire.call("metadata", 12, topics=[{"name": "t"}])["topics"][0]
    return [
        (part["error_code"], part["leader_id"], part["offline_replicas"])
        for part in sorted(topic["partitions"], key=lambda part: part["partition_index"])
    ]


def test_a_node_that_is_down_leads_nothing_until_it_is_back():
    available = [(0, 1, []), (0, 2, []), (0, 3, [])]
    with Nodes() as nodes:
        nodes.start(1, 2, 3)
        with WireClient(nodes.address(1)) as wire:
            create(wire, "t", 3)
            assert leadership(wire) == available
            nodes.kill(2)
            wait_until(lambda: len(wire.call("metadata", 12, topics=[])["brokers"]) == 2)
            assert leadership(wire) == [
                (0, 1, []),
                (ErrorCode.LEADER_NOT_AVAILABLE, -1, [2]),
                (0, 3, []),
            ]
            found, endpoints = produced(wire, ELSEWHERE)
            assert found[ELSEWHERE] == (NOT_LEADER, {"leader_id": -1, "leader_epoch": -1})
            assert not endpoints
            nodes.start(2)
            wait_until(lambda: leadership(wire) == available)


def wait_until(is_so):
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)
