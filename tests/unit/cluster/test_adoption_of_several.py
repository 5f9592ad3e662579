"""The metadata of several nodes is lost, or an old copy is back: each node has its own logs."""

import asyncio

import pytest

from ottla.cluster.adoption import adopt
from ottla.cluster.copies import EPOCHS_LEFT_OUT
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.ids import NodeId, TopicId
from ottla.metadata.store import Put
from ottla.metadata.values import TopicValue, encode_topic
from tests.unit.cluster.directories import open_logs, write_logs

ID, OTHER_ID = TopicId(b"i" * 16), TopicId(b"o" * 16)
ONE, TWO = NodeId(1), NodeId(2)


class Nodes:
    """Nodes with a disk each, and the store that they share."""

    def __init__(self, following):
        self.following = following
        self.disks = {ONE: MemoryDisk(), TWO: MemoryDisk()}

    def has(self, node, *indexes, topic_id=ID, epoch=0):
        partitions = [("t", index) for index in indexes]
        write_logs(self.disks[node], partitions, topic_id, epoch=epoch, node_id=node)

    async def start(self, node):
        store, keys = self.following.store, self.following.keys
        manager = open_logs(self.disks[node], node)
        revision = await adopt(
            store,
            keys,
            dict(self.following.image.topics),
            manager,
            node_id=node,
            rng=SeededRng(node),
            is_alone=False,
        )
        async with asyncio.timeout(5):
            await self.following.follower.reached(revision)
        manager.stop()

    def leaders(self):
        return [state.leader for state in self.following.image.topic("t").partitions]


@pytest.fixture
def nodes(following):
    return Nodes(following)


@pytest.mark.parametrize("first", [ONE, TWO])
async def test_each_adds_what_it_has_whoever_comes_first(nodes, first):
    nodes.has(ONE, 0, 2)
    nodes.has(TWO, 1, 3)
    for node in (first, ONE + TWO - first):
        await nodes.start(node)
    assert nodes.leaders() == [ONE, TWO, ONE, TWO]
    topic = nodes.following.image.topic("t")
    assert (topic.topic_id, topic.first_count) == (ID, 4)
    before = nodes.following.image.revision
    for node in (ONE, TWO):
        await nodes.start(node)
    assert nodes.following.image.revision == before


@pytest.mark.parametrize("commit", [1, 2])
async def test_each_adds_what_it_has_when_they_come_together(nodes, commit):
    nodes.has(ONE, 0, 2)
    nodes.has(TWO, 1, 3)
    store = nodes.following.store

    async def meanwhile(_):
        await nodes.start(TWO)

    async def later(_):
        store.before = meanwhile

    store.before = meanwhile if commit == 1 else later
    await nodes.start(ONE)
    assert nodes.leaders() == [ONE, TWO, ONE, TWO]


async def test_of_two_copies_one_is_served_in_an_epoch_that_neither_has_seen(nodes):
    nodes.has(ONE, 0, epoch=3)
    nodes.has(TWO, 0, epoch=3 + EPOCHS_LEFT_OUT + 1)
    for node in (ONE, TWO):
        await nodes.start(node)
    (state,) = nodes.following.image.topic("t").partitions
    assert (state.replicas, state.leader) == ((ONE,), ONE)
    assert state.leader_epoch == 3 + EPOCHS_LEFT_OUT + 2
    assert "t-0" in nodes.disks[TWO].list_directory("/data")


async def test_partitions_that_an_old_copy_of_the_metadata_lacks_are_added(nodes):
    nodes.has(ONE, 0)
    await nodes.start(ONE)
    nodes.has(ONE, 2)
    nodes.has(TWO, 1)
    for node in (ONE, TWO):
        await nodes.start(node)
    assert nodes.leaders() == [ONE, TWO, ONE]


async def test_another_topic_of_the_name_is_left_alone(nodes, caplog):
    key = nodes.following.keys.topic("t")
    nodes.has(ONE, 0)

    async def other_node(commit):
        await commit([], [Put(key, encode_topic(TopicValue(OTHER_ID, 1)))])

    nodes.following.store.before = other_node
    await nodes.start(ONE)
    assert "another topic of this name" in caplog.text
    entry = await nodes.following.store.get(key)
    assert entry.value == encode_topic(TopicValue(OTHER_ID, 1))
