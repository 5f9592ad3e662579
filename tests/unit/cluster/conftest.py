"""A metadata store in memory, and a node that follows it."""

from types import SimpleNamespace

import pytest

from ottla.env.clock import ManualClock
from ottla.metadata import contests
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.memory_store import MemoryStore


@pytest.fixture
def pauses_pass(monkeypatch):
    """Who pauses between two attempts has the clock go on."""

    async def passes(clock, seconds):
        clock.advance(seconds)

    monkeypatch.setattr(contests, "pause", passes)


class TroubledStore(MemoryStore):
    """A store that does something to the next change: ``before`` runs first, and may raise."""

    before = None

    async def commit(self, guards, ops):
        before = self.before
        if before is not None and ops:
            self.before = None
            await before(super().commit)
        return await super().commit(guards, ops)


@pytest.fixture
async def following():
    """``store``, ``keys``, ``follower``, its ``image`` and its ``clock``."""
    clock = ManualClock()
    store, keys = TroubledStore(ManualClock()), Keys("test")
    follower = ImageFollower(store, keys, clock)
    await follower.start()
    yield SimpleNamespace(
        store=store, keys=keys, follower=follower, image=follower.image, clock=clock
    )
    await follower.close()
    await store.close()
