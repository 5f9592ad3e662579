"""AddPartitionsToTxn, key 24: registers partitions with a transaction before they are written to.

Clients send v0-3, with one transaction. Brokers send v4 and v5, with many, also to verify only
(``verify_only``). Of each transaction, all partitions are added or none.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.peers import Producer
from ottla.coordinator.transaction.version import SERVER_VERSION
from ottla.errors import ErrorCode
from ottla.handlers.apis.end_txn import told
from ottla.handlers.apis.metadata import is_internal
from ottla.handlers.call import Call
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
from ottla.sliced import STRIDE, Steps, each

MANY_SINCE = 4
VERSION_2_SINCE = 5
"""Brokers send it for producers of transaction version 2, which add partitions as they write."""
NOT_OF_CLIENTS = 0
"""The transaction version of producers that add partitions by this request."""

Topics = Sequence[AddPartitionsToTxnTopic]
Codes = Mapping[TopicPartition, ErrorCode]


class AddPartitionsToTxn:
    """Has the transaction coordinator add or verify partitions that exist."""

    def __init__(self, transactions: TransactionCoordinator, image: MetadataImage) -> None:
        self._transactions = transactions
        self._image = image

    def handle(
        self, request: AddPartitionsToTxnRequest, call: Call
    ) -> Steps[AddPartitionsToTxnResponse]:
        """Return one code per partition, when the additions are durable."""
        version = call.api_version
        if version >= MANY_SINCE:
            return (yield from self._many(request.transactions, version))
        producer = Producer(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        topics = request.v3_and_below_topics
        codes: Codes = yield (yield from self._add(producer, topics, version, verify_only=False))
        results = yield from _results(topics, codes)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def _many(
        self, transactions: Sequence[AddPartitionsToTxnTransaction], version: int
    ) -> Steps[AddPartitionsToTxnResponse]:
        added: list[Pending[Codes]] = []
        for one in transactions:
            producer = Producer(one.transactional_id, one.producer_id, one.producer_epoch)
            codes = yield from self._add(producer, one.topics, version, verify_only=one.verify_only)
            added.append(codes)
            yield None
        results = []
        for one, waited in zip(transactions, added, strict=True):
            topics = yield from _results(one.topics, (yield waited))
            results.append(
                AddPartitionsToTxnResult(
                    transactional_id=one.transactional_id, topic_results=topics
                )
            )
        return AddPartitionsToTxnResponse(results_by_transaction=results)

    def _add(
        self, producer: Producer, topics: Topics, version: int, *, verify_only: bool
    ) -> Steps[Pending[Codes]]:
        wanted: dict[TopicPartition, None] = {}
        refused: dict[TopicPartition, ErrorCode] = {}
        for topic in topics:
            # A client writes to these by requests of their own, and gets the code of one who may
            # not, whether anybody is asked for permissions or not.
            is_ours = version < MANY_SINCE and is_internal(topic.name)
            for count, index in enumerate(topic.partitions, 1):
                where = TopicPartition(topic.name, index)
                wanted[where] = None
                if is_ours:
                    refused[where] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif self._image.partition(where) is None:
                    refused[where] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if not count % STRIDE:
                    yield None
            yield None
        codes: Pending[Codes] = Pending()
        if refused:
            codes.resolve(dict.fromkeys(wanted, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused)
        elif verify_only:
            codes.resolve(self._transactions.verify(producer, wanted))
        else:
            added = self._transactions.add_partitions(
                producer, wanted, client_version=_client_version(version)
            )
            return added.then(lambda answer: dict.fromkeys(wanted, told(answer.code, version)))
        return codes


def _client_version(version: int) -> int:
    return SERVER_VERSION if version >= VERSION_2_SINCE else NOT_OF_CLIENTS


def _results(topics: Topics, codes: Codes) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    results = []
    for topic in topics:
        found = yield from each(topic.partitions, partial(_result, topic.name, codes))
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=found))
    return results


def _result(topic: str, codes: Codes, index: int) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(
        partition_index=index, partition_error_code=codes[TopicPartition(topic, index)]
    )
