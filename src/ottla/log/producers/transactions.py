"""The transactions of one partition that readers of committed records must not look behind.

Owns the first unstable offset: where the oldest transaction begins that is still open, or whose
end is not committed yet. Decides only: no disk, no clock. Filled by log.producer_state as batches
and markers are noted; told by replication.partition how far the high watermark is. Source: KIP-98,
Kafka's ProducerStateManager.
"""

from collections import OrderedDict
from typing import NamedTuple

from ottla.ids import INT64_MAX

ALL_STABLE = INT64_MAX
"""The first unstable offset of a partition without such a transaction."""


class CompletedTransaction(NamedTuple):
    """A transaction that its marker ended. Both offsets inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The marker's."""
    is_aborted: bool


class Transactions:
    """The open transactions, and those whose markers the high watermark has not passed yet."""

    __slots__ = ("_ongoing", "first_unstable_offset", "unreplicated")

    def __init__(self) -> None:
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        """Producer ids by the first offset of what each has open. Invariant: ascending."""
        self.unreplicated: list[tuple[int, int]] = []
        """(offset of the marker, first offset) of what ended. Invariant: ascending markers."""
        self.first_unstable_offset = ALL_STABLE
        """Use: compared at every fetch. Invariant: the least first offset in both."""

    def __len__(self) -> int:
        """Return how many transactions are open."""
        return len(self._ongoing)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Note that a producer's transaction begins here, behind all others."""
        self._ongoing[first_offset] = producer_id
        self.first_unstable_offset = min(self.first_unstable_offset, first_offset)

    def complete(self, completed: CompletedTransaction) -> int:
        """Note an end; return the last stable offset that follows once it is committed.

        That is what the transaction index stores: the first offset that is open yet, else the one
        behind the marker. The first unstable offset stays: see ``commit_to``.
        """
        del self._ongoing[completed.first_offset]
        self.unreplicated.append((completed.last_offset, completed.first_offset))
        return next(iter(self._ongoing), completed.last_offset + 1)

    def commit_to(self, high_watermark: int) -> None:
        """Let go of what ended below ``high_watermark`` (exclusive)."""
        unreplicated = self.unreplicated
        count = 0
        while count < len(unreplicated) and unreplicated[count][0] < high_watermark:
            count += 1
        del unreplicated[:count]
        first = next(iter(self._ongoing), ALL_STABLE)
        for _, first_offset in unreplicated:
            first = min(first, first_offset)
        self.first_unstable_offset = first
