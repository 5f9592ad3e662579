"""The image: what each commit makes visible, and what listeners are told."""

import asyncio

import pytest

from ottla.env.clock import ManualClock
from ottla.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.metadata.image import ImageFollower, UnsupportedMetadata
from ottla.metadata.keys import ConfigType, Keys
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Delete, Put
from ottla.metadata.values import (
    NO_STATE,
    BrokerValue,
    MetaValue,
    PartitionState,
    TopicValue,
    encode_broker,
    encode_config,
    encode_controller,
    encode_meta,
    encode_partition,
    encode_topic,
)

KEYS = Keys("test")
ID, OTHER_ID = TopicId(b"i" * 16), TopicId(b"o" * 16)


def state(leader=1, epoch=0):
    return PartitionState(
        replicas=(NodeId(1), NodeId(2)),
        isr=(NodeId(1), NodeId(2)),
        leader=NodeId(leader),
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=epoch,
    )


def put_topic(name="orders", topic_id=ID, count=2):
    return Put(KEYS.topic(name), encode_topic(TopicValue(topic_id, count)))


def put_states(numbers, topic_id=ID, **fields):
    return [Put(KEYS.partition(topic_id, n), encode_partition(state(**fields))) for n in numbers]


class Following:
    """A store, its follower, and the deltas heard."""

    def __init__(self):
        self.store = MemoryStore(ManualClock(), history_revisions=5)
        self.follower = ImageFollower(self.store, KEYS, ManualClock())
        self.image = self.follower.image
        self.deltas = []
        self.follower.add_listener(self.hear)

    def hear(self, image, delta):
        assert image is self.image
        assert image.revision == delta.revision
        self.deltas.append(delta)

    async def commit(self, *ops):
        """Commit, wait for the image, return the delta or None."""
        before = len(self.deltas)
        revision = await self.store.commit([], list(ops))
        async with asyncio.timeout(5):
            await self.follower.reached(revision)
        assert self.image.revision == revision
        return self.deltas[-1] if len(self.deltas) > before else None


@pytest.fixture
async def following():
    following = Following()
    await following.follower.start()
    yield following
    await following.follower.close()
    await following.store.close()


async def test_a_topic_is_seen_whole(following):
    delta = await following.commit(put_topic(), *put_states([0, 1]))
    topic = following.image.topic("orders")
    assert topic.partitions == (state(), state())
    assert following.image.topic_by_id(ID) is topic
    assert following.image.topics == {"orders": topic}
    assert following.image.partition(TopicPartition("orders", 1)) == state()
    for absent in (TopicPartition("orders", 2), TopicPartition("orders", -1), ("x", 0)):
        assert following.image.partition(TopicPartition(*absent)) is None
    assert delta.topics_created == (topic,)
    assert [(c.topic, c.topic_id, c.partition, c.old, c.new) for c in delta.partitions] == [
        ("orders", ID, 0, None, state()),
        ("orders", ID, 1, None, state()),
    ]


async def test_a_creation_over_several_commits_appears_as_one_step(following):
    assert await following.commit(*put_states([0])) is None
    assert await following.commit(*put_states([1])) is None
    assert following.image.topic_by_id(ID) is None
    delta = await following.commit(put_topic())
    assert [change.partition for change in delta.partitions] == [0, 1]
    assert delta.topics_created[0].partitions == (state(), state())


async def test_a_leader_change_touches_one_partition(following):
    await following.commit(put_topic(count=3), *put_states([0, 1, 2]))
    kept = following.image.topic("orders")
    delta = await following.commit(*put_states([1], leader=2, epoch=1))
    assert [(c.partition, c.old, c.new) for c in delta.partitions] == [
        (1, state(), state(leader=2, epoch=1))
    ]
    assert delta.topics_created == delta.topics_deleted == ()
    assert kept.partitions == (state(),) * 3, "what was read before stays as it was"
    assert following.image.topic("orders").partitions[1] == state(leader=2, epoch=1)


async def test_more_partitions_appear_when_the_topic_counts_them(following):
    await following.commit(put_topic(count=1), *put_states([0]))
    assert await following.commit(*put_states([1, 2])) is None
    assert len(following.image.topic("orders").partitions) == 1
    delta = await following.commit(put_topic(count=3))
    assert [(c.partition, c.old, c.new) for c in delta.partitions] == [
        (1, None, state()),
        (2, None, state()),
    ]
    assert delta.topics_created == ()


async def test_a_partition_without_a_key_has_no_replicas(following):
    await following.commit(put_topic(count=2), *put_states([0]))
    assert following.image.partition(TopicPartition("orders", 1)) is NO_STATE
    delta = await following.commit(*put_states([1]))
    assert [(c.partition, c.old, c.new) for c in delta.partitions] == [(1, NO_STATE, state())]


async def test_a_deletion_takes_all_partitions_at_once(following):
    await following.commit(put_topic(), *put_states([0, 1]))
    topic = following.image.topic("orders")
    delta = await following.commit(Delete(KEYS.topic("orders")))
    assert delta.topics_deleted == (topic,)
    assert [(c.partition, c.old, c.new) for c in delta.partitions] == [
        (0, state(), None),
        (1, state(), None),
    ]
    assert following.image.topic("orders") is None
    assert following.image.topic_by_id(ID) is None
    rest = [Delete(KEYS.partition(ID, n)) for n in range(2)]
    assert await following.commit(*rest) is None, "the late keys are no news"
    assert following.image._states == {}


async def test_a_topic_made_again_under_its_name_is_another_topic(following):
    await following.commit(put_topic(), *put_states([0, 1]))
    old = following.image.topic("orders")
    delta = await following.commit(
        put_topic(topic_id=OTHER_ID, count=1), *put_states([0], OTHER_ID, leader=2)
    )
    assert delta.topics_deleted == (old,)
    assert delta.topics_created == (following.image.topic("orders"),)
    assert [(c.topic_id, c.partition, c.new) for c in delta.partitions] == [
        (ID, 0, None),
        (ID, 1, None),
        (OTHER_ID, 0, state(leader=2)),
    ]
    assert following.image.topic_by_id(ID) is None
    assert following.image.topic_by_id(OTHER_ID).name == "orders"


async def test_configs_brokers_controller_and_cluster(following):
    assert following.image.config(ConfigType.TOPIC, "orders") == {}
    assert (following.image.cluster_id, following.image.controller) == ("", -1)
    await following.commit(Put(KEYS.meta, encode_meta(MetaValue("the-id"))))
    assert following.image.cluster_id == "the-id"
    delta = await following.commit(
        Put(KEYS.live_broker(NodeId(4)), encode_broker(BrokerValue("h", 9092, "r"))),
        Put(KEYS.controller, encode_controller(NodeId(4))),
        Put(KEYS.config(ConfigType.TOPIC, "orders"), encode_config({"retention.ms": "5"})),
    )
    assert (delta.brokers, delta.controller_changed) == ((4,), True)
    assert delta.configs == ((ConfigType.TOPIC, "orders"),)
    broker = following.image.brokers[4]
    assert (broker.registration.host, broker.registration.rack, broker.epoch) == ("h", "r", 2)
    assert following.image.controller == 4
    assert following.image.config(ConfigType.TOPIC, "orders") == {"retention.ms": "5"}
    await following.commit(
        Delete(KEYS.live_broker(NodeId(4))),
        Delete(KEYS.controller),
        Delete(KEYS.config(ConfigType.TOPIC, "orders")),
    )
    assert following.image.brokers == {}
    assert following.image.controller == -1
    await following.commit(Put(KEYS.known_broker(NodeId(4)), b"{}"))
    assert following.image.known == {4}
    await following.commit(Delete(KEYS.known_broker(NodeId(4))))
    assert following.image.known == set()
    assert following.image.config(ConfigType.TOPIC, "orders") == {}


async def test_an_unreadable_value_leaves_the_one_before_and_is_named(following, caplog):
    await following.commit(put_topic(count=1), *put_states([0]))
    key = KEYS.partition(ID, 0)
    assert await following.commit(Put(key, b'{"v":2}')) is None
    assert following.image.partition(TopicPartition("orders", 0)) == state()
    assert "version 2" in following.image.unreadable[key]
    assert key in caplog.text
    await following.commit(*put_states([0], leader=2))
    assert following.image.unreadable == {}
    assert following.image.partition(TopicPartition("orders", 0)).leader == 2


async def test_keys_of_the_future_are_ignored(following):
    assert await following.commit(Put(f"{KEYS.prefix}of/the/future", b"\x00")) is None


async def test_a_store_of_another_format_is_refused():
    following = Following()
    await following.store.commit([], [Put(KEYS.meta, encode_meta(MetaValue("x", 2)))])
    with pytest.raises(UnsupportedMetadata, match="format 2"):
        await following.follower.start()


async def test_the_first_delta_is_everything_and_a_rescan_is_the_difference():
    following = Following()
    await following.store.commit([], [put_topic(), *put_states([0, 1])])
    await following.follower.start()
    assert [len(delta.partitions) for delta in following.deltas] == [2]
    await asyncio.sleep(0)
    for epoch in range(10):
        await following.store.commit([], put_states([1], epoch=epoch, leader=2))
    await following.store.commit([], [put_topic("payments", OTHER_ID, 1)])
    async with asyncio.timeout(5):
        await following.follower.reached(12)
    assert len(following.deltas) == 2, "it was behind the history and scanned again"
    delta = following.deltas[1]
    assert [topic.name for topic in delta.topics_created] == ["payments"]
    changed = sorted((c.topic, c.partition) for c in delta.partitions)
    assert changed == [("orders", 1), ("payments", 0)]
    await following.follower.close()
