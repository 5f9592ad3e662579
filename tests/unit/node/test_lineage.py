"""A node stamps what it acts on, a few times for many changes, and notices another history."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.cluster.lineage import Remembered, read_lineage
from ottla.env.clock import ManualClock
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.ids import LeaderEpoch, NodeId, TopicId
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.metadata.image import MetadataDelta, PartitionChange
from ottla.metadata.keys import Keys
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Ambiguous, Put, Unavailable
from ottla.metadata.values import (
    PartitionState,
    Stamp,
    decode_stamps,
    encode_stamps,
)
from ottla.node.lineage import RETRY_SECONDS, Lineage
from tests.inline_executor import InlineExecutor

KEYS, ME, OTHER = Keys("c"), NodeId(1), NodeId(2)
PATH = "/d/.ottla-lineage"


class Store(MemoryStore):
    """Counts commits; ``failing`` is raised by the next ones, after them if ``is_late``."""

    commits = 0
    failing = None
    is_late = False

    async def commit(self, guards, ops):
        if self.failing is not None:
            if self.is_late:
                await super().commit(guards, ops)
            raise self.failing
        self.commits += 1
        await asyncio.sleep(0)
        return await super().commit(guards, ops)


class Parts(SimpleNamespace):
    def node(self):
        """Return the lineage of a process that begins."""
        directory = SimpleNamespace(path="/d", is_online=True, directory_id="an-id")
        lineage = Lineage(
            self.store,
            KEYS,
            ME,
            SimpleNamespace(directories={"/d": directory}),
            SimpleNamespace(
                disk=self.disk, executor=InlineExecutor(), rng=self.rng, clock=self.clock
            ),
            on_parted=self.told.append,
        )
        self.nodes.append(lineage)
        return lineage

    def remembered(self):
        return read_lineage(self.disk, PATH)

    async def known(self):
        return decode_stamps((await self.store.get(KEYS.stamps(ME))).value)


@pytest.fixture
async def parts():
    disk, clock = MemoryDisk(), ManualClock()
    disk.make_directory("/d")
    store = Store(clock)
    parts = Parts(disk=disk, clock=clock, store=store, rng=SeededRng(1), told=[], nodes=[])
    yield parts
    for node in parts.nodes:
        node.stop()
    await store.close()


async def begun(parts):
    node = parts.node()
    await node.look_first()
    await node.begin()
    return node


async def turns(count=50):
    for _ in range(count):
        await asyncio.sleep(0)


def change(revision, nodes=(ME, OTHER)):
    state = PartitionState(nodes, nodes, nodes[0], LeaderEpoch(1), 1)
    topic_id = TopicId(b"0123456789abcdef")
    return MetadataDelta(revision, partitions=(PartitionChange("t", topic_id, 0, None, state),))


async def test_a_start_stamps_both_sides(parts):
    await begun(parts)
    assert [parts.remembered().stamp] == list(await parts.known())
    await begun(parts)
    assert await parts.known() == (parts.remembered().stamp, Stamp(1, (await parts.known())[1][1]))


async def test_changes_that_come_together_take_few_stamps(parts):
    node = await begun(parts)
    before = parts.store.commits
    for revision in range(100):
        node.apply(None, change(revision))
    await turns()
    assert parts.store.commits == before + 1
    node.apply(None, change(100, nodes=(OTHER, NodeId(3))))
    await turns()
    assert parts.store.commits == before + 1, "nothing of this node has changed"


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("error", [Ambiguous("?"), Unavailable("away")])
async def test_a_store_that_does_not_answer_is_stamped_later(parts, error, is_late):
    node = await begun(parts)
    before = parts.remembered()
    parts.store.failing, parts.store.is_late = error, is_late
    node.apply(None, change(7))
    await turns()
    assert parts.remembered() == before._replace(acted=7), "it is known without the store"
    parts.store.failing = None
    parts.clock.advance(RETRY_SECONDS)
    await turns()
    newest, previous = await parts.known()
    assert parts.remembered() == Remembered(newest)
    assert previous == before.stamp
    assert parts.told == []


async def test_a_store_behind_what_was_acted_on_unstamped_is_refused(parts):
    node = await begun(parts)
    parts.store.failing = Unavailable("away")
    node.apply(None, change(1000))
    await turns()
    node.stop()
    parts.store.failing = None
    with pytest.raises(LogDirectoryUnusable, match="has acted on revision 1000"):
        await parts.node().look_first()


async def test_a_start_on_an_older_store_is_refused_and_leaves_no_trace(parts):
    node = await begun(parts)
    older = encode_stamps(await parts.known())
    node.apply(None, change(1))
    await turns()
    node.stop()
    await parts.store.commit([], [Put(KEYS.stamps(ME), older)])
    remembered = parts.remembered()
    with pytest.raises(LogDirectoryUnusable, match=r"given\.up=an-id: what no other"):
        await parts.node().look_first()
    assert parts.remembered() == remembered
    assert parts.told == [], "it is no node that ends: it has not begun"


async def test_a_node_that_runs_notices_a_store_that_went_back_and_gives_up(parts):
    node = await begun(parts)
    await parts.store.commit([], [Put(KEYS.stamps(ME), encode_stamps((Stamp(1, "another"),)))])
    await node.look_again()
    assert len(parts.told) == 1
    with pytest.raises(LogDirectoryUnusable):
        await node.look()
    node.apply(None, change(9))
    await turns()
    assert len(parts.told) == 3, "nothing is stamped over it"
    assert (await parts.known())[0].token == "another"


async def test_looks_and_stamps_do_not_meet(parts):
    node = await begun(parts)
    for revision in range(20):
        node.apply(None, change(revision))
        await asyncio.gather(*(node.look() for _ in range(3)))
        await turns(revision)
    assert parts.told == []


async def test_a_start_on_a_full_disk_is_no_reason_not_to_serve(parts, monkeypatch):
    (await begun(parts)).stop()
    before = parts.remembered()

    def refuse(*_, **__):
        raise OSError(28, "no space")

    monkeypatch.setattr("ottla.node.lineage.write_lineage", refuse)
    node = await begun(parts)
    await turns()
    await node.look()
    assert parts.remembered() == before
    monkeypatch.undo()
    parts.clock.advance(RETRY_SECONDS)
    await turns()
    assert parts.remembered().stamp == (await parts.known())[0]


async def test_without_a_directory_nothing_passes_for_stamped(parts):
    node = await begun(parts)
    before = parts.remembered()
    (directory,) = node._logs.directories.values()
    directory.is_online = False
    node.apply(None, change(1))
    await turns()
    directory.is_online = True
    await parts.node().look_first()
    assert parts.remembered() == before
    assert (await parts.known())[1] == before.stamp


async def test_a_disk_that_takes_nothing_holds_up_no_change(parts, monkeypatch):
    node = await begun(parts)
    before = parts.remembered()

    def refuse(*_, **__):
        raise OSError(28, "no space")

    monkeypatch.setattr("ottla.node.lineage.write_lineage", refuse)
    node.apply(None, change(1))
    await turns()
    assert parts.remembered() == before
    assert (await parts.known())[1] == before.stamp
    await parts.node().look_first()
    monkeypatch.undo()
    parts.clock.advance(RETRY_SECONDS)
    await turns()
    assert parts.remembered().stamp == (await parts.known())[0]
