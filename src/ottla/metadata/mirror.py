"""A prefix of the metadata store as a dict in memory that keeps itself up to date.

Built once on top of every store: scan, then watch; scan again when the watch's history was
compacted. Owns the view and its revision; knows nothing of what keys mean.
Source: cluster design 4.1.
"""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

from ottla.env.clock import Clock
from ottla.env.tasks import begin_task
from ottla.metadata.store import (
    Batch,
    Change,
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

OnBatch = Callable[[Batch], None]

_RETRY_SECONDS = 0.5


class Mirror:
    """The entries under ``prefix``.

    ``on_batch`` is called on the loop after each step of the view; the first batch is the whole
    first scan. After a compaction one batch holds the net difference, with the scan's revision.
    """

    def __init__(
        self, store: MetadataStore, prefix: str, clock: Clock, on_batch: OnBatch | None = None
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._clock = clock
        self._on_batch = on_batch
        self._entries: dict[str, Entry] = {}
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self.on_failed: Callable[[BaseException | None], None] = lambda _: None
        """Called once, on the loop, with the fault that ended the mirror; the view stays."""
        self.revision = 0
        """The view is as of this revision. *Invariant:* never goes back."""
        self.entries: Mapping[str, Entry] = MappingProxyType(self._entries)
        """The live view, read-only; changes between awaits only."""

    async def start(self) -> None:
        """Fill the view and follow the store. Raises what the first scan raises."""
        await self._rescan()
        self._task = begin_task(self._follow(), name="metadata mirror", ended=self._ended)

    def get(self, key: str) -> Entry | None:
        """Return the entry of ``key`` in the view, or None."""
        return self._entries.get(key)

    async def reached(self, revision: int) -> None:
        """Wait until the view (and ``on_batch``) has seen ``revision``.

        Raises what ended the mirror: Unavailable after ``close``.
        """
        if self.revision >= revision:
            return
        if self._error is not None:
            raise self._error
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((revision, waiter))
        await waiter

    async def update(self, key: str, change: "OnValue") -> Entry | None:
        """Compare and swap on the store; see the function ``update``. The view follows later."""
        return await update(self._store, key, change)

    async def close(self) -> None:
        """Stop following. The view stays as it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            try:
                async for batch in self._store.watch(self._prefix, self.revision + 1):
                    self._apply(batch)
            except Compacted:
                await self._rescan_until_available()
            except Unavailable:
                await self._pause()

    async def _rescan_until_available(self) -> None:
        while True:
            try:
                await self._rescan()
            except Unavailable:
                await self._pause()
            else:
                return

    async def _rescan(self) -> None:
        found, revision = await self._store.scan(self._prefix)
        keys = {entry.key for entry in found}
        changes = [Change(key, None) for key in self._entries if key not in keys]
        changes += [Change(e.key, e) for e in found if self._entries.get(e.key) != e]
        self._apply(Batch(revision, tuple(changes)))

    def _apply(self, batch: Batch) -> None:
        for key, entry in batch.changes:
            if entry is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = entry
        self.revision = batch.rev
        if self._on_batch is not None:
            self._on_batch(batch)
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

    async def _pause(self) -> None:
        over = asyncio.Event()
        timer = self._clock.call_later(_RETRY_SECONDS, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._error = Unavailable("the metadata mirror is closed")
        else:
            # A fault of ours or of a listener: whoever waits must hear of it, and so must the log.
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
"""Takes a key's value (None: absent), returns the wanted one (None: delete)."""


async def update(store: MetadataStore, key: str, change: OnValue) -> Entry | None:
    """Bring the value of ``key`` to ``change(value)`` by compare and swap; return its entry.

    ``change`` is called again whenever somebody else was faster; returning the same value commits
    nothing. The key keeps its session. Raises what ``change`` raises, Unavailable, and Ambiguous:
    then the caller must look whether its change is there before asking again.
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
