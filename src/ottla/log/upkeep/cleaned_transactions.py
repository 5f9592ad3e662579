"""Transactions as the cleaner meets them, batch by batch: what goes because it was aborted.

Pure. Records of aborted transactions go at once, whatever their keys. A marker stays until no batch
of its transaction is left in the log; then it gets a delete horizon like a tombstone's, and goes
after it. The cleaner does not look behind the last stable offset, so every transaction it meets is
decided. Used by log.cleaner, once for the offset map and once for the filter. Source: Kafka's
CleanedTransactionMetadata.
"""

from collections.abc import Iterable
from operator import attrgetter

from ottla.log.segment.transaction_index import AbortedTransaction
from ottla.records.control import ControlType

_first_offset = attrgetter("first_offset")


class CleanedTransactions:
    """What is known at the batch that was read last. Batches must come in the order of the log."""

    __slots__ = ("_aborted", "_committed", "_next", "_ongoing", "retained")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """``aborted``: the aborted transactions with batches, or a marker, in what will be read.

        All of them, and none that has ended before: its producer would be taken to go on with it.
        """
        self._aborted = sorted(aborted, key=_first_offset)
        self._next = 0
        """Use: what begins further on. Invariant: all before it begin at or below the batch."""
        self._ongoing: dict[int, tuple[AbortedTransaction, bool]] = {}
        """The aborted transaction under way of a producer, and whether a batch of it was seen."""
        self._committed: set[int] = set()
        """Producers with a batch of a committed transaction whose marker is still to come."""
        self.retained: list[AbortedTransaction] = []
        """Use: the new transaction index. Aborted transactions whose marker was read and stays."""

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """Tell whether a transactional batch of data is of an aborted transaction."""
        self._begin_to(last_offset)
        ongoing = self._ongoing.get(producer_id)
        if ongoing is None:
            self._committed.add(producer_id)
            return False
        self._ongoing[producer_id] = ongoing[0], True
        return True

    def ends_nothing(
        self, producer_id: int, last_offset: int, control_type: ControlType | None
    ) -> bool:
        """Tell whether no batch of the transaction that this marker ends is left.

        ``control_type`` is None for a control batch that is no such marker: it stays.
        """
        self._begin_to(last_offset)
        if control_type is ControlType.ABORT:
            ongoing = self._ongoing.pop(producer_id, None)
            if ongoing is None or not ongoing[1]:
                return True
            self.retained.append(ongoing[0])
            return False
        if control_type is ControlType.COMMIT:
            if producer_id not in self._committed:
                return True
            self._committed.remove(producer_id)
        return False

    def _begin_to(self, offset: int) -> None:
        aborted = self._aborted
        while self._next < len(aborted) and aborted[self._next].first_offset <= offset:
            one = aborted[self._next]
            self._next += 1
            self._ongoing.setdefault(one.producer_id, (one, False))
