"""Which partitions are decided again when only old copies, and new directories, are in sync."""

import pytest

from ottla.cluster.copies import EPOCHS_LEFT_OUT, Copy
from ottla.cluster.lineage import Remembered, write_lineage
from ottla.cluster.taking_in import TakingIn
from ottla.cluster.unsettled import Unsettled, mark
from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.ids import LeaderEpoch, NodeId, TopicId
from ottla.log.files.checkpoints import MetaProperties, write_meta_properties
from ottla.metadata.keys import ConfigType, Keys
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Put
from ottla.metadata.values import (
    NO_LEADER,
    KnownBrokerValue,
    PartitionState,
    Stamp,
    TopicValue,
    decode_config,
    decode_partition,
    decode_topic,
    encode_config,
    encode_deleted,
    encode_generations,
    encode_known_broker,
    encode_name,
    encode_partition,
    encode_topic,
)
from ottla.node.restored import doubt_of

KEYS, ID, ANEW = Keys("test"), TopicId(b"i" * 16), TopicId(b"a" * 16)
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
ALL = (ONE, TWO, THREE)


def state(*isr, replicas=ALL, elr=()):
    leader = isr[0] if isr else NO_LEADER
    return PartitionState(replicas, isr, leader, LeaderEpoch(4), 7, elr=elr)


@pytest.fixture
async def store():
    store = MemoryStore(ManualClock())
    yield store
    await store.close()


async def know(store, *states):
    partitions = [
        Put(KEYS.partition(ID, index), encode_partition(one)) for index, one in enumerate(states)
    ]
    topic = Put(KEYS.topic("t"), encode_topic(TopicValue(ID, len(states))))
    await store.commit([], [topic, *partitions])


async def test_only_what_is_in_doubt_is_decided_by_the_copies(store):
    await know(store, state(TWO), state(ONE, TWO), state(TWO, THREE), state())
    await store.commit([], [mark(KEYS, Unsettled.COPIES)])
    ends = {ONE: 60, TWO: 40, THREE: 90}
    found = {
        node: {"t": {index: Copy(ID, 4, end, "/d") for index in range(4)}}
        for node, end in ends.items()
    }
    await TakingIn(store, KEYS, SeededRng(1), lambda _: None).all(found, {TWO, THREE})
    after = [
        decode_partition((await store.get(KEYS.partition(ID, index))).value) for index in range(4)
    ]
    assert [one.leader for one in after] == [THREE, ONE, THREE, NO_LEADER]
    assert (after[1], after[3]) == (state(ONE, TWO), state())
    assert after[0].leader_epoch > 4
    assert await store.get(KEYS.unsettled) is None


@pytest.fixture
async def doubt(store):
    """Tell what is in doubt when node 2 has an old copy, and these directories are new or gone."""

    async def doubt(*states, new=()):
        await know(store, *states)
        disk = MemoryDisk()
        for node in ALL:
            path = f"/{node}"
            disk.make_directory(path)
            if node not in new:
                meta = MetaProperties("cluster", node, f"id {node}")
                write_meta_properties(disk, f"{path}/meta.properties", meta)
            stamps = {f"id {node}": [Stamp(9, "x")] if node == TWO else []}
            known = KnownBrokerValue({f"id {node}": path})
            await store.commit(
                [],
                [
                    Put(KEYS.generations(node), encode_generations(stamps)),
                    Put(KEYS.known_broker(node), encode_known_broker(known)),
                ],
            )
        return await doubt_of(store, KEYS, disk, {f"/{node}": node for node in ALL})

    return doubt


@pytest.mark.parametrize(
    ("states", "new", "is_there"),
    [
        ([state(ONE, TWO)], (), False),
        ([state(TWO)], (), True),
        ([state(TWO, elr=(ONE,))], (), False),
        ([state(TWO, replicas=(TWO,))], (), False),
        ([state()], (), False),
        ([state(TWO, THREE)], (), False),
        ([state(ONE), state(TWO, THREE)], (THREE,), True),
        ([state(ONE, THREE)], (THREE,), False),
    ],
)
async def test_an_old_copy_is_in_doubt_where_nobody_else_has_all(doubt, states, new, is_there):
    found = await doubt(*states, new=new)
    assert (found is not None) == is_there
    if found is not None:
        assert found.unsettled is Unsettled.COPIES


async def test_metadata_of_a_time_without_generations_is_older_than_one(store):
    """Of a single node, that is: what the others have since was not looked at."""
    await know(store, state(ONE))
    disk = MemoryDisk()
    for node in (ONE, TWO):
        path = f"/{node}"
        disk.make_directory(path)
        meta = MetaProperties("cluster", node, f"id {node}")
        write_meta_properties(disk, f"{path}/meta.properties", meta)
    directories = {"/1": ONE, "/2": TWO}
    assert await doubt_of(store, KEYS, disk, directories) is None
    write_lineage(disk, "/2/.ottla-generation", Remembered(Stamp(1, "x" * 32)))
    found = await doubt_of(store, KEYS, disk, directories)
    assert found is not None
    assert found.unsettled is Unsettled.METADATA


async def test_a_topic_that_was_made_anew_since_the_metadata_is_served(store):
    """It was offline for ever: the metadata knew the one before."""
    await know(store, state(ONE), state(ONE))
    await store.commit(
        [],
        [
            mark(KEYS, Unsettled.METADATA),
            Put(KEYS.topic_id(ID), encode_name("t")),
            Put(KEYS.config(ConfigType.TOPIC, "t"), encode_config({"retention.ms": "1"})),
        ],
    )
    found = {node: {"t": {0: Copy(ANEW, 2, 30, "/d")}} for node in (TWO, THREE)}
    for _ in range(2):  # Also when the mark did not go.
        await TakingIn(store, KEYS, SeededRng(1), lambda _: None).all(found)
        topic = decode_topic((await store.get(KEYS.topic("t"))).value)
        assert (topic.topic_id, topic.partition_count) == (ANEW, 1)
        served = decode_partition((await store.get(KEYS.partition(ANEW, 0))).value)
        assert (served.isr, served.leader) == ((TWO, THREE), TWO)
        for former in (KEYS.topic_id(ID), KEYS.partition(ID, 0), KEYS.partition(ID, 1)):
            assert await store.get(former) is None
        configs = decode_config((await store.get(KEYS.config(ConfigType.TOPIC, "t"))).value)
        assert configs["retention.ms"] == "-1", "those were the former topic's"
        await store.commit([], [mark(KEYS, Unsettled.METADATA)])


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_former_topic_is_not_served_again(store, is_deleted):
    """Its directory was away while it was deleted."""
    await know(store, state(ONE))
    await store.commit([], [mark(KEYS, Unsettled.METADATA)])
    found = {ONE: {"t": {0: Copy(ID, 0, 5, "/d")}}, TWO: {"t": {0: Copy(ANEW, 2, 3, "/d")}}}
    if is_deleted:
        del found[ONE]
        await store.commit([], [Put(KEYS.deleted_topic(ANEW), encode_deleted("t", [TWO]))])
    await TakingIn(store, KEYS, SeededRng(1), lambda _: None).all(found)
    assert decode_topic((await store.get(KEYS.topic("t"))).value).topic_id == ID


async def test_what_nobody_has_a_copy_of_goes_on_in_an_epoch_that_no_copy_has_seen(store):
    """It may be away, with more leader epochs than the old metadata knows."""
    await know(store, state(ONE), state(TWO))
    await store.commit([], [mark(KEYS, Unsettled.METADATA)])
    found = {ONE: {"t": {0: Copy(ID, 4, 5, "/d")}}}
    await TakingIn(store, KEYS, SeededRng(1), lambda _: None).all(found)
    assert await store.get(KEYS.behind(ONE)) is not None, "until it has looked what is behind"
    assert await store.get(KEYS.behind(TWO)) is None
    after = decode_partition((await store.get(KEYS.partition(ID, 1))).value)
    assert after == state(TWO)._replace(leader_epoch=4 + EPOCHS_LEFT_OUT, partition_epoch=8)
