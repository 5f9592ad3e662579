"""A metadata store in memory, and a node that follows it."""

from types import SimpleNamespace

import pytest

from ottla.env.clock import ManualClock
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.memory_store import MemoryStore


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
    """``store``, ``keys``, ``follower`` and its ``image``."""
    store, keys = TroubledStore(ManualClock()), Keys("test")
    follower = ImageFollower(store, keys, ManualClock())
    await follower.start()
    yield SimpleNamespace(store=store, keys=keys, follower=follower, image=follower.image)
    await follower.close()
    await store.close()
