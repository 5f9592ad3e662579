"""A client's view of the cluster: brokers, topics, leaders; made from one Metadata answer.

Owns the request, the reading of the answer and which error codes mean "ask again". Does no input or
output: ``cluster`` and ``blocking`` share it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.client.wire.errors import Unsendable, error_code
from ottla.client.wire.settings import Address
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NULL_TOPIC_ID, TopicId, TopicPartition
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

NO_LEADER = -1


class PartitionView(NamedTuple):
    """One partition. ``leader`` is -1 when it has none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic, its partitions by number, in order."""

    name: str
    topic_id: TopicId
    is_internal: bool
    error: ErrorCode
    partitions: Mapping[int, PartitionView]

    @property
    def has_id(self) -> bool:
        """Whether the cluster gave the topic an id (brokers before 2.8 do not)."""
        return self.topic_id != NULL_TOPIC_ID


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Brokers and topics as one answer told them; topics that were not asked for are absent."""

    cluster_id: str = ""
    controller_id: int = -1
    brokers: Mapping[int, Address] = field(default_factory=dict)
    racks: Mapping[int, str | None] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)

    def partition(self, topic: str, partition: int) -> PartitionView:
        """Return a partition with a leader.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, or the topic's own.
        """
        found = self.topic(topic).partitions.get(partition)
        if found is None:
            count = len(self.topics[topic].partitions)
            why = f"{topic} has {count} partitions, numbered from 0; asked for {partition}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
        if found.leader == NO_LEADER:
            why = f"{topic}-{partition} has no leader"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, why)
        return found

    def topic(self, name: str) -> TopicView:
        """Return a topic. Raises KafkaError with the topic's error code."""
        found = self.topics.get(name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or found is None:
            raise KafkaError(error, f"no topic {name}")
        if error is not ErrorCode.NONE:
            raise KafkaError(error, f"topic {name}: {error.text}")
        return found

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return the partitions grouped by leader. Raises KafkaError as ``partition`` does."""
        grouped: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            grouped.setdefault(self.partition(*each).leader, []).append(each)
        return grouped

    def unled(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaError]:
        """Return those of the partitions that have no leader, and what ``partition`` raises."""
        found: dict[TopicPartition, KafkaError] = {}
        for each in partitions:
            try:
                self.partition(*each)
            except KafkaError as error:
                found[each] = error
        return found

    def topic_name(self, topic_id: TopicId) -> str:
        """Return the name of the topic with this id. Raises KafkaError UNKNOWN_TOPIC_ID."""
        for topic in self.topics.values():
            if topic.topic_id == topic_id:
                return topic.name
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic with id {topic_id.hex()}")

    def have_ids(self, topics: Iterable[str]) -> bool:
        """Tell whether requests may name these topics by id."""
        return all(name in self.topics and self.topics[name].has_id for name in topics)


def metadata_request(topics: Iterable[str] | None, *, create: bool = False) -> MetadataRequest:
    """Return the request for these topics (None: all). ``create``: the broker may create them.

    Raises Unsendable for a name that is no text: None alone would be a topic without a name.
    """
    if topics is not None:
        topics = tuple(topics)
        for name in topics:
            if not isinstance(name, str):
                raise Unsendable("Metadata", TypeError(f"{name!r} is no topic's name"))
    asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=asked, allow_auto_topic_creation=create)


def read_metadata(answer: MetadataResponse) -> ClusterView:
    """Return the view that an answer gives. Raises KafkaError for an error of the whole answer."""
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(error_code(answer.error_code), "Metadata was refused")
    return ClusterView(
        cluster_id=answer.cluster_id or "",
        controller_id=answer.controller_id,
        brokers={each.node_id: Address(each.host, each.port) for each in answer.brokers},
        racks={each.node_id: each.rack for each in answer.brokers},
        topics={each.name: _topic(each) for each in answer.topics if each.name is not None},
    )


def _topic(topic: MetadataResponseTopic) -> TopicView:
    partitions = (
        PartitionView(
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            error_code(each.error_code),
        )
        for each in topic.partitions
    )
    return TopicView(
        name=topic.name or "",
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        error=error_code(topic.error_code),
        partitions={each.partition: each for each in sorted(partitions)},
    )
