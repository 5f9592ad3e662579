"""What a full disk has no space for is led by others: who hears of it first, and for how long."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.env.clock import ManualClock
from ottla.metadata.store import Unavailable
from ottla.replication.relief import (
    AGAIN_SECONDS,
    AGAIN_SECONDS_MAX,
    HELD_SECONDS,
    SETTLES_SECONDS,
    Relief,
)


class Node:
    """Two log directories, a partition in each that this node leads, and a third one it follows."""

    def __init__(self):
        self.clock = ManualClock()
        self.directories = {
            path: SimpleNamespace(path=path, is_online=True, is_full=False) for path in ("/a", "/b")
        }
        self.manager = SimpleNamespace(listeners=[], directories=self.directories)
        self.partitions = [
            self.partition("/a/t-0"),
            self.partition("/b/t-1"),
            self.partition("/a/t-2", is_leader=False),
        ]
        self.done = []
        """What was told (a truth) and given away (a list of logs), in order."""
        self.is_member = True
        self.others_have_space = True
        self.relief = None

    def partition(self, directory, *, is_leader=True):
        log = SimpleNamespace(directory=directory)
        return SimpleNamespace(is_leader=is_leader, is_failed=False, log=log)

    def begin(self):
        self.relief = Relief(
            self.manager, lambda: self.partitions, self.tell, self.hand_over, self.clock
        )

    async def tell(self, is_full):
        self.done.append(is_full)
        if self.is_member is None:
            raise Unavailable("the store is away")
        return 7 if self.is_member else None

    async def hand_over(self, partitions):
        partitions = list(partitions)
        self.done.append([each.log.directory for each in partitions])
        for each in partitions if self.others_have_space else ():
            each.is_leader = False
        return len(partitions) if self.others_have_space else 0

    def set_full(self, path, *, is_full=True):
        self.directories[path].is_full = is_full
        for listener in self.manager.listeners:
            listener(self.directories[path])

    async def pass_seconds(self, seconds):
        """Let time pass; return what was done meanwhile."""
        before = len(self.done)
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return self.done[before:]


@pytest.fixture
async def node():
    node = Node()
    yield node
    if node.relief is not None:
        node.relief.stop()
    await asyncio.sleep(0)


def given(done):
    return [each for each in done if each not in (True, False, [])]


async def test_others_hear_of_it_before_they_get_what_is_in_the_full_directory(node):
    node.begin()
    assert await node.pass_seconds(5) == []
    node.set_full("/a")
    assert await node.pass_seconds(SETTLES_SECONDS - 0.2) == [True], "all may be full"
    done = await node.pass_seconds(AGAIN_SECONDS_MAX)
    assert done[0] == ["/a/t-0"]
    assert given(done) == [["/a/t-0"]]


async def test_a_node_that_starts_on_a_full_disk_tells_when_it_is_a_member(node):
    node.directories["/b"].is_full, node.is_member = True, False
    node.begin()
    done = await node.pass_seconds(5)
    assert {*done} == {True}, "nothing is given away before others know"
    node.is_member = True
    assert given(await node.pass_seconds(AGAIN_SECONDS_MAX + 1)) == [["/b/t-1"]]


async def test_others_are_told_again_while_the_store_is_away(node):
    node.begin()
    node.is_member = None
    node.set_full("/a")
    assert {*await node.pass_seconds(5)} == {True}
    node.is_member = True
    assert given(await node.pass_seconds(AGAIN_SECONDS_MAX + 1)) == [["/a/t-0"]]


async def test_what_nobody_else_has_space_for_is_tried_less_and_less_often(node):
    node.others_have_space = False
    node.begin()
    node.set_full("/a")
    await node.pass_seconds(20)
    done = await node.pass_seconds(10 * AGAIN_SECONDS_MAX)
    assert done == [["/a/t-0"]] * 10


async def test_a_directory_whose_space_comes_and_goes_stays_full_for_the_others(node):
    """Else two such nodes would give the lead to each other for ever."""
    node.begin()
    for _ in range(5):
        node.set_full("/a")
        await node.pass_seconds(1)
        node.set_full("/a", is_full=False)
        await node.pass_seconds(2)
    assert [each for each in node.done if each in (True, False)] == [True]
    assert given(node.done) == [["/a/t-0"]]
    done = await node.pass_seconds(HELD_SECONDS + AGAIN_SECONDS_MAX)
    assert done[-1] is False
    assert await node.pass_seconds(10) == [], "it looks no more"
    node.partitions[0].is_leader = True
    node.set_full("/a")
    done = await node.pass_seconds(SETTLES_SECONDS + AGAIN_SECONDS)
    assert done[0] is True
    assert given(done) == [["/a/t-0"]]


async def test_a_directory_that_fails_is_no_full_one(node):
    node.begin()
    node.set_full("/a")
    await node.pass_seconds(0.5)
    node.directories["/a"].is_online = False
    node.set_full("/a")
    done = await node.pass_seconds(5)
    assert given(done) == []
    assert done[-1] is False


async def test_a_stop_ends_it(node):
    node.begin()
    node.set_full("/a")
    await node.pass_seconds(0.5)
    node.relief.stop()
    node.set_full("/b")
    assert await node.pass_seconds(5) == []
