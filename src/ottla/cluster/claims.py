"""Claims names and counts partitions of topics that are being written and not in the image yet.

A plan is checked against the image, which shows a topic only when all of its partitions are in the
store. Until then another request would find the name, a colliding name and the room for the
partitions free. Owned by the controller; knows neither the store nor the image.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from ottla.cluster.topics import collision_key


class Claims:
    """The names and partitions that are being written."""

    def __init__(self) -> None:
        self.partition_count = 0
        """How many partitions are being written."""
        self._turns: dict[str, asyncio.Lock] = {}
        """By collision key. Invariant: only keys that somebody holds or waits for."""
        self._users: dict[str, int] = {}
        """Use: how many hold or wait for a key. Invariant: the same keys as ``_turns``; above 0."""

    @asynccontextmanager
    async def name(self, name: str) -> AsyncIterator[None]:
        """Hold ``name`` and every name that collides with it; further callers wait, in order."""
        key = collision_key(name)
        turn = self._turns.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with turn:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._turns[key]

    @contextmanager
    def partitions(self, count: int) -> Iterator[None]:
        """Count ``count`` partitions within the block, which ends when the image has them."""
        self.partition_count += count
        try:
            yield
        finally:
            self.partition_count -= count

    def __len__(self) -> int:
        return len(self._turns)
