"""The Produce request for one leader, and what its answer says. No input or output."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.wire.errors import error_code
from ottla.client.wire.view import ClusterView
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import ProducerId, TopicPartition
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import (
    TOPIC_IDS_SINCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.primitives import RecordBytes

LAST_VERSION_BY_NAME = TOPIC_IDS_SINCE - 1
"""The last version of Produce that names topics instead of giving their ids."""


class ProducerIdentity(NamedTuple):
    """What an idempotent or transactional producer is known by; without one, both are -1."""

    producer_id: ProducerId
    epoch: int
    transactional_id: str | None = None
    """None: idempotent only."""
    transaction_version: int = 1
    """2: a Produce request adds its partitions to the transaction (KIP-890, TV2). 1: they are
    added beforehand. It is the cluster's ``transaction.version``, and EndTxn goes by the same."""


NO_IDENTITY = ProducerIdentity(ProducerId(-1), -1)


class Appended(NamedTuple):
    """What became of one batch. ``log_append_time`` is -1 when the records kept their times."""

    error: ErrorCode
    base_offset: int
    log_append_time: int
    message: str


def produce_request(
    view: ClusterView,
    batches: Mapping[TopicPartition, RecordBytes],
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Return the request with one batch for each of these partitions of one leader."""
    by_topic: dict[str, list[PartitionProduceData]] = {}
    for (topic, partition), records in batches.items():
        by_topic.setdefault(topic, []).append(
            PartitionProduceData(index=partition, records=records)
        )
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name=name, topic_id=view.topics[name].topic_id, partition_data=each)
            for name, each in by_topic.items()
        ],
    )


def produce_version_limit(view: ClusterView, partitions: Iterable[TopicPartition]) -> int | None:
    """Return the highest version usable for these topics; None for no limit."""
    return None if view.have_ids({topic for topic, _ in partitions}) else LAST_VERSION_BY_NAME


def read_produce(view: ClusterView, answer: ProduceResponse) -> dict[TopicPartition, Appended]:
    """Return what became of each partition's batch."""
    return {
        TopicPartition(topic.name or view.topic_name(topic.topic_id), each.index): Appended(
            error_code(each.error_code),
            each.base_offset,
            each.log_append_time_ms,
            each.error_message or "",
        )
        for topic in answer.responses
        for each in topic.partition_responses
    }


def init_producer_request() -> InitProducerIdRequest:
    """Return the request for a producer id without a transactional id."""
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)


def read_init_producer(answer: InitProducerIdResponse) -> ProducerIdentity:
    """Return the identity given. Raises KafkaError."""
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(error_code(answer.error_code), "InitProducerId was refused")
    return ProducerIdentity(ProducerId(answer.producer_id), answer.producer_epoch)
