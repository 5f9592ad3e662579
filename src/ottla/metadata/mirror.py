"""Mirrors the entries under a prefix of the metadata store in a dict in memory.

Works with every store: it scans, then watches, and scans again when the history that the watch
needs was compacted. Owns the view and its revision; knows nothing of what keys mean.
Source: cluster design 4.1.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from ottla.env.clock import Clock, pause
from ottla.env.tasks import begin_task
from ottla.metadata.contests import Contests
from ottla.metadata.store import (
    ABSENT,
    Change,
    ChangeSet,
    Compacted,
    Delete,
    Entry,
    Guard,
    GuardFailed,
    MetadataStore,
    Op,
    Put,
    Unavailable,
)

OnChangeSet = Callable[[ChangeSet], None]

_RETRY_SECONDS = 0.5


class Mirror:
    """The entries under ``prefix``.

    ``on_change_set`` is called on the loop after each update of the view; the first change set is
    the whole first scan. After a compaction one change set holds the net difference, with the
    scan's revision.
    """

    def __init__(
        self,
        store: MetadataStore,
        prefix: str,
        clock: Clock,
        on_change_set: OnChangeSet | None = None,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._clock = clock
        self._on_change_set = on_change_set
        self._entries: dict[str, Entry] = {}
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self.contests = Contests(clock, self.catch_up)
        """Use: whoever changes what others may change meanwhile."""
        self.on_failed: Callable[[BaseException | None], None] = lambda _: None
        """Called once, on the loop, with the error that ended the mirror; the view stays."""
        self.revision = 0
        """The revision that the view shows. *Invariant:* never falls."""
        self.entries: Mapping[str, Entry] = MappingProxyType(self._entries)
        """The view itself, read-only; it changes only while the reader awaits something."""

    async def start(self) -> None:
        """Fill the view and follow the store. Raises what the first scan raises."""
        await self._rescan()
        self._task = begin_task(self._follow(), name="metadata mirror", ended=self._ended)

    def get(self, key: str) -> Entry | None:
        """Return the entry of ``key`` in the view, or None."""
        return self._entries.get(key)

    async def reached(self, revision: int) -> None:
        """Wait until the view has reached ``revision`` and ``on_change_set`` has been called.

        Raises the error that ended the mirror: Unavailable after ``close``.
        """
        if self.revision >= revision:
            return
        if self._error is not None:
            raise self._error
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((revision, waiter))
        await waiter

    async def catch_up(self) -> None:
        """Wait until the view has all that anybody committed before. Raises MetadataError."""
        await self.reached(await self._store.commit([], []))

    async def commit_as_seen(self, what: str, keys: Iterable[str], ops: Sequence[Op]) -> None:
        """Commit while ``keys`` are as the view has them, or absent as there; wait for the view.

        Tried again by what is there when others change them, too: see ``Contests.won``, also for
        ``what``. A commit that is carried out late, its answer lost, thus undoes no later one.
        Raises as ``MetadataStore.commit``, but not GuardFailed; KafkaError.
        """
        guarded = list(keys)

        async def attempt() -> int:
            return await self._store.commit([self._guard(key) for key in guarded], ops)

        await self.reached(await self.contests.won(what, attempt))

    def _guard(self, key: str) -> Guard:
        entry = self._entries.get(key)
        return Guard(key, mod_rev=ABSENT if entry is None else entry.mod_rev)

    async def update(self, key: str, change: "OnValue") -> Entry | None:
        """Change a key in the store; see the function ``update``. The view follows later."""
        return await update(self._store, key, change)

    async def close(self) -> None:
        """Stop following. The view stays as it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            try:
                async for change_set in self._store.watch(self._prefix, self.revision + 1):
                    self._apply(change_set)
            except Compacted:
                await self._rescan_until_available()
            except Unavailable:
                await pause(self._clock, _RETRY_SECONDS)

    async def _rescan_until_available(self) -> None:
        while True:
            try:
                await self._rescan()
            except Unavailable:
                await pause(self._clock, _RETRY_SECONDS)
            else:
                return

    async def _rescan(self) -> None:
        found, revision = await self._store.scan(self._prefix)
        keys = {entry.key for entry in found}
        changes = [Change(key, None) for key in self._entries if key not in keys]
        changes += [Change(e.key, e) for e in found if self._entries.get(e.key) != e]
        self._apply(ChangeSet(revision, tuple(changes)))

    def _apply(self, change_set: ChangeSet) -> None:
        for key, entry in change_set.changes:
            if entry is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = entry
        self.revision = change_set.rev
        if self._on_change_set is not None:
            self._on_change_set(change_set)
        self._wake()

    def _wake(self) -> None:
        if not self._waiters:
            return
        waiting = []
        for revision, waiter in self._waiters:
            if revision > self.revision:
                waiting.append((revision, waiter))
            elif not waiter.done():
                waiter.set_result(None)
        self._waiters = waiting

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._error = Unavailable("the metadata mirror is closed")
        else:
            # A fault of ours or of a listener: tell those who wait for a revision, and log it.
            self._error = task.exception()
            task.get_loop().call_exception_handler(
                {
                    "message": f"the metadata mirror of {self._prefix} ended",
                    "exception": self._error,
                    "task": task,
                }
            )
            self.on_failed(self._error)
        waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            if not waiter.done() and self._error is not None:
                waiter.set_exception(self._error)


OnValue = Callable[[bytes | None], bytes | None]
"""Takes a key's value (None: absent) and returns the wanted value (None: delete the key)."""


async def update(store: MetadataStore, key: str, change: OnValue) -> Entry | None:
    """Set the value of ``key`` to ``change(value)``, atomically; return its entry.

    ``change`` is called again when somebody else changed the key in between. If it returns the
    value unchanged nothing is committed. The key keeps its session. Raises what ``change`` raises,
    Unavailable, and Ambiguous: then the caller must read the key before it tries again.
    """
    while True:
        old = await store.get(key)
        old_value = None if old is None else old.value
        value = change(old_value)
        if value == old_value:
            return old
        session = 0 if old is None else old.session
        op: Op = Delete(key) if value is None else Put(key, value, session)
        try:
            revision = await store.commit([Guard(key, 0 if old is None else old.mod_rev)], [op])
        except GuardFailed:
            continue
        if value is None:
            return None
        return Entry(key, value, revision if old is None else old.create_rev, revision, session)
