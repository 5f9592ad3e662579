"""The metadata store of the world: entries that are durable, and a node's way to them.

A commit is applied at some moment between its question and its answer; a node that ends in between
does not know. Sessions die with their node, as those of the embedded store do: their keys are gone
before the next life reads anything.
"""

import asyncio

from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Ambiguous, Unavailable

LONGEST_SECONDS = 3.0
"""However slow it is: what waits for it goes on soon after it is well again."""


class SimulatedStore:
    """One life's connection to a MemoryStore of the world."""

    def __init__(self, inner, *, loop, rng, trace, trouble, seconds):
        self._inner = inner
        self._loop = loop
        self._rng = rng
        self._trace = trace
        self._trouble = trouble
        self._seconds = seconds
        self._sessions = []
        self._line = asyncio.Lock()
        self._is_closed = False
        self.on_broken = None
        """Called with the reason when a commit has failed: nothing works from then on."""
        self.is_broken = False

    async def _wait(self):
        if self._is_closed or self.is_broken:
            raise Unavailable("the metadata store is out of use")
        seconds = self._rng.expovariate(1 / self._seconds) * self._trouble.store_pace
        await asyncio.sleep(min(seconds, LONGEST_SECONDS))

    def _break(self):
        """Fail as a file does whose sync failed; half of the time the commit holds."""
        self._trouble.store_fails = False
        self._trouble.happened()
        self.is_broken = True
        self._trace.note("store", "broken")
        self._loop.call_soon(self.on_broken, "I/O error while committing")
        raise Ambiguous("I/O error while committing")

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
            fails = self._trouble.store_fails
            if fails and self._rng.random() < 0.5:
                self._break()
            revision = await self._inner.commit(guards, ops)
            self._trace.note("commit", revision, *(f"{type(op).__name__}:{op.key}" for op in ops))
            if fails:
                self._break()
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
