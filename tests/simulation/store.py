"""The metadata store of the world: entries that are durable, and a node's way to them.

A commit is applied at some moment between its question and its answer; a node that ends in between
does not know. Sessions die with their node, as those of the embedded store do: their keys are gone
before the next life reads anything.
"""

import asyncio

from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Unavailable


class SimulatedStore:
    """One life's connection to a MemoryStore of the world."""

    def __init__(self, inner, *, loop, rng, trace, seconds):
        self._inner = inner
        self._loop = loop
        self._rng = rng
        self._trace = trace
        self._seconds = seconds
        self._sessions = []
        self._line = asyncio.Lock()
        self._is_closed = False

    async def _wait(self):
        if self._is_closed:
            raise Unavailable("the metadata store is closed")
        await asyncio.sleep(self._rng.expovariate(1 / self._seconds))

    async def get(self, key):
        async with self._line:
            await self._wait()
            return await self._inner.get(key)

    async def scan(self, prefix):
        async with self._line:
            await self._wait()
            return await self._inner.scan(prefix)

    async def commit(self, guards, ops):
        async with self._line:
            await self._wait()
            revision = await self._inner.commit(guards, ops)
            self._trace.note("commit", revision, *(f"{type(op).__name__}:{op.key}" for op in ops))
            await self._wait()
            return revision

    def watch(self, prefix, from_rev):
        return self._inner.watch(prefix, from_rev)

    async def session(self, ttl_seconds, on_state):
        session = await self._inner.session(ttl_seconds, on_state)
        self._sessions.append(session)
        return session

    async def close(self):
        self._is_closed = True

    async def end_sessions(self):
        """The process has ended: nobody renews its sessions."""
        for session in self._sessions:
            session._on_state = _ignore
            await session.close()
        self._sessions.clear()


def _ignore(_):
    pass


def new_store(clock):
    """Return the world's entries, empty."""
    return MemoryStore(clock)
