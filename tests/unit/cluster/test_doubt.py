"""Which partitions are decided again when only old copies, and new directories, are in sync."""

import pytest

from ottla.cluster.copies import Copy
from ottla.cluster.taking_in import TakingIn
from ottla.cluster.unsettled import Unsettled, mark
from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.ids import LeaderEpoch, NodeId, TopicId
from ottla.log.files.checkpoints import MetaProperties, write_meta_properties
from ottla.metadata.keys import Keys
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Put
from ottla.metadata.values import (
    NO_LEADER,
    KnownBrokerValue,
    PartitionState,
    Stamp,
    TopicValue,
    decode_partition,
    encode_generations,
    encode_known_broker,
    encode_partition,
    encode_topic,
)
from ottla.node.restored import doubt_of

KEYS, ID = Keys("test"), TopicId(b"i" * 16)
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
