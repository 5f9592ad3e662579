"""Claims names and counts partitions of topics that are being written and not in the image yet.

A plan is checked against the image, which shows a topic only when all of its partitions are in the
store. Until then another request would find the name, a colliding name and the room for the
partitions free. Owned by the controller; knows neither the store nor the image.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager

from ottla.cluster.placement import Assignment
from ottla.cluster.topics import collision_key
from ottla.ids import NodeId


class Claims:
    """The names and partitions that are being written."""

    def __init__(self) -> None:
        self.partition_count = 0
        """How many partitions are being written."""
        self.leads: Counter[NodeId] = Counter()
        """Of how many of them each node is the preferred leader."""
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
    def partitions(self, assignments: Collection[Assignment]) -> Iterator[None]:
        """Count new partitions within the block, which ends when the image has them."""
        self.partition_count += len(assignments)
        leads = Counter(replicas[0] for replicas in assignments)
        self.leads.update(leads)
        try:
            yield
        finally:
            self.partition_count -= len(assignments)
            self.leads.subtract(leads)

    def __len__(self) -> int:
        return len(self._turns)
