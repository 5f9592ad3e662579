"""AddOffsetsToTxn, key 25: registers a group's offsets with a transaction.

It adds the partition of ``__consumer_offsets`` that holds them, which will then get a marker.
"""

from collections.abc import Callable

from ottla.coordinator.internal_topics import GROUP_METADATA_TOPIC
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.peers import Producer
from ottla.handlers.apis.add_partitions_to_txn import NOT_OF_CLIENTS
from ottla.handlers.apis.end_txn import told
from ottla.handlers.call import Call
from ottla.ids import TopicPartition
from ottla.pending import Pending
from ottla.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)


class AddOffsetsToTxn:
    """Has the transaction coordinator add the group's partition."""

    def __init__(
        self, transactions: TransactionCoordinator, partition_for: Callable[[str], int]
    ) -> None:
        self._transactions = transactions
        self._partition_for = partition_for

    def handle(
        self, request: AddOffsetsToTxnRequest, call: Call
    ) -> Pending[AddOffsetsToTxnResponse]:
        """Answer when the addition is durable."""
        where = TopicPartition(GROUP_METADATA_TOPIC, self._partition_for(request.group_id))
        producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
        added = self._transactions.add_partitions(producer, [where], client_version=NOT_OF_CLIENTS)
        return added.then(
            lambda answer: AddOffsetsToTxnResponse(error_code=told(answer.code, call.api_version))
        )
