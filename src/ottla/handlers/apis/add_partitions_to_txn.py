"""AddPartitionsToTxn, key 24: registers partitions with a transaction before they are written to.

Clients send v0-3, one transaction; brokers v4 and v5, many, also to ask only (``verify_only``).
All or none of a transaction's partitions are added.
"""

from collections.abc import Mapping, Sequence

from ottla.coordinator.transaction.coordinator import Producer, TransactionCoordinator
from ottla.errors import ErrorCode
from ottla.handlers.apis.end_txn import told
from ottla.handlers.call import Call
from ottla.handlers.gathering import gathered
from ottla.ids import TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.pending import Pending
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BATCHED_SINCE = 4
NOT_OF_CLIENTS = 0
"""The transaction version of those who add partitions by this request."""

Topics = Sequence[AddPartitionsToTxnTopic]
Codes = Mapping[TopicPartition, ErrorCode]


class AddPartitionsToTxn:
    """Has the coordinator add what exists."""

    def __init__(self, transactions: TransactionCoordinator, image: MetadataImage) -> None:
        self._transactions = transactions
        self._image = image

    def handle(
        self, request: AddPartitionsToTxnRequest, call: Call
    ) -> Pending[AddPartitionsToTxnResponse]:
        """Answer per partition."""
        version = call.api_version
        if version >= BATCHED_SINCE:
            return self._batched(request.transactions, version)
        producer = Producer(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        topics = request.v3_and_below_topics
        return self._add(producer, topics, version, verify_only=False).then(
            lambda codes: AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=_results(topics, codes)
            )
        )

    def _batched(
        self, transactions: Sequence[AddPartitionsToTxnTransaction], version: int
    ) -> Pending[AddPartitionsToTxnResponse]:
        added = gathered(
            [
                self._add(
                    Producer(one.transactional_id, one.producer_id, one.producer_epoch),
                    one.topics,
                    version,
                    verify_only=one.verify_only,
                )
                for one in transactions
            ]
        )
        return added.then(
            lambda found: AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnResult(
                        transactional_id=one.transactional_id,
                        topic_results=_results(one.topics, codes),
                    )
                    for one, codes in zip(transactions, found, strict=True)
                ]
            )
        )

    def _add(
        self, producer: Producer, topics: Topics, version: int, *, verify_only: bool
    ) -> Pending[Codes]:
        wanted = [
            TopicPartition(topic.name, index) for topic in topics for index in topic.partitions
        ]
        codes: Pending[Codes] = Pending()
        unknown = {where for where in wanted if self._image.partition(where) is None}
        if unknown:
            codes.resolve(
                {
                    where: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if where in unknown
                    else ErrorCode.OPERATION_NOT_ATTEMPTED
                    for where in wanted
                }
            )
        elif verify_only:
            codes.resolve(self._transactions.verify(producer, wanted))
        elif not wanted:
            codes.resolve({})
        else:
            added = self._transactions.add_partitions(
                producer, wanted, client_version=NOT_OF_CLIENTS
            )
            return added.then(lambda answer: dict.fromkeys(wanted, told(answer.code, version)))
        return codes


def _results(topics: Topics, codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=codes[TopicPartition(topic.name, index)],
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
