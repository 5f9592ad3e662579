"""An old copy of one node's directory is put back: nothing that was acknowledged is lost by that.

A copy is what a power cut would leave at that moment, as a snapshot of the disk has it.
"""

import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.env.rng import SeededRng
from ottla.ids import TopicPartition
from ottla.log.files.layout import parse_partition_directory
from ottla.metadata.keys import Keys
from ottla.metadata.values import decode_known_broker
from ottla.node.identity import STORE_CLUSTER
from tests.nodes import Nodes
from tests.simulation.cluster.copies import put_directory_back
from tools.wire_client import WireClient, values_of

PATIENCE_SECONDS = 30
PARTITIONS = 3
ALL = (1, 2, 3)
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.timeout(240),
]


OPTIONS = {"replica.lag.time.max.ms": "2000", "auto.leader.rebalance.enable": "false"}
HOME = "/data"


@pytest.fixture
def nodes():
    with Nodes(OPTIONS) as nodes:
        nodes.start(*ALL)
        yield nodes


@pytest.fixture
def nodes_of_two_directories():
    with Nodes(OPTIONS | {"log.dirs": "/a,/b"}) as nodes:
        nodes.start(*ALL)
        yield nodes


def create(nodes, topic="t", factor=3, policy="delete"):
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    config = {"min.insync.replicas": str(min(factor, 2)), "cleanup.policy": policy}
    made = NewTopic(topic, PARTITIONS, factor, config=config)
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
        producer.produce(topic, value, key=value, partition=number % PARTITIONS, on_delivery=told)
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


def delete(nodes, *topics):
    """Delete topics, and wait until every node has."""
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    for deleted in admin.delete_topics(list(topics)).values():
        deleted.result(30)
    marks = Keys(STORE_CLUSTER).deleted_topics
    until(lambda: not nodes.run(nodes.store.scan, marks)[0], lambda: topics)


def held(nodes, node, log_dir=HOME):
    """Return the partitions of ``t`` in a log directory."""
    found = map(parse_partition_directory, nodes.disk(node).list_directory(log_dir))
    return sorted(where.partition for where in found if where and where.topic == "t")


def strays(nodes, node, topic, log_dir=HOME):
    names = nodes.disk(node).list_directory(log_dir)
    return [name for name in names if name.startswith(f"{topic}-") and name.endswith("-stray")]


@pytest.mark.parametrize("end", [stop, kill])
def test_a_copy_does_not_bring_a_deleted_topic_back(nodes, end, caplog):
    create(nodes, "gone")
    gone = produce(nodes, "gone", topic="gone")
    create(nodes)
    kept = produce(nodes, "before")
    copy = copy_of(nodes, 2)
    delete(nodes, "gone")
    kept += produce(nodes, "after")
    end(nodes)
    nodes.take_disk(2, copy)
    nodes.start_together(*ALL)
    wait_until_whole(nodes)
    assert all_are_read(nodes, kept)
    set_aside = strays(nodes, 2, "gone")
    assert len(set_aside) == PARTITIONS
    for name in set_aside:
        assert f"{HOME}/{name}" in caplog.text
    end(nodes)
    nodes.start_together(*ALL)
    assert nodes.call(lambda: nodes.image(1).topic("gone")) is None
    assert strays(nodes, 2, "gone") == set_aside, "nobody removes them but people"
    end(nodes)
    for name in set_aside:  # Somebody wants it back.
        nodes.disk(2).rename(f"{HOME}/{name}", f"{HOME}/{name.partition('.')[0]}")
    nodes.start_together(*ALL)
    assert all_are_read(nodes, gone, "gone")


@pytest.mark.parametrize("end", [stop, kill])
def test_a_copy_has_another_topic_of_the_name(nodes, end):
    create(nodes)
    produce(nodes, "former")
    copy = copy_of(nodes, 2)
    delete(nodes, "t")
    create(nodes)
    kept = produce(nodes, "after")
    end(nodes)
    nodes.take_disk(2, copy)
    nodes.start_together(*ALL)
    wait_until_whole(nodes)
    assert all_are_read(nodes, kept)
    assert len(strays(nodes, 2, "t")) == PARTITIONS
    nodes.kill(1)
    nodes.kill(3)
    until(lambda: nodes.leaders("t") == [2, 2, 2], lambda: states(nodes))
    assert sorted(read(nodes)) == sorted(kept)


@pytest.mark.parametrize(("old", "other"), [("/a", "/b"), ("/b", "/a")])
@pytest.mark.parametrize("end", [stop, kill])
def test_a_partition_has_moved_out_of_what_was_copied(nodes_of_two_directories, end, old, other):
    nodes = nodes_of_two_directories
    create(nodes)
    kept = produce(nodes, "before")
    copy, moved = copy_of(nodes, 2), held(nodes, 2, old)
    assert moved
    move = nodes.broker(2).node.work.housekeeper.relocation.move
    for number in moved:
        nodes.call(move, TopicPartition("t", number), other)
    until(lambda: not held(nodes, 2, old), lambda: held(nodes, 2, old))
    kept += produce(nodes, "after")
    end(nodes)
    put_directory_back(nodes.disk(2), copy, old)
    nodes.start(2)
    assert all(2 in (*state.isr, *state.elr) for state in states(nodes)), "it lacks nothing"
    nodes.start(1, 3)
    wait_until_whole(nodes)
    assert all_are_read(nodes, kept)
    assert held(nodes, 2, other) == [0, 1, 2]
    assert len(strays(nodes, 2, "t", old)) == len(moved)
    end(nodes)
    nodes.start_together(*ALL)
    wait_until_whole(nodes)
    assert all_are_read(nodes, kept)


def test_a_partition_has_moved_into_what_was_copied(nodes_of_two_directories):
    nodes = nodes_of_two_directories
    create(nodes)
    kept = produce(nodes, "before")
    copy, moved = copy_of(nodes, 2), held(nodes, 2, "/a")
    move = nodes.broker(2).node.work.housekeeper.relocation.move
    for number in moved:
        nodes.call(move, TopicPartition("t", number), "/b")
    until(lambda: not held(nodes, 2, "/a"), lambda: held(nodes, 2, "/a"))
    kept += produce(nodes, "after")
    stop(nodes)
    put_directory_back(nodes.disk(2), copy, "/b")
    nodes.start_together(*ALL)
    wait_until_whole(nodes)
    assert all_are_read(nodes, kept)


def spoil(nodes, node, log_dir):
    """Cut off what is below the recovery points."""
    disk = nodes.disk(node)
    for number in held(nodes, node, log_dir):
        file = disk.open(f"{log_dir}/t-{number}/{0:020d}.log")
        file.truncate(10)
        file.sync()
        file.close()
        mark = f"{log_dir}/.kafka_cleanshutdown"
        if disk.exists(mark):
            disk.remove(mark)


def test_beside_an_old_copy_others_lead_what_cannot_be_opened(nodes_of_two_directories):
    nodes = nodes_of_two_directories
    create(nodes)
    kept = produce(nodes, "before")
    copy = copy_of(nodes, 2)
    kept += produce(nodes, "after")
    stop(nodes)
    put_directory_back(nodes.disk(2), copy, "/b")
    spoil(nodes, 2, "/a")
    nodes.start(2)
    assert all(2 not in (*state.isr, *state.elr) for state in states(nodes))
    nodes.start(1, 3)
    until(lambda: set(nodes.leaders("t")) <= {1, 3}, lambda: states(nodes))
    assert all_are_read(nodes, kept)


def test_an_old_copy_that_cannot_be_opened_makes_way(nodes):
    create(nodes)
    kept = produce(nodes, "before")
    nodes.stop_together(*ALL)
    copy = copy_of(nodes, 2)
    nodes.start_together(*ALL)
    kept += produce(nodes, "after")
    stop(nodes)
    nodes.take_disk(2, copy)
    spoil(nodes, 2, HOME)
    nodes.start_together(*ALL)
    wait_until_whole(nodes)
    assert all_are_read(nodes, kept)
    assert len(strays(nodes, 2, "t")) == PARTITIONS


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_copy_of_a_compacted_topic_is_made_anew(nodes, policy):
    """Tombstones and markers that it lacks may be gone everywhere else."""
    create(nodes, policy=policy)
    kept = produce(nodes, "before")
    copy = copy_of(nodes, 2)
    kept += produce(nodes, "after")
    stop(nodes)
    nodes.take_disk(2, copy)
    nodes.start(2)
    hosted = nodes.broker(2).node.work.replica_manager.hosting

    def ends():
        return nodes.call(lambda: [each.log.log_end_offset for each in hosted.partitions.values()])

    if policy == "compact":
        assert ends() == [0] * PARTITIONS, "before the copy counts as the newest: it may be killed"
    else:
        assert sum(ends()) == 30
    nodes.start(1, 3)
    wait_until_whole(nodes)
    until(lambda: sum(ends()) == len(kept), ends)
    nodes.kill(1)
    nodes.kill(3)
    until(lambda: nodes.leaders("t") == [2, 2, 2], lambda: states(nodes))
    assert all_are_read(nodes, kept)


def test_a_disk_that_was_given_up_comes_back(nodes):
    """It was taken for the newest: 60 of 90 acknowledged records were cut."""
    create(nodes)
    kept = produce(nodes, "before")
    stop(nodes)
    former = nodes.disk(2)
    given_up = next(iter(known_directories(nodes, 2)))
    nodes.forget_disk(2)
    nodes.start(2, ottla_log_dirs_given_up=given_up)
    nodes.start(1, 3)
    wait_until_whole(nodes)
    kept += produce(nodes, "after", 60)
    stop(nodes)
    replacement = nodes.disk(2)
    nodes.take_disk(2, former)
    nodes.start(2)
    assert all(2 not in (*state.isr, *state.elr) for state in states(nodes))
    nodes.start(1, 3)
    wait_until_whole(nodes)
    assert all_are_read(nodes, kept)
    kept += produce(nodes, "later")
    stop(nodes)
    nodes.take_disk(2, replacement)  # It was away while the other one served.
    nodes.start(2)
    nodes.start(1, 3)
    wait_until_whole(nodes)
    assert all_are_read(nodes, kept)


def known_directories(nodes, node):
    async def read():
        entry = await nodes.store.get(Keys(STORE_CLUSTER).known_broker(node))
        return decode_known_broker(entry.value).directories

    return nodes.run(read)
