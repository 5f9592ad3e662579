"""An old copy of one node's directory is put back: nothing that was acknowledged is lost by that.

A copy is what a power cut would leave at that moment, as a snapshot of the disk has it.
"""

import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.env.rng import SeededRng
from tests.nodes import Nodes
from tools.wire_client import WireClient, values_of

PATIENCE_SECONDS = 30
PARTITIONS = 3
ALL = (1, 2, 3)
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.timeout(240),
]


@pytest.fixture
def nodes():
    options = {"replica.lag.time.max.ms": "2000", "auto.leader.rebalance.enable": "false"}
    with Nodes(options) as nodes:
        nodes.start(*ALL)
        yield nodes


def create(nodes, topic="t", factor=3):
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    made = NewTopic(topic, PARTITIONS, factor, config={"min.insync.replicas": str(min(factor, 2))})
    admin.create_topics([made])[topic].result(30)


def states(nodes, topic="t"):
    return nodes.call(lambda: nodes.image(nodes.running[0]).topic(topic).partitions)


def until(is_so, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


def wait_until_whole(nodes, count=3, topic="t"):
    def is_so():
        return all(len(one.isr) == count and one.leader >= 0 for one in states(nodes, topic))

    until(is_so, lambda: states(nodes, topic))


def produce(nodes, tag, count=30, topic="t"):
    """Have ``count`` values acknowledged by all in-sync replicas; return them."""
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "acks": "all", "log_level": 0})
    refused = []

    def told(error, _):
        if error is not None:
            refused.append(error)

    values = [f"{tag} {number}".encode() for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=told)
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert not refused
    return values


def all_are_read(nodes, kept, topic="t"):
    """Wait until what is committed is known; nothing else may be there then."""

    def is_so():
        return len(read(nodes, topic)) >= len(kept)

    until(is_so, lambda: f"{len(read(nodes, topic))} of {len(kept)}")
    return sorted(read(nodes, topic)) == sorted(kept)


def read(nodes, topic="t"):
    found = []
    for partition, leader in enumerate(nodes.leaders(topic)):
        with WireClient(nodes.address(leader)) as wire:
            records = wire.fetch(topic, 0, partition)["records"]
        found += [value for _, value in values_of(records)] if records else []
    return found


def copy_of(nodes, node):
    return nodes.disk(node).crash(SeededRng(node))


def leads_some(nodes, node):
    return node in nodes.leaders("t")


def stop(nodes):
    nodes.stop_together(*ALL)


def kill(nodes):
    """End all at once, a minute after the copy was made."""
    for node in ALL:
        nodes.run(nodes.broker(node)._opened.generations.go_on)
    nodes.kill_together(*ALL)


@pytest.mark.parametrize("node", ALL)
@pytest.mark.parametrize("end", [stop, kill])
def test_a_copy_of_a_node_that_had_stopped(nodes, node, end):
    create(nodes)
    kept = produce(nodes, "before")
    nodes.stop_together(*ALL)
    copy = copy_of(nodes, node)
    nodes.start_together(*ALL)
    wait_until_whole(nodes)
    kept += produce(nodes, "after")
    assert leads_some(nodes, node)
    end(nodes)
    nodes.take_disk(node, copy)
    nodes.start_together(*ALL)
    wait_until_whole(nodes)
    assert all_are_read(nodes, kept)
    kept += produce(nodes, "at last")
    assert all_are_read(nodes, kept)


@pytest.mark.parametrize("end", [stop, kill])
def test_a_copy_of_a_node_that_was_running(nodes, end):
    create(nodes)
    kept = produce(nodes, "before")
    copy = copy_of(nodes, 2)
    kept += produce(nodes, "after")
    end(nodes)
    nodes.take_disk(2, copy)
    nodes.start_together(*ALL)
    wait_until_whole(nodes)
    assert all_are_read(nodes, kept)


def test_a_copy_that_lacks_a_whole_partition(nodes):
    copy = copy_of(nodes, 2)
    create(nodes)
    kept = produce(nodes, "after")
    stop(nodes)
    nodes.take_disk(2, copy)
    nodes.start(2)
    assert all(2 not in state.unmade for state in states(nodes)), "it had the logs"
    nodes.start(1, 3)
    wait_until_whole(nodes)
    assert all_are_read(nodes, kept)


def test_a_copy_is_made_good_before_the_node_counts_as_in_sync(nodes):
    create(nodes)
    produce(nodes, "before")
    copy = copy_of(nodes, 2)
    kept = produce(nodes, "after")
    stop(nodes)
    nodes.take_disk(2, copy)
    nodes.start(2)
    assert all(2 not in (*state.isr, *state.elr) for state in states(nodes))
    nodes.start(1, 3)
    wait_until_whole(nodes)
    nodes.kill(1)
    nodes.kill(3)
    until(lambda: nodes.leaders("t") == [2, 2, 2], lambda: states(nodes))
    assert {*kept} < {*read(nodes)}


def test_all_nodes_are_old_copies_of_the_same_moment(nodes):
    create(nodes)
    kept = produce(nodes, "before")
    copies = {node: copy_of(nodes, node) for node in ALL}
    produce(nodes, "after")
    stop(nodes)
    for node, copy in copies.items():
        nodes.take_disk(node, copy)
    nodes.start_together(*ALL)
    wait_until_whole(nodes)
    assert all_are_read(nodes, kept)


def test_the_only_replica_serves_what_the_copy_has(nodes, caplog):
    create(nodes, "alone", factor=1)
    kept = produce(nodes, "before", topic="alone")
    copies = {node: copy_of(nodes, node) for node in ALL}
    produce(nodes, "after", topic="alone")
    stop(nodes)
    for node, copy in copies.items():
        nodes.take_disk(node, copy)
    nodes.start_together(*ALL)
    assert all_are_read(nodes, kept, "alone")
    assert "is an old copy of what this node has used last" in caplog.text


def test_nodes_that_are_stopped_and_started_stay_in_sync(nodes):
    create(nodes)
    for turn in range(3):
        produce(nodes, f"turn {turn}")
        kill(nodes) if turn == 1 else stop(nodes)
        nodes.start_together(*ALL)
        assert all(len(state.isr) == 3 for state in states(nodes))
