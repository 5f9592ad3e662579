"""Topics that another node deletes while this one starts: their directories go, and only theirs."""

import pytest

from ottla.cluster.adoption import adopt, finish_late_deletions
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.ids import NodeId, TopicId, TopicPartition
from ottla.metadata.image import TopicImage
from ottla.metadata.store import Delete, Put
from ottla.metadata.values import encode_deleted
from tests.unit.cluster.directories import NODE, open_logs, write_logs

ID, OTHER_ID = TopicId(b"i" * 16), TopicId(b"o" * 16)


@pytest.fixture
def disk():
    return MemoryDisk()


async def bring_together(disk, following):
    """Open the directories and adopt; return the log manager."""
    manager = open_logs(disk)
    topics = dict(following.image.topics)
    store, keys = following.store, following.keys
    revision = await adopt(store, keys, topics, manager, node_id=NODE, rng=SeededRng(2))
    await following.follower.reached(revision)
    return manager


class DeletedWhileMarksAreRead:
    """A store in which another node deletes a topic just after the marks have been read."""

    def __init__(self, following):
        self._following = following

    def __getattr__(self, name):
        return getattr(self._following.store, name)

    async def scan(self, prefix):
        found = await self._following.store.scan(prefix)
        keys = self._following.keys
        if prefix == keys.deleted_topics:
            mark = Put(keys.deleted_topic(ID), encode_deleted("t", [NODE, NodeId(7)]))
            ops = [mark, Delete(keys.topic("t")), Delete(keys.topic_id(ID))]
            await self._following.follower.reached(await self._following.store.commit([], ops))
        return found


async def test_a_topic_that_is_deleted_while_a_node_starts_is_neither_kept_nor_taken_in(
    disk, following
):
    """World n1129d.254: its directory kept the name, and no later topic of that name came here."""
    write_logs(disk, [("t", 0), ("t", 1)], ID)
    (await bring_together(disk, following)).stop()
    topics = dict(following.image.topics)
    manager = open_logs(disk)
    store = DeletedWhileMarksAreRead(following)
    await adopt(store, following.keys, topics, manager, node_id=NODE, rng=SeededRng(2))
    assert not following.image.topics, "it was deleted, and is no stranger"
    (deleted,) = finish_late_deletions(manager, topics, following.image)
    assert deleted.topic_id == ID
    assert not manager.logs
    assert len(manager.deleted) == 2
    assert not disk.exists("/data/t-0")


async def test_a_late_deletion_does_not_touch_the_topic_that_came_after(disk, following):
    write_logs(disk, [("t", 0)], OTHER_ID)
    manager = await bring_together(disk, following)
    before = {"t": TopicImage("t", ID, following.image.topic("t").partitions)}
    finish_late_deletions(manager, before, following.image)
    assert TopicPartition("t", 0) in manager.logs
