"""Gives out producer ids, which are unique in the cluster forever.

A node takes a block of ids from the store at a time. A block is never given out again, so a restart
wastes at most one. A store that is an older copy would give blocks a second time: whoever finds ids
that were given says so (``known``), and where the store is new, or older than the data, blocks go
on at the time of day (``id_of_now``, ``adoption``), which no backup takes back. Of several hosts
the one that knows may start later: there each block begins at the time of day at least. Source:
KIP-730.
"""

import asyncio
import logging
from collections.abc import Callable

from ottla.env.clock import Clock
from ottla.env.tasks import begin_task
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import ProducerId
from ottla.metadata.mirror import update
from ottla.metadata.store import Ambiguous, MetadataError, MetadataStore, Unavailable
from ottla.metadata.values import decode_number, encode_number
from ottla.pending import Pending, pending_of

logger = logging.getLogger(__name__)

BLOCK_SIZE = 1000
COUNTED_FROM_MS = 1_577_836_800_000
"""The year 2020. One id a millisecond since then: as many as adoption believes until 2054."""


def _none() -> int:
    return 0


def id_of_now(clock: Clock) -> int:
    """Return an id above all that were ever given, if those were fewer than 1,000 a second."""
    return max(clock.wall_ms() - COUNTED_FROM_MS, 0)


class ProducerIds:
    """Gives out ids from this node's block, and takes the next block when it is used up."""

    def __init__(self, store: MetadataStore, block_key: str) -> None:
        self.lowest: Callable[[], int] = _none
        """Tells below what no block begins now."""
        self._store = store
        self._block_key = block_key
        self._next = 0
        self._end = 0  # Exclusive. Invariant: ids in [_next, _end) are this node's alone.
        self._waiting: list[Pending[ProducerId]] = []
        self._free = 0
        """Use: no id below is given out any more. Invariant: never falls."""
        self._reserved = 0
        """Use: the store is known to give out no id below any more."""
        self._reserving: asyncio.Task[None] | None = None

    def known(self, producer_id: int) -> None:
        """Hear of an id that somebody has: it is given to nobody else, here or elsewhere."""
        self._free = max(self._free, producer_id + 1)
        self._next = max(self._next, min(self._free, self._end))
        if self._free > self._reserved and self._reserving is None:
            self._reserving = begin_task(
                self._reserve(), name="reserve producer ids", ended=self._has_reserved
            )

    async def _reserve(self) -> None:
        """Have the store give out no id below the free ones."""
        while self._free > self._reserved:
            free = self._free

            def raised(value: bytes | None, free: int = free) -> bytes:
                before = 0 if value is None else decode_number(value)
                if before < free:
                    logger.warning("producer ids below %d are known: they are reserved", free)
                return encode_number(max(before, free))

            entry = await update(self._store, self._block_key, raised)
            self._reserved = free if entry is None else decode_number(entry.value)

    def _has_reserved(self, task: asyncio.Task[None]) -> None:
        self._reserving = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, MetadataError):  # The next load tries again, and so does each block.
            logger.warning("producer ids could not be reserved yet: %s", error)
        elif error is not None:
            logger.error("producer ids could not be reserved", exc_info=error)

    def next(self) -> Pending[ProducerId]:
        """Return an id that nobody else has.

        Fails with COORDINATOR_LOAD_IN_PROGRESS while the store does not answer: clients retry.
        """
        pending: Pending[ProducerId] = Pending()
        if self._next < self._end:
            pending.resolve(self._take())
            return pending
        self._wait(pending)
        return pending

    def _take(self) -> ProducerId:
        taken = ProducerId(self._next)
        self._next += 1
        return taken

    async def _fetch_block(self) -> int:
        """Take the next block from the store; return its end."""
        try:
            entry = await update(self._store, self._block_key, self._next_block)
        except (Unavailable, Ambiguous) as error:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        assert entry is not None, "the block's key is never deleted"
        return decode_number(entry.value)

    def _serve(self, fetched: Pending[int]) -> None:
        waiting, self._waiting = self._waiting, []
        if fetched.value is None:
            error = fetched.error
            assert error is not None, "a Pending has a value or an error"
            for pending in waiting:
                pending.fail(error)
            return
        self._end = self._reserved = fetched.value
        self._next = max(self._end - BLOCK_SIZE, min(self._free, self._end))
        for pending in waiting:
            if self._next < self._end:
                pending.resolve(self._take())
            else:
                self._wait(pending)

    def _wait(self, pending: Pending[ProducerId]) -> None:
        self._waiting.append(pending)
        if len(self._waiting) == 1:
            pending_of(self._fetch_block()).on_done(self._serve)

    def _next_block(self, value: bytes | None) -> bytes:
        """Return the key's next value: the first id after the block that is taken now."""
        before = 0 if value is None else decode_number(value)
        return encode_number(max(before, self._free, self.lowest()) + BLOCK_SIZE)
