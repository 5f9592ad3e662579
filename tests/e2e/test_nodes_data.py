"""What is on the disks of several nodes, and what the cluster makes of it."""

import pytest

from ottla.broker import Broker
from ottla.config.files import broker_config
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.log.files.checkpoints import read_meta_properties
from tests.nodes import Nodes


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
