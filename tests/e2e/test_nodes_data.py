"""What is on the disks of several nodes, and what the cluster makes of it."""

import time

import pytest

from ottla.broker import Broker
from ottla.cluster.membership import AlreadyRegistered
from ottla.config.files import broker_config
from ottla.ids import LeaderEpoch, NodeId
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.log.files.checkpoints import read_meta_properties
from ottla.metadata.keys import Keys
from ottla.metadata.store import Put
from ottla.metadata.values import encode_partition
from ottla.node.identity import STORE_CLUSTER
from tests.nodes import Nodes
from tools.wire_client import WireClient, batch, values_of


@pytest.fixture
def nodes():
    with Nodes() as nodes:
        yield nodes


def cluster_of(nodes, node_id):
    return read_meta_properties(nodes.disk(node_id), "/data/meta.properties").cluster_id


def test_new_nodes_that_start_together_are_of_one_cluster(nodes):
    nodes.start_together(1, 2, 3)
    ids = {nodes.broker(node_id).cluster_id for node_id in nodes.running}
    assert len(ids) == 1
    assert {cluster_of(nodes, node_id) for node_id in nodes.running} == ids


def test_a_directory_of_another_cluster_is_refused(nodes):
    nodes.start(1)
    with Nodes() as others:
        others.start(2)
        others.stop(2)
        nodes.take_disk(2, others.disk(2))
    with pytest.raises(LogDirectoryUnusable, match="belongs to node 2 of cluster"):
        nodes.start(2)
    assert nodes.running == [1]


def test_a_directory_of_another_node_is_refused(nodes):
    nodes.start(1, 2)
    nodes.stop(2)
    nodes.take_disk(3, nodes.disk(2))
    with pytest.raises(LogDirectoryUnusable, match="this is node 3"):
        nodes.start(3)


async def start_and_stop(directory):
    broker = Broker(
        broker_config({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)})
    )
    try:
        await broker.start()
        return broker.cluster_id
    finally:
        await broker.stop()


async def test_the_metadata_of_another_cluster_is_refused(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for directory in (one, other):
        await start_and_stop(directory)
    (other / "metadata.sqlite").rename(one / "metadata.sqlite")
    with pytest.raises(LogDirectoryUnusable, match=r"of cluster .*, its metadata of"):
        await start_and_stop(one)


async def test_a_directory_that_lost_its_identity_is_of_its_metadatas_cluster_again(tmp_path):
    cluster_id = await start_and_stop(tmp_path / "data")
    identity = tmp_path / "data" / "meta.properties"
    identity.unlink()
    for _ in range(2):
        assert await start_and_stop(tmp_path / "data") == cluster_id
        assert cluster_id in identity.read_text()


def create(nodes, name):
    with WireClient(nodes.address(nodes.running[0])) as wire:
        topic = {"name": name, "num_partitions": 6, "replication_factor": 1}
        answer = wire.call("create_topics", 5, topics=[topic], timeout_ms=30_000)
    assert answer["topics"][0]["error_code"] == 0


def delete(nodes, name):
    with WireClient(nodes.address(nodes.running[0])) as wire:
        answer = wire.call("delete_topics", 5, topic_names=[name], timeout_ms=30_000)
    assert answer["responses"][0]["error_code"] == 0


def directories(nodes, node_id, topic):
    """The names that a node's log directory has for a topic's partitions."""
    names = nodes.disk(node_id).list_directory("/data")
    return [name for name in names if name.startswith(f"{topic}-") and "." not in name]


def marks(nodes):
    """How many deleted topics are not forgotten yet."""

    async def count():
        entries, _ = await nodes.store.scan("/ottla/local/delete/")
        return len(entries)

    return nodes.run(count)


def wait_until(is_so):
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_node_deletes_its_own_directories_and_then_the_topic_is_forgotten(nodes):
    nodes.start(1, 2, 3)
    create(nodes, "gone")
    wait_until(lambda: all(len(directories(nodes, one, "gone")) == 2 for one in (1, 2, 3)))
    delete(nodes, "gone")
    wait_until(lambda: not any(directories(nodes, one, "gone") for one in (1, 2, 3)))
    wait_until(lambda: marks(nodes) == 0)


def test_a_node_that_was_away_does_not_bring_a_deleted_topic_back(nodes):
    nodes.start(1, 2, 3)
    create(nodes, "gone")
    wait_until(lambda: len(directories(nodes, 2, "gone")) == 2)
    nodes.kill(2)
    delete(nodes, "gone")
    wait_until(lambda: not any(directories(nodes, one, "gone") for one in (1, 3)))
    assert marks(nodes) == 1
    nodes.start(2)
    assert nodes.leaders("gone") == []
    wait_until(lambda: marks(nodes) == 0)
    assert directories(nodes, 2, "gone") == []
    create(nodes, "gone")  # Made anew, it is empty and served.
    wait_until(lambda: len(directories(nodes, 2, "gone")) == 2)


def test_the_controllers_seat_passes_on_when_its_node_ends(nodes):
    nodes.start(1, 2, 3)
    assert nodes.call(lambda: nodes.image(3).controller) == 1
    nodes.kill(1)
    wait_until(lambda: nodes.call(lambda: nodes.image(3).controller) in (2, 3))
    nodes.start(1)
    seat = nodes.call(lambda: nodes.image(1).controller)
    assert seat in (2, 3), "who has it keeps it"
    nodes.stop(seat)
    wait_until(lambda: nodes.call(lambda: nodes.image(1).controller) in nodes.running)


def test_a_second_node_with_the_same_id_is_refused(nodes):
    nodes.start(1, 2)
    disk = nodes.disk(2)
    nodes.forget_disk(2)
    with pytest.raises(AlreadyRegistered, match="node 2 is registered already"):
        nodes.start(2, listeners="PLAINTEXT://127.0.0.1:0")
    nodes.take_disk(2, disk)
    assert sorted(nodes.call(lambda: list(nodes.image(1).brokers))) == [1, 2]


def test_a_node_that_was_away_while_its_replica_left_does_not_bring_a_deleted_topic_back(nodes):
    nodes.start(1, 2, 3)
    create(nodes, "gone")
    wait_until(lambda: len(directories(nodes, 2, "gone")) == 2)
    nodes.kill(2)
    keys = Keys(STORE_CLUSTER)

    async def move():
        """As the end of a reassignment does."""
        topic_id = nodes.image(1).topic("gone").topic_id
        for number, state in enumerate(nodes.image(1).topic("gone").partitions):
            if state.leader == NodeId(2):
                moved = state._replace(
                    replicas=(NodeId(1),),
                    isr=(NodeId(1),),
                    leader=NodeId(1),
                    leader_epoch=LeaderEpoch(1),
                    partition_epoch=1,
                    left=(NodeId(2),),
                )
                put = Put(keys.partition(topic_id, number), encode_partition(moved))
                await nodes.store.commit([], [put])

    nodes.run(move)
    wait_until(lambda: set(nodes.leaders("gone")) == {1, 3})
    delete(nodes, "gone")
    wait_until(lambda: not any(directories(nodes, one, "gone") for one in (1, 3)))
    nodes.start(2)
    assert nodes.leaders("gone") == []
    wait_until(lambda: marks(nodes) == 0)
    assert directories(nodes, 2, "gone") == []


def produce(nodes, topic, partition):
    leader = nodes.leaders(topic)[partition]
    with WireClient(nodes.address(leader)) as wire:
        answer = wire.produce(topic, batch([b"kept"]), partition)
    assert answer["error_code"] == 0


def test_nodes_whose_metadata_is_lost_serve_what_each_of_them_has(nodes):
    nodes.start(1, 2, 3)
    create(nodes, "t")
    wait_until(lambda: sum(len(directories(nodes, one, "t")) for one in (1, 2, 3)) == 6)
    for partition in range(6):
        produce(nodes, "t", partition)
    before = nodes.leaders("t")
    for node_id in (1, 2, 3):
        nodes.stop(node_id)
    nodes.forget_store()
    nodes.start_together(1, 2, 3)
    assert nodes.leaders("t") == before
    for partition, leader in enumerate(before):
        with WireClient(nodes.address(leader)) as wire:
            found = wire.fetch("t", 0, partition)
        assert values_of(found["records"]) == [(0, b"kept")]


def test_nodes_are_not_started_on_metadata_that_is_older_than_their_data(nodes):
    """Else leader epochs fall in the logs, which are taken for corrupt after the next crash."""
    nodes.start(1)
    create(nodes, "t")
    keys = Keys(STORE_CLUSTER)

    async def put(epoch):
        topic = nodes.image(1).topic("t")
        state = topic.partitions[0]._replace(leader_epoch=LeaderEpoch(epoch), partition_epoch=9)
        put = Put(keys.partition(topic.topic_id, 0), encode_partition(state))
        await nodes.store.commit([], [put])
        return topic.topic_id

    nodes.run(put, 7)
    wait_until(
        lambda: nodes.call(lambda: nodes.image(1).topic("t").partitions[0]).leader_epoch == 7
    )
    produce(nodes, "t", 0)
    nodes.run(put, 6)
    nodes.stop(1)
    with pytest.raises(LogDirectoryUnusable, match="t-0 has records of leader epoch 7, and"):
        nodes.start(1)
