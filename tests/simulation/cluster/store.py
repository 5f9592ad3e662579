"""One metadata store for all machines: as the supervisor serves it, over a link for each of them.

The entries are in one place, where nothing is lost. A link has a delay, can be cut (what was asked
is done or not, and nobody hears of it before the cut ends), and may lose the answer of a commit.
Sessions are renewed over it; one that was not renewed for its time ends there, and the node hears
of that later. When a process ends, its sessions end at once.
"""

import asyncio

from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Ambiguous, SessionState
from tests.simulation.loop import Life
from tests.simulation.store import SimulatedStore

RENEWALS_PER_TTL = 3


class StoreClock:
    """The clock port of the store's own process, which never stands."""

    def __init__(self, loop, life):
        self._loop = loop
        self._life = life

    def wall_ms(self):
        return int(self._loop.now * 1000)

    def monotonic(self):
        return self._loop.now

    def thread_cpu(self):
        return self._loop.now

    def call_later(self, delay_seconds, callback):
        return self._loop.call_for(self._life, delay_seconds, callback)


class SharedEntries:
    """What all nodes share."""

    def __init__(self, loop):
        self.loop = loop
        self.life = Life("store")
        self.inner = MemoryStore(StoreClock(loop, self.life))


class StoreLink:
    """The way between one machine and the store."""

    def __init__(self, loop, rng):
        self.loop = loop
        self.rng = rng
        self.is_cut = False
        self.ambiguous_chance = 0.0
        """Of a commit, that its answer says that nobody knows what came of it."""
        self.is_late = False
        """Whether the node hears of nothing that is committed, though all else goes its way."""
        self._held = []
        self._waiting = []

    def delay(self):
        return self.rng.expovariate(1 / 0.001)

    def cut(self):
        self.is_cut = True

    def mend(self):
        """End the cut: what was held goes its way."""
        self.is_cut = self.is_late = False
        held, self._held = self._held, []
        for life, call in held:
            self.send(life, call)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def send(self, life, call):
        """Let ``call()`` happen in a life at the other end."""
        if self.is_cut:
            self._held.append((life, call))
        else:
            self.loop.call_for(life, self.delay(), call)

    async def passed(self):
        """Wait until the link is there."""
        while self.is_cut:
            await self._mended()

    async def told(self):
        """Wait until the node is told again of what is committed."""
        while self.is_cut or self.is_late:
            await self._mended()

    async def _mended(self):
        future = self.loop.create_future()
        self._waiting.append(future)
        await future


class KeptSession:
    """A session that the store holds for a node as long as it hears from it in time."""

    def __init__(self, link, life, store_life, ttl_seconds, on_state):
        self._link = link
        self._life = life
        self._store_life = store_life
        self._ttl_seconds = ttl_seconds
        self._on_state = on_state
        self._is_alive = True
        self.inner = None
        self.certain_until = link.loop.now + ttl_seconds
        """By the sending of the last renewal that was answered."""
        self._timer = link.loop.call_later(ttl_seconds / RENEWALS_PER_TTL, self._renew)

    @property
    def id(self):
        return self.inner.id

    def heard(self, state):
        """Be told by the store."""
        if state is SessionState.LOST:
            self._link.send(self._life, self.ended)

    def ended(self):
        if self._is_alive:
            self._is_alive = False
            self._timer.cancel()
            self._on_state(SessionState.LOST)

    async def close(self):
        if self._is_alive and not self._life.is_dead:  # The dead ask for nothing.
            await self._link.passed()
            await self.inner.close()
            self.ended()

    def _renew(self):
        sent_at = self._link.loop.now
        self._link.send(self._store_life, lambda: self._renewed(sent_at))
        self._timer = self._link.loop.call_later(self._ttl_seconds / RENEWALS_PER_TTL, self._renew)

    def _renewed(self, sent_at):
        """Be renewed, at the store."""
        if self.inner is not None and self.inner._alive:
            self.inner.renew()
            self.inner.abandon()
            self._link.send(self._life, lambda: self._answered(sent_at))

    def _answered(self, sent_at):
        self.certain_until = max(self.certain_until, sent_at + self._ttl_seconds)


class LinkedStore(SimulatedStore):
    """One life's way to the shared entries."""

    def __init__(self, shared, link, life, **ports):
        super().__init__(shared.inner, loop=shared.loop, **ports)
        self._shared = shared
        self._link = link
        self._life = life

    async def _wait(self):
        await super()._wait()
        await self._link.passed()

    async def commit(self, guards, ops):
        revision = await super().commit(guards, ops)
        if self._link.ambiguous_chance and self._rng.random() < self._link.ambiguous_chance:
            self._trace.note("store", "ambiguous", revision)
            raise Ambiguous("the answer of the commit was lost")
        return revision

    async def watch(self, prefix, from_rev):
        """Yield what is committed, some time later."""
        async for change_set in self._inner.watch(prefix, from_rev):
            await asyncio.sleep(self._link.delay())
            await self._link.told()
            yield change_set

    async def session(self, ttl_seconds, on_state):
        session = KeptSession(self._link, self._life, self._shared.life, ttl_seconds, on_state)
        await self._wait()
        session.inner = await self._inner.session(ttl_seconds, session.heard)
        session.inner.abandon()
        self._sessions.append(session.inner)
        on_state(SessionState.CONNECTED)
        return session
