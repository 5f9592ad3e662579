"""``ottla consume --group``: as a member of a group, from where the group has read to.

Owns the order in which no record is lost: printed, then committed, and committed once more before
the partitions may be given to others. Source: Kafka's consumer, "at least once".
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol, Self

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.fetcher import FetchedBatches, Fetcher
from ottla.client.asyncio.groups import Groups
from ottla.client.wire.fetching import FetchLimits
from ottla.client.wire.offsets import LATEST
from ottla.errors import OttlaError
from ottla.ids import TopicPartition

SETTLING_SECONDS = 0.1
"""How often it is asked, at the end, whether the group has something left for us."""
COMMIT_SECONDS = 5.0
"""Seconds between commits: how much may be read again after a crash."""

Take = Callable[[FetchedBatches, int | None], bool]
"""Prints batches, up to an end offset (None: all of them), and tells ``GroupReader.note`` how far
it got; returns False when no more is wanted."""
Places = Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, int]]]


class Member(Protocol):
    """A member of either protocol: ``GroupMember`` says what its methods do."""

    group: str
    must_join: asyncio.Event

    async def join(self) -> list[TopicPartition]:
        """Return what the member may read from now on."""

    async def is_settled(self) -> bool:
        """Whether the group has nothing more to give to it."""

    async def commit(self, offsets: Mapping[TopicPartition, int], /) -> bool:
        """Commit, if what is committed is still the member's."""

    async def leave(self) -> None:
        """Leave the group."""


class GroupReader:
    """Reads as one member of a group until there is nothing more, or nobody wants more."""

    def __init__(
        self,
        cluster: Cluster,
        member: Member,
        limits: FetchLimits,
        *,
        places: Places,
        ignores_committed: bool = False,
    ) -> None:
        """``places`` says where to begin in partitions that the group has never read.

        ``ignores_committed``: and in the others, when they come for the first time.
        """
        self._ignores_committed = ignores_committed
        self._seen: set[TopicPartition] = set()
        self._cluster = cluster
        self._groups = Groups(cluster)
        self._member = member
        self._limits = limits
        self._places = places
        self._read: dict[TopicPartition, int] = {}
        """What is to be committed: the next offset of each partition."""
        self._committed_at = 0.0

    def note(self, partition: TopicPartition, next_offset: int) -> None:
        """Count everything below ``next_offset`` as read."""
        self._read[partition] = next_offset

    async def run(self, take: Take, *, endless: bool) -> None:
        """Pass batches to ``take`` until it returns False or, unless ``endless``, at the end.

        The end is where the log ended when the group gave us the partition. Raises KafkaError.
        """
        try:
            is_over = False
            while not is_over:
                partitions = await self._member.join()
                is_over = await self._read_generation(partitions, take, endless=endless)
                await self._commit()
        finally:
            # Also at Ctrl-C: what was printed is not printed again.
            with suppress(OttlaError):
                await self._commit()
            await self._member.leave()

    async def _read_generation(
        self,
        partitions: list[TopicPartition],
        take: Take,
        *,
        endless: bool,
    ) -> bool:
        """Read until the group changes (False) or the reading is over (True)."""
        positions = await self._positions(partitions)
        ends = {} if endless else await self._ends(partitions)
        left = {each for each in partitions if endless or positions[each] < ends[each]}
        async with (
            Fetcher(self._cluster, self._limits) as fetcher,
            _Stream(fetcher, self._member.must_join) as stream,
        ):
            await fetcher.assign({each: positions[each] for each in left})
            while left or endless or not await self._member.is_settled():
                patience = COMMIT_SECONDS if left or endless else SETTLING_SECONDS
                found = await stream.next(patience, is_fetching=bool(left))
                if found is not None:
                    end = ends.get(found.partition)
                    if not take(found, end):
                        return True
                    if end is not None and found.next_offset >= end:
                        left.discard(found.partition)
                        await fetcher.stop_partition(found.partition)
                if self._member.must_join.is_set():
                    return False
                await self._commit_now_and_then()
        return True

    async def _positions(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        committed = await self._groups.committed(self._member.group, partitions)
        if self._ignores_committed:
            committed = {each: at for each, at in committed.items() if each in self._seen}
            self._seen.update(partitions)
        positions = {each: found.offset for each, found in committed.items()}
        missing = [each for each in partitions if each not in positions]
        return positions | (await self._places(missing) if missing else {})

    async def _ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        found = await self._cluster.list_offsets(dict.fromkeys(partitions, LATEST))
        return {each: offset.offset for each, offset in found.items()}

    async def _commit_now_and_then(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._committed_at >= COMMIT_SECONDS:
            self._committed_at = now
            await self._commit()

    async def _commit(self) -> None:
        read, self._read = self._read, {}
        await self._member.commit(read)


class _Stream:
    """A fetcher's batches, to be waited for beside something else."""

    def __init__(self, fetcher: Fetcher, interruption: asyncio.Event) -> None:
        self._batches = fetcher.batches()
        self._interruption = asyncio.create_task(interruption.wait())
        self._coming: asyncio.Future[FetchedBatches] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._interruption.cancel()
        await asyncio.gather(self._interruption, return_exceptions=True)
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.gather(self._coming, return_exceptions=True)

    async def next(self, patience_seconds: float, *, is_fetching: bool) -> FetchedBatches | None:
        """Return the next batch; None when none has arrived yet, or after an interruption."""
        waiting: list[asyncio.Future[Any]] = [self._interruption]
        if self._coming is None and is_fetching:
            self._coming = asyncio.ensure_future(anext(self._batches))
        if self._coming is not None:
            waiting.append(self._coming)
        await asyncio.wait(waiting, timeout=patience_seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._coming is None or not self._coming.done():
            return None
        found, self._coming = self._coming.result(), None
        return found
