"""Who waits for whom before nodes serve what the metadata does not know."""

import asyncio

import pytest

from ottla.cluster.copies import EPOCHS_LEFT_OUT, Copy, Held
from ottla.cluster.taking_in import TakingIn
from ottla.cluster.unsettled import Unsettled, mark
from ottla.env.clock import ManualClock
from ottla.env.rng import SeededRng
from ottla.ids import NodeId, TopicId
from ottla.metadata.keys import Keys
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Put
from ottla.metadata.values import decode_partition, encode_deleted
from ottla.supervision.errands import read_held, write_held
from ottla.supervision.settling import CannotSettle, Settling

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
ID = TopicId(b"i" * 16)
NOTHING = Held({})


def held(epoch=0, end=10, index=0, **more):
    return Held({"t": {index: Copy(ID, epoch, end, f"/d/t-{index}")}}, **more)


class Nodes:
    """Three nodes that say what they have; ``answered`` has who may serve."""

    def __init__(self, *, unsettled, lost=True):
        self.clock = ManualClock()
        self.store, self.keys = MemoryStore(self.clock), Keys("test")
        self.answered, self.failures = {}, []
        self._unsettled = unsettled
        self._lost = lost

    async def __aenter__(self):
        if self._unsettled:
            await self.store.commit([], [mark(self.keys, Unsettled.METADATA)])
        self.settling = Settling(
            TakingIn(self.store, self.keys, SeededRng(1), lambda _: None),
            (ONE, TWO, THREE),
            self.clock,
            is_unsettled=self._unsettled,
            is_lost=self._unsettled and self._lost,
            on_failed=self.failures.append,
        )
        return self

    async def __aexit__(self, *_):
        assert self.clock.timers() == 0
        await self.store.close()

    async def say(self, node, has):
        def answer(revision):
            self.answered[node] = revision

        self.settling.hear(node, has, answer)
        for _ in range(50):
            await asyncio.sleep(0)

    async def state(self, index=0):
        entry = await self.store.get(self.keys.partition(ID, index))
        return None if entry is None else decode_partition(entry.value)


@pytest.mark.parametrize("order", [(ONE, TWO, THREE), (THREE, TWO, ONE), (TWO, ONE, THREE)])
async def test_without_metadata_all_wait_for_the_last_and_the_newest_is_served(order):
    has = {ONE: held(3, 60), TWO: held(3, 540), THREE: NOTHING}
    async with Nodes(unsettled=True) as nodes:
        for node in order[:2]:
            await nodes.say(node, has[node])
            assert nodes.answered == {}
            assert await nodes.state() is None
        await nodes.say(order[2], has[order[2]])
        assert set(nodes.answered) == {ONE, TWO, THREE}
        state = await nodes.state()
        assert (state.replicas, state.isr, state.leader_epoch) == (
            (TWO, ONE),
            (TWO,),
            4 + EPOCHS_LEFT_OUT,
        )
        assert min(nodes.answered.values()) > 0
        assert await nodes.store.get(nodes.keys.unsettled) is None


async def test_with_metadata_nobody_waits_who_has_nothing_to_be_taken_in():
    async with Nodes(unsettled=False) as nodes:
        await nodes.say(ONE, NOTHING)
        assert nodes.answered == {ONE: 0}
        await nodes.say(TWO, held(1))
        assert TWO not in nodes.answered
        await nodes.say(THREE, held(2))
        assert set(nodes.answered) == {ONE, TWO, THREE}
        assert (await nodes.state()).leader == THREE


async def test_who_starts_again_beside_others_is_answered_at_once_and_replaces_nothing(caplog):
    async with Nodes(unsettled=True) as nodes:
        for node in (ONE, TWO):
            await nodes.say(node, held(1))
        await nodes.say(THREE, NOTHING)
        before = await nodes.state()
        nodes.answered.clear()
        await nodes.say(ONE, NOTHING)
        assert nodes.answered == {ONE: 0}
        caplog.clear()
        newer = EPOCHS_LEFT_OUT + 9
        more = held(9, index=1).copies["t"] | held(newer).copies["t"]
        await nodes.say(THREE, Held({"t": more}, ("/d2 (broken)",)))
        assert nodes.answered[THREE] > 0
        assert nodes.failures == []
        assert (await nodes.state(1)).replicas == (THREE,)
        assert await nodes.state() == before._replace(leader_epoch=newer + 1, partition_epoch=1)
        assert "t-0: a copy on node 1 is served; /d/t-0 stays as it is" in caplog.text


@pytest.mark.parametrize("has", [held(1), NOTHING])
async def test_nothing_is_served_without_metadata_while_something_cannot_be_read(has):
    async with Nodes(unsettled=True) as nodes:
        await nodes.say(ONE, has)
        await nodes.say(TWO, NOTHING)
        await nodes.say(THREE, Held({}, ("/d2/nodes/3 (Input/output error)",)))
        (failure,) = nodes.failures
        assert isinstance(failure, CannotSettle)
        assert "node 3: /d2/nodes/3 (Input/output error)" in failure.why
        assert "move it away" in failure.fix
        assert nodes.answered == {}
        assert await nodes.store.get(nodes.keys.unsettled) is not None


@pytest.mark.parametrize(("unsettled", "lost"), [(False, False), (True, False)])
async def test_a_broken_directory_is_no_reason_where_no_data_is_missing(unsettled, lost):
    async with Nodes(unsettled=unsettled, lost=lost) as nodes:
        for node in (ONE, TWO, THREE):
            await nodes.say(node, Held({}, ("/d2 (broken)",)))
        assert set(nodes.answered) == {ONE, TWO, THREE}
        assert nodes.failures == []


async def test_a_topic_that_is_deleted_while_its_copies_wait_does_not_come_back():
    async with Nodes(unsettled=False) as nodes:
        await nodes.say(ONE, NOTHING)
        await nodes.say(TWO, held(index=1))
        mark = Put(nodes.keys.deleted_topic(ID), encode_deleted("t", [ONE]))
        await nodes.store.commit([], [mark])
        await nodes.say(THREE, NOTHING)
        assert nodes.answered[TWO] == 0
        assert await nodes.state(1) is None
        assert await nodes.store.get(nodes.keys.topic("t")) is None


async def test_a_wait_is_told_and_told_again_with_who_is_missing(caplog):
    async with Nodes(unsettled=True) as nodes:
        await nodes.say(ONE, held())
        nodes.clock.advance(4.9)
        assert caplog.text == ""
        nodes.clock.advance(0.2)
        assert "node 1 waits to serve until nodes 2, 3 have opened their logs" in caplog.text
        await nodes.say(TWO, held())
        caplog.clear()
        nodes.clock.advance(30)
        assert "nodes 1, 2 wait to serve until node 3 has opened its logs" in caplog.text
        nodes.settling.stop()


async def test_nodes_without_data_beside_others_are_named_when_the_metadata_is_new(caplog):
    async with Nodes(unsettled=True) as nodes:
        for node, has in ((ONE, held()), (TWO, NOTHING), (THREE, NOTHING)):
            await nodes.say(node, has)
        assert "nodes 2, 3 have no copy of any partition" in caplog.text


def test_what_a_node_has_arrives_as_it_was():
    said = Held(
        {"t": {0: Copy(ID, 3, 60, "/d/t-0"), 7: Copy(None, -1, 0, "/d/t-7")}, "ü": {}}, ("/d2",)
    )
    body = write_held(said).encode(0)
    assert read_held(memoryview(body)) == said
