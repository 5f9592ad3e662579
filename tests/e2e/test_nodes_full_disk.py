"""Disks of nodes fill up: what has space leads, and nothing is fetched for which there is none."""

import time
from collections import Counter

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.node.peers import NodePeers
from tests.nodes import Nodes

PATIENCE_SECONDS = 60
PARTITIONS = 3
OPTIONS = {
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "100",
    "leader.imbalance.check.interval.seconds": "1",
}
# Other people's code, other people's warnings.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.timeout(240),
]


@pytest.fixture
def nodes():
    with Nodes(OPTIONS) as nodes:
        nodes.start(1, 2, 3)
        make_topic(nodes)
        yield nodes


def make_topic(nodes):
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    topic = NewTopic("t", PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])["t"].result(30)
    until(lambda: all(len(state.isr) == 3 for state in states(nodes)), states, nodes)


def states(nodes):
    return nodes.call(lambda: nodes.image(nodes.running[0]).topic("t").partitions)


def until(is_so, what, *arguments):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, what(*arguments)
        time.sleep(0.02)


def fill(nodes, *full):
    """Let less be free than what is to be kept free, which is nothing for data in memory."""
    for node in full:
        nodes.disk(node).free_bytes = lambda path: -1


def make_space(nodes, *full):
    for node in full:
        del nodes.disk(node).free_bytes


def are_full(nodes, *full):
    """Tell whether these nodes have told that they are full, and the others that they are not."""

    def look():
        found = nodes.image(nodes.running[0]).brokers
        return {node for node, broker in found.items() if broker.registration.is_full}

    return nodes.call(look) == set(full)


def produce(nodes, count=90, **options):
    """Send values round robin; return how many were refused."""
    refused = []
    settings = {"bootstrap.servers": nodes.bootstrap, "linger.ms": 0, "log_level": 0}
    settings |= {name.replace("_", "."): value for name, value in options.items()}
    producer = Producer(settings)
    for number in range(count):
        producer.produce(
            "t",
            b"x" * 100,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_SECONDS) == 0
    return len(refused)


def ends_of(nodes, node):
    """The ends of the logs of a node, in the order of the partitions."""

    def look():
        found = nodes.broker(node).node.work.replica_manager.partitions
        return {each.topic_partition.partition: each.log.log_end_offset for each in found}

    ends = nodes.call(look)
    return [ends[number] for number in range(PARTITIONS)]


def elect_preferred(nodes):
    """Ask for the preferred leaders; return the errors."""
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    wanted = [TopicPartition("t", number) for number in range(PARTITIONS)]
    found = admin.elect_leaders(ElectionType.PREFERRED, wanted).result(30)
    return [error.name() for error in found.values() if error is not None]


def test_a_full_node_lets_nodes_with_space_lead_until_it_has_some(nodes):
    before = [state.leader for state in states(nodes)]
    fill(nodes, 1)
    until(lambda: all(state.leader in (2, 3) for state in states(nodes)), states, nodes)
    assert not produce(nodes, message_timeout_ms=20_000)
    assert all(1 not in state.isr for state in states(nodes) if state.replicas[0] == 1)
    assert are_full(nodes, 1)
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in elect_preferred(nodes)
    make_space(nodes, 1)
    until(lambda: ends_of(nodes, 1) == ends_of(nodes, 2), ends_of, nodes, 1)
    until(lambda: [state.leader for state in states(nodes)] == before, states, nodes)
    assert are_full(nodes)
    assert all(len(state.isr) == 3 for state in states(nodes))


def test_nothing_moves_while_all_nodes_are_full(nodes):
    before = states(nodes)
    fill(nodes, 1, 2, 3)
    until(lambda: are_full(nodes, 1, 2, 3), states, nodes)
    time.sleep(3)
    assert states(nodes) == before
    make_space(nodes, 1, 2, 3)
    assert not produce(nodes, message_timeout_ms=20_000)


def test_a_full_follower_asks_for_no_records_and_goes_on_soon_after_there_is_space(
    nodes, monkeypatch, caplog
):
    asked, fetch = Counter(), NodePeers.fetch

    async def counted(self, node, request):
        asked[request.replica_state.replica_id] += 1
        return await fetch(self, node, request)

    monkeypatch.setattr(NodePeers, "fetch", counted)
    fill(nodes, 3)
    until(lambda: all(state.leader in (1, 2) for state in states(nodes)), states, nodes)
    before = ends_of(nodes, 3)
    assert not produce(nodes, message_timeout_ms=20_000)
    until(lambda: all(3 not in state.isr for state in states(nodes)), states, nodes)
    asked.clear()
    caplog.clear()
    began_at = time.monotonic()
    for _ in range(10):
        assert not produce(nodes, 3 * PARTITIONS, message_timeout_ms=20_000)
    time.sleep(1)
    seconds = time.monotonic() - began_at
    assert asked[3] <= 2 * 11 * seconds, "of two leaders, ten times per second"
    assert ends_of(nodes, 3) == before
    assert not [each for each in caplog.records if "follow" in each.getMessage()]
    make_space(nodes, 3)
    began_at = time.monotonic()
    until(lambda: ends_of(nodes, 3) == ends_of(nodes, 1), ends_of, nodes, 3)
    print("seconds until it had all:", time.monotonic() - began_at)
    until(lambda: all(len(state.isr) == 3 for state in states(nodes)), states, nodes)


def test_nobody_waits_for_a_full_follower_while_enough_others_are_in_sync():
    """Else each record takes as long as a follower may lag: 30 seconds."""
    with Nodes(OPTIONS | {"replica.lag.time.max.ms": "30000"}) as nodes:
        nodes.start(1, 2, 3)
        make_topic(nodes)
        fill(nodes, 3)
        until(lambda: are_full(nodes, 3), states, nodes)
        began_at = time.monotonic()
        assert not produce(nodes, message_timeout_ms=20_000)
        assert time.monotonic() - began_at < 10
        assert all(3 not in state.isr for state in states(nodes))
        make_space(nodes, 3)
        until(lambda: all(len(state.isr) == 3 for state in states(nodes)), states, nodes)
