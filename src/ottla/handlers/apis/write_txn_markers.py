"""WriteTxnMarkers, key 27: a coordinator ends a transaction in the partitions' logs.

Between brokers, and of ``kafka-transactions.sh abort``. v2 tells the transaction's version
(KIP-1228).
"""

from collections.abc import Sequence

from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.markers import Marker
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


class WriteTxnMarkers:
    """Has each marker written once."""

    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions

    def handle(
        self, request: WriteTxnMarkersRequest, call: Call
    ) -> Pending[WriteTxnMarkersResponse]:
        """Answer per partition when what is written is committed."""
        del call
        asked = [
            [TopicPartition(topic.name, i) for topic in one.topics for i in topic.partition_indexes]
            for one in request.markers
        ]
        written = gathered(
            [
                self._transactions.write_markers(
                    Marker(
                        one.producer_id,
                        one.producer_epoch,
                        one.transaction_result,
                        one.coordinator_epoch,
                        one.transaction_version,
                    ),
                    list(dict.fromkeys(partitions)),
                )
                for one, partitions in zip(request.markers, asked, strict=True)
            ]
        )

        def respond(found: list[list[ErrorCode]]) -> WriteTxnMarkersResponse:
            return WriteTxnMarkersResponse(
                markers=[
                    _result(one, dict(zip(dict.fromkeys(partitions), codes, strict=True)))
                    for one, partitions, codes in zip(request.markers, asked, found, strict=True)
                ]
            )

        return written.then(respond)


def _result(
    marker: WritableTxnMarker, codes: dict[TopicPartition, ErrorCode]
) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name, partitions=_parts(topic.name, topic.partition_indexes, codes)
            )
            for topic in marker.topics
        ],
    )


def _parts(
    topic: str, indexes: Sequence[int], codes: dict[TopicPartition, ErrorCode]
) -> list[WritableTxnMarkerPartitionResult]:
    return [
        WritableTxnMarkerPartitionResult(
            partition_index=index, error_code=codes[TopicPartition(topic, index)]
        )
        for index in indexes
    ]
