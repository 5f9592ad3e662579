"""WriteTxnMarkers, key 27: writes the markers that end transactions into the logs of partitions.

Coordinators on other brokers send it, and ``kafka-transactions.sh abort``. v2 adds the
transaction's version (KIP-1228).
"""

from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.peers import Marker
from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.handlers.gathering import gathered
from ottla.ids import TopicPartition
from ottla.pending import Pending
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.sliced import STRIDE, Steps, distinct, each

Codes = dict[TopicPartition, ErrorCode]


class WriteTxnMarkers:
    """Has each marker written once to each partition."""

    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions

    def handle(self, request: WriteTxnMarkersRequest, call: Call) -> Steps[WriteTxnMarkersResponse]:
        """Return one code per partition, when the markers are committed. Writes some at a time."""
        del call
        found = yield from each(request.markers, _no_codes)
        window = _Window()
        for one, codes in zip(request.markers, found, strict=True):
            yield None
            marker = Marker(
                one.producer_id,
                one.producer_epoch,
                one.transaction_result,
                one.coordinator_epoch,
                one.transaction_version,
            )
            for topic in one.topics:
                yield None
                indexes = yield from distinct(topic.partition_indexes)
                for begin in range(0, len(indexes), STRIDE):
                    some = [
                        TopicPartition(topic.name, index)
                        for index in indexes[begin : begin + STRIDE]
                    ]
                    some = [where for where in some if where not in codes]
                    codes.update(dict.fromkeys(some, ErrorCode.NONE))
                    window.add(codes, some, self._transactions.write_markers(marker, some))
                    if window.size >= STRIDE:
                        window.take((yield gathered(window.pendings)))
        window.take((yield gathered(window.pendings)))
        markers: list[WritableTxnMarkerResult] = []
        found.reverse()
        for one in request.markers:
            codes = found.pop()
            markers.append((yield from _result(one, codes)))
            yield None
            while codes:  # Freed in steps: there may be very many.
                for _ in range(min(len(codes), STRIDE)):
                    codes.popitem()
                yield None
        return WriteTxnMarkersResponse(markers=markers)


def _no_codes(_: WritableTxnMarker) -> Codes:
    return {}


class _Window:
    """Markers that are being written, in the order in which they were added."""

    def __init__(self) -> None:
        self.size = 0
        self.pendings: list[Pending[list[ErrorCode]]] = []
        self._asked: list[tuple[Codes, list[TopicPartition]]] = []

    def add(
        self, codes: Codes, some: list[TopicPartition], written: Pending[list[ErrorCode]]
    ) -> None:
        """Note partitions that are being written to; their codes will go into ``codes``."""
        self.pendings.append(written)
        self._asked.append((codes, some))
        self.size += max(len(some), 1)

    def take(self, outcomes: list[list[ErrorCode]]) -> None:
        """Put the codes of all writes, in order, where they belong, and begin anew."""
        for (codes, some), outcome in zip(self._asked, outcomes, strict=True):
            codes.update(zip(some, outcome, strict=True))
        self.size = 0
        self.pendings, self._asked = [], []


def _result(marker: WritableTxnMarker, codes: Codes) -> Steps[WritableTxnMarkerResult]:
    topics: list[WritableTxnMarkerTopicResult] = []
    for topic in marker.topics:
        name = topic.name
        parts = yield from each(
            topic.partition_indexes,
            lambda index, name=name: WritableTxnMarkerPartitionResult(  # type: ignore[misc]
                partition_index=index, error_code=codes[TopicPartition(name, index)]
            ),
        )
        topics.append(WritableTxnMarkerTopicResult(name=name, partitions=parts))
        yield None
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)
