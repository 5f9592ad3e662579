"""Keeps the newest change sets of a store in memory, and wakes the watchers at each new one.

Both stores that live in this process use it. Owns no keys and no files: a store appends each change
set when it counts as committed, in order of revision. Limited in number and bytes. The oldest are
dropped (compacted) although a slow watcher still needs them, so no watcher costs memory.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import islice

from ottla.metadata.store import ChangeSet, Compacted, Unavailable, under

HISTORY_REVISIONS = 10_000
"""How many change sets are kept for watches that resume, by default."""
HISTORY_BYTES = 16 * 1024 * 1024
"""How many bytes of them are kept: one change set may hold a hundred values of a MiB."""
CHANGE_BYTES = 256
"""What a change takes in memory besides its key and its value."""

_PAGE_CHANGE_SETS = 500


def size_of(change_set: ChangeSet) -> int:
    """Return about how many bytes a change set takes in memory."""
    size_bytes = 0
    for key, entry in change_set.changes:
        size_bytes += CHANGE_BYTES + len(key) + (0 if entry is None else len(entry.value))
    return size_bytes


class Retention:
    """Decides how many change sets are kept, by count and bytes; the newest is always kept."""

    def __init__(self, revisions_max: int, bytes_max: int) -> None:
        self._revisions_max = revisions_max
        self._bytes_max = bytes_max
        self._sizes: deque[int] = deque()
        self._size_bytes = 0
        """Invariant: the sum of ``_sizes``, which are those of the change sets that are kept."""

    def dropped_by(self, size_bytes: int) -> int:
        """Return how many of the oldest one more of ``size_bytes`` would drop. Changes nothing."""
        count, left = 0, self._size_bytes + size_bytes
        for oldest in self._sizes:
            kept = len(self._sizes) + 1 - count
            if kept <= self._revisions_max and left <= self._bytes_max:
                break
            left -= oldest
            count += 1
        return count

    def load(self, size_bytes: int) -> None:
        """Count a change set that exists already; the next ``add`` drops what is too much."""
        self._sizes.append(size_bytes)
        self._size_bytes += size_bytes

    def add(self, size_bytes: int) -> int:
        """Count the next change set; return how many of the oldest have to be dropped."""
        dropped = self.dropped_by(size_bytes)
        for _ in range(dropped):
            self._size_bytes -= self._sizes.popleft()
        self.load(size_bytes)
        return dropped


class History:
    """The change sets of the revisions ``[first_rev, revision]``, without a gap."""

    def __init__(self, revision: int, limit: int, *, bytes_max: int = HISTORY_BYTES) -> None:
        self._change_sets: deque[ChangeSet] = deque()
        self._retention = Retention(limit, bytes_max)
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False
        self.revision = revision
        """The newest revision. *Invariant:* rises by one with each change set."""

    @property
    def first_rev(self) -> int:
        """The oldest revision that is held; ``revision + 1`` when there is none."""
        return self.revision - len(self._change_sets) + 1

    def append(self, change_set: ChangeSet) -> None:
        """Add the next change set and wake the watchers."""
        assert change_set.rev == self.revision + 1, (
            f"revision {change_set.rev} follows {self.revision}"
        )
        self.revision = change_set.rev
        self._change_sets.append(change_set)
        for _ in range(self._retention.add(size_of(change_set))):
            self._change_sets.popleft()
        self._wake()

    def since(self, from_rev: int) -> list[ChangeSet]:
        """Return a page of change sets from ``from_rev`` on, oldest first.

        Returns none when ``from_rev`` is above ``revision``; it must not be below ``first_rev``.
        """
        start = from_rev - self.first_rev
        return list(islice(self._change_sets, start, start + _PAGE_CHANGE_SETS))

    async def next(self, after_rev: int) -> None:
        """Wait until ``revision`` is above ``after_rev``. Raises Unavailable when closed."""
        while self.revision <= after_rev:
            if self._closed:
                raise Unavailable("the metadata store is closed")
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """Let watchers see what is held; then they get Unavailable."""
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
    older: Callable[[int], Awaitable[list[ChangeSet]]] | None = None,
) -> AsyncIterator[ChangeSet]:
    """Yield the change sets of ``MetadataStore.watch``.

    ``older(rev)`` reads change sets from ``rev`` on that ``history`` no longer holds; it returns
    none when they are compacted. ``older`` None: only ``history`` holds any.
    """
    if from_rev < 1:
        raise ValueError(f"revisions start at 1, not {from_rev}")
    next_rev = from_rev
    while True:
        await history.next(next_rev - 1)
        if next_rev >= history.first_rev:
            change_sets = history.since(next_rev)
        else:
            change_sets = await older(next_rev) if older is not None else []
            if not change_sets or change_sets[0].rev != next_rev:
                raise Compacted(next_rev)
        seen_rev = change_sets[-1].rev
        for change_set in change_sets:
            mine = under(prefix, change_set)
            if mine.changes or change_set.rev == seen_rev:
                yield mine
        next_rev = seen_rev + 1
