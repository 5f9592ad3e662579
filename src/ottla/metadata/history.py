"""The newest commits in memory, and the watchers that wait for the next one.

Shared by the stores that live in this process. Owns no keys and no files: a store appends each
batch once it counts as committed, in order of revision. Bounded in number and bytes: what falls out
at the old end is compacted, for slow watchers too, so that nobody's pace costs memory.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import islice

from ottla.metadata.store import Batch, Compacted, Unavailable, under

HISTORY_REVISIONS = 10_000
"""Commits kept for watches that resume, unless a store is told otherwise."""
HISTORY_BYTES = 16 * 1024 * 1024
"""Bytes of commits kept: each commit may hold a hundred values of a MiB."""
CHANGE_BYTES = 256
"""What a change takes in memory besides its key and its value."""

_PAGE_BATCHES = 500


def size_of(batch: Batch) -> int:
    """Return about how many bytes a batch takes in memory."""
    size_bytes = 0
    for key, entry in batch.changes:
        size_bytes += CHANGE_BYTES + len(key) + (0 if entry is None else len(entry.value))
    return size_bytes


class Retention:
    """Decides which commits are kept, by count and bytes; the newest always is."""

    def __init__(self, revisions_max: int, bytes_max: int) -> None:
        self._revisions_max = revisions_max
        self._bytes_max = bytes_max
        self._sizes: deque[int] = deque()
        self._size_bytes = 0
        """Invariant: the sum of ``_sizes``, of the commits that are kept."""

    def dropped_by(self, size_bytes: int) -> int:
        """Return how many of the oldest go when one of ``size_bytes`` comes. Changes nothing."""
        count, left = 0, self._size_bytes + size_bytes
        for oldest in self._sizes:
            kept = len(self._sizes) + 1 - count
            if kept <= self._revisions_max and left <= self._bytes_max:
                break
            left -= oldest
            count += 1
        return count

    def load(self, size_bytes: int) -> None:
        """Count a commit that exists already; the next ``take`` drops what exceeds the bounds."""
        self._sizes.append(size_bytes)
        self._size_bytes += size_bytes

    def add(self, size_bytes: int) -> int:
        """Take the next commit; return how many of the oldest go."""
        dropped = self.dropped_by(size_bytes)
        for _ in range(dropped):
            self._size_bytes -= self._sizes.popleft()
        self.load(size_bytes)
        return dropped


class History:
    """Batches ``(first_rev .. revision)`` without a gap."""

    def __init__(self, revision: int, limit: int, *, bytes_max: int = HISTORY_BYTES) -> None:
        self._batches: deque[Batch] = deque()
        self._retention = Retention(limit, bytes_max)
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False
        self.revision = revision
        """The newest revision. *Use:* where watches stand. *Invariant:* rises by one per batch."""

    @property
    def first_rev(self) -> int:
        """The oldest revision held; ``revision + 1`` when none is."""
        return self.revision - len(self._batches) + 1

    def append(self, batch: Batch) -> None:
        """Take the next commit and wake the watchers."""
        assert batch.rev == self.revision + 1, f"revision {batch.rev} follows {self.revision}"
        self.revision = batch.rev
        self._batches.append(batch)
        for _ in range(self._retention.add(size_of(batch))):
            self._batches.popleft()
        self._wake()

    def since(self, from_rev: int) -> list[Batch]:
        """Return some batches from ``from_rev`` on, oldest first; none when it is in the future.

        ``from_rev`` must not be below ``first_rev``.
        """
        start = from_rev - self.first_rev
        return list(islice(self._batches, start, start + _PAGE_BATCHES))

    async def next(self, after_rev: int) -> None:
        """Wait until ``revision`` is above ``after_rev``. Raises Unavailable when closed."""
        while self.revision <= after_rev:
            if self._closed:
                raise Unavailable("the metadata store is closed")
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """End the watches once they have seen what is there."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


async def follow(
    history: History,
    prefix: str,
    from_rev: int,
    older: Callable[[int], Awaitable[list[Batch]]] | None = None,
) -> AsyncIterator[Batch]:
    """Yield the batches of ``MetadataStore.watch``.

    ``older(rev)`` reads batches from ``rev`` on that ``history`` no longer holds; it returns none
    when they are compacted. None: there is no such place.
    """
    if from_rev < 1:
        raise ValueError(f"revisions start at 1, not {from_rev}")
    next_rev = from_rev
    while True:
        await history.next(next_rev - 1)
        if next_rev >= history.first_rev:
            batches = history.since(next_rev)
        else:
            batches = await older(next_rev) if older is not None else []
            if not batches or batches[0].rev != next_rev:
                raise Compacted(next_rev)
        seen_rev = batches[-1].rev
        for batch in batches:
            mine = under(prefix, batch)
            if mine.changes or batch.rev == seen_rev:
                yield mine
        next_rev = seen_rev + 1
