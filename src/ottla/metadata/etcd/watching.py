"""A watch of etcd: every change under a prefix, whole revisions in order, over broken connections.

A stream that breaks is opened again, at any member, behind the last revision that was seen. While
nothing comes although something was committed elsewhere, and now and then, the watch proves how far
it is: nothing under the prefix is newer, and there are as many keys as there were. (etcd has a
request for that, but before 3.4.25 its answer may overtake changes.) A stream that does not bring
what there is counts as broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from itertools import groupby

from ottla.env.tasks import begin_task
from ottla.metadata.etcd import wire
from ottla.metadata.etcd.members import Members, Refused, Stream
from ottla.metadata.etcd.revisions import change_of, etcds, ours
from ottla.metadata.store import ChangeSet, Compacted, Unavailable

IDLE_SECONDS = 0.1
"""How long changes may take to come before the watch asks whether there are any."""
QUIET_SECONDS = 5.0
"""When nothing has come for so long, and nobody waits, it is looked whether nothing was to come."""
STALLED_PROOFS = 30
"""So many times in a row there were changes that did not come: the stream is opened anew."""
RETRY_SECONDS = 0.1
CHANGES_PER_TURN = 500
"""Read and told before the loop gets its turn: one answer may tell a thousand revisions."""
_CLOSED = "the metadata store is closed"


class Watching:
    """One watch, from revision ``from_rev`` (the store's) on."""

    def __init__(
        self,
        members: Members,
        prefix: str,
        from_rev: int,
        *,
        told: int,
        check: Callable[[int], Awaitable[None]],
    ) -> None:
        """``told``: the highest revision that somebody may wait for.

        ``check``: called with the revision that was seen when a stream is opened again; raises
        Unavailable if etcd is not there yet, or any more.
        """
        self._members = members
        self._check = check
        self._prefix = prefix.encode()
        self._seen = from_rev - 1
        """The revision up to which everything was told. *Invariant:* never falls."""
        self._told = told
        self._news = asyncio.Event()
        """Use: set when ``_told`` has risen, or the watch is closed."""
        self._closed = ""
        """Why the watch has ended; empty: it has not."""
        self._opened = AsyncExitStack()
        self._was_open = False
        self._stream: Stream | None = None
        self._reading: asyncio.Task[bytes] | None = None
        self._is_due = False
        """Use: whether it is to be proved how far the watch is, for nothing came."""
        self._stalled = 0
        """Use: how many proofs in a row have found changes that do not come."""
        self._pending: Iterator[ChangeSet] = iter(())
        """Use: what the last answer has told and ``next`` has not returned yet."""

    def told(self, revision: int) -> None:
        """Note that somebody may wait until the watch is at ``revision``."""
        if revision > self._told:
            self._told = revision
            self._news.set()

    def close(self, why: str = _CLOSED) -> None:
        """Let ``next`` raise Unavailable."""
        self._closed = self._closed or why
        self._news.set()

    async def next(self) -> list[ChangeSet]:
        """Return the next change sets, at least one. Raises Compacted, Unavailable."""
        while True:
            if found := self._some_of_pending():
                return found
            try:
                found = await self._next()
            except Refused as error:
                raise self._refused(error) from error
            except Unavailable:
                if self._closed:
                    raise Unavailable(self._closed) from None
                await self._lose_stream()
                await self._pause()
                continue
            if found:
                return found

    async def end(self) -> None:
        """Give the stream back."""
        self._closed = self._closed or _CLOSED
        await self._lose_stream()

    async def _next(self) -> list[ChangeSet]:
        """Return what comes next; nothing: ask again."""
        if self._closed:
            raise Unavailable(self._closed)
        if self._stream is None:
            if self._was_open:
                await self._check(self._seen)
            self._was_open = True
            self._stalled = 0
            self._stream = await self._opened.enter_async_context(self._members.stream("Watch"))
            # From what was seen last, which is left out again. When history is forgotten up to the
            # very revision that is asked for, some versions of etcd lose that one's deletions.
            await self._stream.write(wire.watch(self._prefix, etcds(self._seen)))
        if self._reading is None:
            self._reading = begin_task(
                self._stream.read(), name="watch etcd", ended=lambda _: self._news.set()
            )
        if not await self._has_come(self._reading):
            return await self._prove() if self._is_due and not self._closed else []
        if self._closed:
            raise Unavailable(self._closed)
        reading, self._reading, self._stalled = self._reading, None, 0
        watched = wire.read_watched(reading.result())
        if watched.is_canceled:
            if watched.compacted:
                raise Compacted(self._seen + 1)
            raise Unavailable(f"etcd has ended a watch: {watched.reason}")
        self._pending = self._change_sets(watched)
        return []

    def _some_of_pending(self) -> list[ChangeSet]:
        """Return some change sets of the last answer; none: it has no more."""
        found: list[ChangeSet] = []
        changes = 0
        for change_set in self._pending:
            found.append(change_set)
            changes += len(change_set.changes)
            if changes >= CHANGES_PER_TURN:
                break
        return found

    async def _has_come(self, reading: asyncio.Task[bytes]) -> bool:
        """Wait for an answer; False: none came, and there is another thing to do."""
        self._news.clear()
        self._is_due = self._told > self._seen
        if self._closed:
            return False
        if self._is_due:
            done, _ = await asyncio.wait((reading,), timeout=IDLE_SECONDS)
            return bool(done)
        if not reading.done():
            self._is_due = not await self._news_within(QUIET_SECONDS)
        return reading.done()

    async def _news_within(self, seconds: float) -> bool:
        """Wait for news; False: there was none for so long.

        Not by ``wait_for``: that of Python 3.11 goes on when it is cancelled just as news come, and
        at a stop both happen at once.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
                return True
        return False

    def _change_sets(self, watched: wire.Watched) -> Iterator[ChangeSet]:
        told = map(wire.read_event, watched.events)
        by_revision = groupby(told, key=lambda event: event.kv.mod_revision)
        for revision, events in by_revision:
            rev = ours(revision)
            if rev > self._seen:  # Else it came and went before the watch was proved to be here.
                self._seen = rev
                yield ChangeSet(rev, tuple(map(change_of, events)))

    async def _prove(self) -> list[ChangeSet]:
        """Return how far the watch is if that can be proved, else nothing."""
        seen, prefix = etcds(self._seen), self._prefix
        answer = await self._members.call_again(
            "Txn",
            wire.transaction(
                (),
                [
                    wire.op_range(wire.newer(prefix, seen)),
                    wire.op_range(wire.count(prefix)),
                    wire.op_range(wire.count(prefix, revision=seen)),
                ],
            ),
        )
        done = wire.read_transaction(answer)
        newer, now, then = done.ranges
        rev = ours(done.revision)
        is_done = self._reading is not None and self._reading.done()
        if newer.found:
            self._stalled += 1
            self.told(rev)
        if self._stalled > STALLED_PROOFS and not is_done:
            raise Unavailable("a stream of etcd tells nothing of what has changed")
        if is_done or newer.found or now.counted != then.counted or rev <= self._seen:
            return []
        self._seen = rev
        return [ChangeSet(rev, ())]

    def _refused(self, error: Refused) -> Exception:
        if error.is_out_of_range or error.is_too_large:  # The proof's revision, or a large batch.
            return Compacted(self._seen + 1)
        return Unavailable(f"etcd refuses a watch: {error}")

    async def _lose_stream(self) -> None:
        reading, self._reading, self._stream = self._reading, None, None
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        await self._opened.aclose()

    async def _pause(self) -> None:
        """Wait before the next attempt, unless the watch is closed."""
        self._news.clear()
        if not self._closed:
            await self._news_within(RETRY_SECONDS)
