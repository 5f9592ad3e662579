"""Apache Kafka's own command-line tools for replicas, on three nodes."""

import json
import re

import pytest

from tests.e2e.test_nodes_operations import states, stuck, until, wire_to  # noqa: F401 - a fixture
from tests.e2e.test_nodes_replicas import REPLICAS, create, wait_for_isr
from tests.nodes import Nodes

# A JVM takes a second or two to start.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.kafka,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture
def nodes():
    with Nodes(REPLICAS) as nodes:
        nodes.start(1, 2, 3)
        yield nodes


@pytest.fixture
def tool(nodes, kafka_tool):
    def run(class_name, *arguments, **options):
        return kafka_tool(class_name, "--bootstrap-server", nodes.bootstrap, *arguments, **options)

    return run


def written(path, value):
    path.write_text(json.dumps(value))
    return path


def plan(replicas, topic="t"):
    partitions = [
        {"topic": topic, "partition": number, "replicas": each, "log_dirs": ["any"] * len(each)}
        for number, each in enumerate(replicas)
    ]
    return {"version": 1, "partitions": partitions}


def test_replicas_are_moved_by_a_generated_plan(nodes, tool, tmp_path):
    create(nodes, factor=1)
    wanted = written(tmp_path / "topics", {"version": 1, "topics": [{"topic": "t"}]})
    told = tool(
        REASSIGN, "--generate", "--topics-to-move-json-file", wanted, "--broker-list", "2,3"
    )
    proposed = tmp_path / "proposed"
    proposed.write_text(told.partition("Proposed partition reassignment configuration")[2])
    told = tool(
        REASSIGN, "--execute", "--reassignment-json-file", proposed, "--throttle", 10_000_000
    )
    assert "Successfully started partition reassignment" in told
    until(lambda: all(1 not in each.replicas for each in states(nodes)), lambda: states(nodes))
    told = tool(REASSIGN, "--verify", "--reassignment-json-file", proposed)
    assert told.count("is completed") == 3
    assert "Clearing topic-level throttles" in told
    described = tool(TOPICS, "--describe", "--topic", "t")
    assert re.findall(r"Replicas: (\S+)", described) == [
        str(each.replicas[0]) for each in states(nodes)
    ]


def test_a_move_is_told_and_cancelled(nodes, tool, tmp_path, stuck):  # noqa: F811 - the fixture
    before, third = stuck
    path = written(tmp_path / "plan", plan([[third, before.replicas[0]]]))
    tool(REASSIGN, "--execute", "--reassignment-json-file", path)
    assert "is still in progress" in tool(REASSIGN, "--verify", "--reassignment-json-file", path)
    assert f"t-0: replicas: {third}," in tool(REASSIGN, "--list")
    described = tool(TOPICS, "--describe", "--topic", "t")
    assert f"Adding Replicas: {third}" in described
    assert f"Removing Replicas: {before.replicas[1]}" in described
    told = tool(REASSIGN, "--cancel", "--reassignment-json-file", path)
    assert "Successfully cancelled partition reassignment for: t-0" in told
    assert set(states(nodes)[0].replicas) == set(before.replicas)


def test_leaders_are_elected(nodes, tool):
    create(nodes)
    preferred = [state.replicas[0] for state in states(nodes)]
    nodes.stop(1)
    nodes.start(1)
    wait_for_isr(nodes)
    told = tool(ELECT, "--election-type", "preferred", "--all-topic-partitions")
    assert (
        f"Successfully completed leader election (PREFERRED) for partitions t-{preferred.index(1)}"
        in told
    )
    assert nodes.leaders("t") == preferred
    told = tool(ELECT, "--election-type", "preferred", "--topic", "t", "--partition", "0")
    assert "Valid replica already elected for partitions t-0" in told


def test_the_quorum_is_described_and_a_node_is_forgotten(nodes, tool, kafka_tool):
    told = tool("org.apache.kafka.tools.MetadataQuorumCommand", "describe", "--status")
    controller = nodes.call(lambda: nodes.image(1).controller)
    assert re.search(rf"LeaderId:\s+{controller}\n", told)
    assert re.search(r"HighWatermark:\s+[1-9]", told)
    with wire_to(nodes) as wire:
        running = wire.call("unregister_broker", 0, broker_id=3)
        assert (running["error_code"], running["error_message"]) == (
            42,
            "Broker 3 is running: stop it",
        )
        nodes.stop(3)
        told = kafka_tool(
            "org.apache.kafka.tools.ClusterTool",
            *("unregister", "--bootstrap-server", nodes.bootstrap, "--id", 3),
        )
        assert "Broker 3 is no longer registered" in told
        again = wire.call("unregister_broker", 0, broker_id=3)
    assert (again["error_code"], again["error_message"]) == (
        102,
        "Broker ID 3 is not currently registered",
    )
