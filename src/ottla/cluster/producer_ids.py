"""Producer ids, unique in the cluster for all time: taken from the store by the block.

A block that was taken is never given out again, so a restart wastes at most one. Source: KIP-730.
"""

from ottla.errors import ErrorCode, KafkaError
from ottla.ids import ProducerId
from ottla.metadata import keys
from ottla.metadata.mirror import update
from ottla.metadata.store import MetadataStore, Unavailable
from ottla.pending import Pending, pending_of

BLOCK_SIZE = 1000


class ProducerIds:
    """Hands out ids from this node's block; fetches the next block when it is used up."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._next = 0
        self._end = 0  # Exclusive. Invariant: ids in [_next, _end) are this node's alone.
        self._waiting: list[Pending[ProducerId]] = []

    def next(self) -> Pending[ProducerId]:
        """Return an id nobody else has. Fails with COORDINATOR_LOAD_IN_PROGRESS: ask again."""
        pending: Pending[ProducerId] = Pending()
        if self._next < self._end:
            pending.resolve(self._take())
            return pending
        self._waiting.append(pending)
        if len(self._waiting) == 1:
            pending_of(self._fetch_block()).on_done(self._serve)
        return pending

    def _take(self) -> ProducerId:
        taken = ProducerId(self._next)
        self._next += 1
        return taken

    async def _fetch_block(self) -> int:
        return await update(self._store, keys.PRODUCER_ID_BLOCK, keys.next_block(BLOCK_SIZE))
