"""Metadata that is new, or older than the data, gives no producer id a second time.

Of two producers of one id the later one's batches would be taken for resends of the other's: they
were acknowledged, and not stored.
"""

import asyncio

import pytest

from ottla.cluster.adoption import adopt
from ottla.cluster.producer_ids import ProducerIds, id_of_now
from ottla.cluster.unsettled import Unsettled, mark, read_unsettled
from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.ids import TopicId, TopicPartition
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Put
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.unit.cluster.directories import NODE, open_logs, write_logs

ID = TopicId(b"i" * 16)


@pytest.fixture
def disk():
    return MemoryDisk()


@pytest.fixture
def written(disk):
    """Leave a partition directory with a record that has no producer id."""
    write_logs(disk, [("t", 0)], ID)


@pytest.fixture
def start(disk, following):
    """Open the directories and adopt, on another store than the one before, or on the same."""

    async def start(clock, store=None, topics=None):
        manager = open_logs(disk, clock=clock)
        store = store or MemoryStore(clock)
        known = {} if topics is None else topics
        revision = await adopt(
            store,
            following.keys,
            known,
            manager,
            node_id=NODE,
            rng=SeededRng(2),
            unsettled=await read_unsettled(store, following.keys),
        )
        manager.stop()
        return store, revision

    return start


async def id_given(store, keys):
    """Return what a producer gets from a process that has just started."""
    given = asyncio.get_running_loop().create_future()
    ids = ProducerIds(store, keys.producer_id_block)
    ids.next().on_done(lambda pending: given.set_result(pending.value))
    return await given


@pytest.mark.usefixtures("written")
async def test_metadata_is_lost_again_and_again(start, following):
    clock, given = ManualClock(), []
    for _ in range(3):
        store, _ = await start(clock)
        given += [await id_given(store, following.keys) for _ in range(3)]
        clock.advance(60)
    assert sorted({*given}) == given
    assert given[0] >= id_of_now(ManualClock())


@pytest.mark.usefixtures("written")
async def test_metadata_is_put_back(start, following):
    store, keys, clock = following.store, following.keys, ManualClock()
    _, revision = await start(clock, store)
    await following.follower.reached(revision)
    backup = await store.get(keys.producer_id_block)
    given = [await id_given(store, keys) for _ in range(3)]
    await store.commit([], [Put(backup.key, backup.value), mark(keys, Unsettled.METADATA)])
    clock.advance(60)
    await start(clock, store, dict(following.image.topics))
    assert await id_given(store, keys) > max(given)


@pytest.mark.parametrize("wall_ms", [0, 1_600_000_000_000])
async def test_ids_are_left_out_where_the_clock_is_behind(disk, start, following, wall_ms):
    manager = open_logs(disk)
    log = manager.create(TopicPartition("t", 0), ID)
    last = id_of_now(ManualClock())
    producer = {"producer_id": last, "producer_epoch": 0, "base_sequence": 0}
    log.append(memoryview(build_batch([Record(value=b"old")], **producer)), leader_epoch=0)
    manager.stop()
    store, _ = await start(ManualClock(wall_ms))
    assert last + 100_000 < await id_given(store, following.keys) < last + 10_000_000


async def test_ids_of_a_new_cluster_begin_at_0(start, following):
    store, keys = following.store, following.keys
    await store.commit([], [mark(keys, Unsettled.METADATA)])
    await start(ManualClock(), store)
    assert await id_given(store, keys) == 0


@pytest.mark.usefixtures("written")
async def test_other_starts_leave_no_ids_out(start, following):
    store, keys, clock = following.store, following.keys, ManualClock()
    _, revision = await start(clock, store)
    await following.follower.reached(revision)
    first = await id_given(store, keys)
    clock.advance(60)
    await start(clock, store, dict(following.image.topics))
    assert await id_given(store, keys) == first + 1000
