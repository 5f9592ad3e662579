"""What is being written of topics and is not in the image yet: names in turn, partitions counted.

What a plan is checked against has to hold when it is written. The image hears of a topic when all
of its partitions are in the store; until then others would find the name, its twin and the room for
its partitions free. Owned by the controller; knows neither the store nor the image.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from ottla.cluster.topics import collision_key


class Claims:
    """The names and partitions that are being written, and who waits for a name."""

    def __init__(self) -> None:
        self.partition_count = 0
        """Partitions that are being written."""
        self._turns: dict[str, asyncio.Lock] = {}
        """By collision key. Invariant: only keys that somebody holds or waits for."""
        self._users: dict[str, int] = {}
        """Use: when a turn can be forgotten. Invariant: one for each of ``_turns``, above 0."""

    @asynccontextmanager
    async def name(self, name: str) -> AsyncIterator[None]:
        """Hold a name, and every name that collides with it; others wait for it, in order."""
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
        """Count partitions that are being written, until the image has them or never will."""
        self.partition_count += count
        try:
            yield
        finally:
            self.partition_count -= count

    def __len__(self) -> int:
        return len(self._turns)
