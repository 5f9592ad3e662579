"""The requests of a transactional producer to its coordinator, and what the answers say. No I/O.

In the first version, which every broker since Kafka 0.11 speaks, partitions and groups are added to
the transaction before they are written, and EndTxn leaves the epoch as it is (``*_LAST`` are the
newest versions of that). In the second one writing adds them, and EndTxn answers the next epoch:
what comes too late is of an epoch that is over. Source: KIP-98; KIP-447 (offsets); KIP-890.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.wire.errors import error_code
from ottla.client.wire.sending import ProducerIdentity
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import ProducerId, TopicPartition
from ottla.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

ADD_PARTITIONS_LAST = 3
TXN_OFFSET_COMMIT_LAST = 4
END_LAST = 4
FEATURE = "transaction.version"
"""The cluster's feature; from level ``SECOND`` on the second version is spoken."""
SECOND = 2
PRODUCE_ADDS_SINCE, END_ANSWERS_EPOCH_SINCE = 12, 5


class OffsetToCommit(NamedTuple):
    """What a group is to remember of a partition."""

    offset: int
    metadata: str = ""


def take_over_request(transactional_id: str, timeout_ms: int) -> InitProducerIdRequest:
    """Return the request for the next epoch: what the predecessor left open is aborted."""
    return InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )


def read_take_over(transactional_id: str, answer: InitProducerIdResponse) -> ProducerIdentity:
    """Return the identity. Raises KafkaError."""
    _check(transactional_id, answer.error_code)
    return ProducerIdentity(ProducerId(answer.producer_id), answer.producer_epoch, transactional_id)


def add_partitions_request(
    producer: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Return the request that makes ``partitions`` part of the transaction."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id or "",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in by_topic.items()
        ],
    )


def check_add_partitions(producer: ProducerIdentity, answer: AddPartitionsToTxnResponse) -> None:
    """Raise KafkaError unless every partition was added.

    The others of a request that was refused for one are OPERATION_NOT_ATTEMPTED, which says less.
    """
    refused: KafkaError | None = None
    for topic in answer.results_by_topic_v3_and_below:
        for each in topic.results_by_partition:
            code = error_code(each.partition_error_code)
            if code is ErrorCode.NONE:
                continue
            if refused is None or refused.code is ErrorCode.OPERATION_NOT_ATTEMPTED:
                what = f"{producer.transactional_id}: {topic.name}-{each.partition_index}"
                refused = KafkaError(code, f"transactional id {what}: {code.text}")
    if refused is not None:
        raise refused


def add_offsets_request(producer: ProducerIdentity, group: str) -> AddOffsetsToTxnRequest:
    """Return the request that makes a group's offsets part of the transaction."""
    return AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id or "",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group,
    )


def check_add_offsets(producer: ProducerIdentity, answer: AddOffsetsToTxnResponse) -> None:
    """Raise KafkaError for a refusal."""
    _check(producer.transactional_id, answer.error_code)


def commit_offsets_request(
    producer: ProducerIdentity, group: str, offsets: Mapping[TopicPartition, OffsetToCommit]
) -> TxnOffsetCommitRequest:
    """Return the request, to the group's coordinator, that the commit of the transaction does."""
    by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, index), (offset, metadata) in offsets.items():
        by_topic.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=metadata
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id or "",
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(name=name, partitions=each)
            for name, each in by_topic.items()
        ],
    )


def check_commit_offsets(group: str, answer: TxnOffsetCommitResponse) -> None:
    """Raise KafkaError for the first offset that was refused."""
    for topic in answer.topics:
        for each in topic.partitions:
            code = error_code(each.error_code)
            if code is not ErrorCode.NONE:
                where = f"{topic.name}-{each.partition_index}"
                raise KafkaError(code, f"offset of group {group} for {where}: {code.text}")


def end_request(producer: ProducerIdentity, *, commit: bool) -> EndTxnRequest:
    """Return the request that commits or aborts."""
    return EndTxnRequest(
        transactional_id=producer.transactional_id or "",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )


def read_end(producer: ProducerIdentity, answer: EndTxnResponse) -> ProducerIdentity | None:
    """Return the identity from now on; None: as it was. Raises KafkaError."""
    _check(producer.transactional_id, answer.error_code)
    if answer.producer_epoch < 0:
        return None
    number = ProducerId(answer.producer_id)
    return ProducerIdentity(number, answer.producer_epoch, producer.transactional_id)


def _check(transactional_id: str | None, code: int) -> None:
    if code != ErrorCode.NONE:
        error = error_code(code)
        raise KafkaError(error, f"transactional id {transactional_id}: {error.text}")
