"""Until when a node counts on what it has heard, while it is asked for, late, and away."""

import asyncio
import math

import pytest

from ottla.cluster.hearing import LOOKS, Hearing
from ottla.env.clock import ManualClock
from ottla.metadata.store import Unavailable

PATIENCE = 8.0


class Node:
    def __init__(self):
        self.clock = ManualClock()
        self.registered_until = math.inf
        self.late = None
        self.error = None
        self.asked = 0
        self.hearing = Hearing(
            self.catch_up,
            lambda: self.registered_until,
            self.clock,
            patience_seconds=PATIENCE,
        )

    async def catch_up(self):
        self.asked += 1
        if self.error is not None:
            raise self.error
        if self.late is not None:
            await self.late.wait()

    async def pass_seconds(self, seconds):
        for _ in range(int(seconds * 10)):
            self.clock.advance(0.1)
            for _ in range(5):
                await asyncio.sleep(0)

    @property
    def is_certain(self):
        return self.clock.monotonic() <= self.hearing.certain_until()


@pytest.fixture
async def node():
    node = Node()
    yield node
    node.hearing.stop()


async def test_who_hears_of_all_counts_on_it_and_nobody_is_asked_before(node):
    await node.pass_seconds(3 * PATIENCE)
    assert not node.asked
    assert node.is_certain
    await node.pass_seconds(3 * PATIENCE)
    assert node.is_certain
    assert 3 * LOOKS <= node.asked <= 3 * LOOKS + 1


async def test_who_hears_late_is_in_doubt_before_others_go_on_without_him(node):
    assert node.is_certain
    await node.pass_seconds(PATIENCE)
    node.late = asyncio.Event()
    await node.pass_seconds(PATIENCE / 2)
    assert node.is_certain
    await node.pass_seconds(PATIENCE / 2 + 0.5)
    assert not node.is_certain
    node.late.set()
    node.late = None
    await node.pass_seconds(PATIENCE / 2)
    assert node.is_certain


async def test_a_store_that_does_not_answer_is_asked_again(node, caplog):
    assert node.is_certain
    node.error = Unavailable("gone")
    await node.pass_seconds(2 * PATIENCE)
    assert not node.is_certain
    node.error = None
    await node.pass_seconds(PATIENCE / 2)
    assert node.is_certain
    assert not caplog.records


async def test_it_is_never_more_certain_than_the_registration(node):
    node.registered_until = 1.0
    assert node.hearing.certain_until() == 1.0


async def test_who_has_stopped_asks_no_more(node):
    node.hearing.stop()
    node.hearing.certain_until()
    await node.pass_seconds(PATIENCE)
    assert not node.asked
