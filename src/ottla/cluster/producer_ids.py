"""Gives out producer ids, which are unique in the cluster forever.

A node takes a block of ids from the store at a time. A block is never given out again, so a restart
wastes at most one. Source: KIP-730.
"""

from ottla.errors import ErrorCode, KafkaError
from ottla.ids import ProducerId
from ottla.metadata.mirror import update
from ottla.metadata.store import Ambiguous, MetadataStore, Unavailable
from ottla.metadata.values import decode_number, encode_number
from ottla.pending import Pending, pending_of

BLOCK_SIZE = 1000


class ProducerIds:
    """Gives out ids from this node's block, and takes the next block when it is used up."""

    def __init__(self, store: MetadataStore, block_key: str) -> None:
        self._store = store
        self._block_key = block_key
        self._next = 0
        self._end = 0  # Exclusive. Invariant: ids in [_next, _end) are this node's alone.
        self._waiting: list[Pending[ProducerId]] = []

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
            entry = await update(self._store, self._block_key, _next_block)
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
        self._end = fetched.value
        self._next = self._end - BLOCK_SIZE
        for pending in waiting:
            if self._next < self._end:
                pending.resolve(self._take())
            else:
                self._wait(pending)

    def _wait(self, pending: Pending[ProducerId]) -> None:
        self._waiting.append(pending)
        if len(self._waiting) == 1:
            pending_of(self._fetch_block()).on_done(self._serve)


def _next_block(value: bytes | None) -> bytes:
    """Return the key's next value: the first id after the block that is taken now."""
    return encode_number((0 if value is None else decode_number(value)) + BLOCK_SIZE)
