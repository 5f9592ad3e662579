"""What a node leads when it has registered, however the image comes to tell of that."""

import asyncio

import pytest

from ottla.env.clock import ManualClock
from ottla.ids import LeaderEpoch, NodeId
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Compacted, Put
from ottla.metadata.values import (
    BrokerValue,
    PartitionState,
    TopicValue,
    encode_broker,
    encode_partition,
    encode_topic,
)
from tests.unit.replication.conftest import NODE, TOPIC_ID


class ForgetfulStore(MemoryStore):
    """A store that has forgotten what a watch asks for, once it ``forgets``."""

    def __init__(self, clock):
        super().__init__(clock)
        self.forgets = asyncio.Event()
        self.has_forgotten = False

    async def watch(self, prefix, from_rev):
        if not self.has_forgotten:
            await self.forgets.wait()
            self.has_forgotten = True
            raise Compacted(from_rev)
        async for change_set in super().watch(prefix, from_rev):
            yield change_set


class Behind:
    """A node, and a store that it hears of when it is told to."""

    def __init__(self, node):
        self.node = node
        self.store, self.keys = ForgetfulStore(ManualClock()), Keys("c")
        self.follower = ImageFollower(self.store, self.keys, ManualClock())
        manager = self.manager = node.replica_manager
        manager.changed_at = lambda topic_id, number: (
            self.follower.mirror.get(self.keys.partition(topic_id, number)).mod_rev
        )
        self.follower.add_listener(manager.apply)

    async def put(self, *puts):
        return await self.store.commit([], [Put(key, value) for key, value in puts])

    async def register(self):
        return await self.put((self.keys.live_broker(NODE), encode_broker(BrokerValue("h", 1))))

    async def write(self, epoch):
        nodes = NODE, NodeId(2)
        state = PartitionState(nodes, nodes, NODE, LeaderEpoch(epoch), epoch)
        return await self.put((self.keys.partition(TOPIC_ID, 0), encode_partition(state)))

    async def hear(self, revision):
        self.store.forgets.set()
        async with asyncio.timeout(5):
            await self.follower.reached(revision)
        self.node.executor.run_all()


@pytest.fixture
async def behind(make_node):
    behind = Behind(make_node(partitions=0))
    await behind.put((behind.keys.topic("t"), encode_topic(TopicValue(TOPIC_ID, 1))))
    await behind.write(epoch=5)
    yield behind
    await behind.follower.close()
    await behind.store.close()


@pytest.mark.parametrize("is_known", [False, True], ids=["of a new topic", "that it has"])
async def test_it_leads_what_it_was_granted_since_when_it_hears_of_both_at_once(behind, is_known):
    if is_known:
        await behind.follower.start()
        behind.node.executor.run_all()
    await behind.register()
    revision = await behind.write(epoch=6)
    if not is_known:
        await behind.follower.start()
    await behind.hear(revision)
    partition = behind.node.partition()
    assert partition.leader_epoch == 6
    assert partition.is_leader


async def test_it_does_not_lead_what_a_former_process_was_granted(behind):
    await behind.follower.start()
    behind.node.executor.run_all()
    await behind.hear(await behind.register())
    assert not behind.node.partition().is_leader
    await behind.hear(await behind.write(epoch=6))
    assert behind.node.partition().is_leader
