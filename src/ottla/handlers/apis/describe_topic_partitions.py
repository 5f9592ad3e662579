"""DescribeTopicPartitions, key 75: topics in name order, some partitions at a time (KIP-966)."""

from collections.abc import Iterable

from ottla.cluster.topics import topic_name_error
from ottla.errors import ErrorCode
from ottla.handlers.apis.metadata import is_internal
from ottla.handlers.call import Call
from ottla.handlers.leadership import Leaderships
from ottla.handlers.operations import TOPIC_OPERATIONS
from ottla.ids import NULL_TOPIC_ID
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.metadata.values import PartitionState
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.sliced import STRIDE, Steps, each, sorted_in_steps


class DescribeTopicPartitions:
    """Answers from the metadata image."""

    def __init__(
        self, image: MetadataImage, leaderships: Leaderships, *, partition_limit: int
    ) -> None:
        self._image = image
        self._leaderships = leaderships
        self._partition_limit = partition_limit

    def handle(
        self, request: DescribeTopicPartitionsRequest, call: Call
    ) -> Steps[DescribeTopicPartitionsResponse]:
        """Return one page; its cursor says where the next page begins, None: it was the last."""
        del call
        image = self._image
        asked: dict[str, None] = dict.fromkeys(image.topics) if not request.topics else {}
        yield from each(request.topics, lambda topic: asked.setdefault(topic.name))
        names = yield from sorted_in_steps(asked)
        cursor = request.cursor
        if cursor is not None:
            is_usable = cursor.partition_index >= 0 and (
                not request.topics or cursor.topic_name in asked
            )
            if not is_usable:  # As Kafka: what was named, as it was; nobody named all topics.
                refused = yield from each(request.topics, lambda topic: _refused(topic.name))
                return DescribeTopicPartitionsResponse(topics=refused)
            names = [name for name in names if name >= cursor.topic_name]
        room = max(min(request.response_partition_limit, self._partition_limit), 1)
        topics: list[DescribeTopicPartitionsResponseTopic] = []
        for name in names:
            if len(topics) % STRIDE == STRIDE - 1:
                yield None
            topic = image.topics.get(name)
            first = cursor.partition_index if cursor and cursor.topic_name == name else 0
            if room == 0:
                return _page(topics, Cursor(topic_name=name, partition_index=first))
            if topic is None:
                topics.append(_missing(name))
                continue
            indexes = range(first, len(topic.partitions))
            topics.append(self._topic(topic, indexes[:room]))
            if len(indexes) > room:
                return _page(topics, Cursor(topic_name=name, partition_index=indexes[room]))
            room -= len(indexes)
        return _page(topics, None)

    def _topic(
        self, topic: TopicImage, indexes: Iterable[int]
    ) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal(topic.name),
            partitions=[
                self._partition(topic.name, index, topic.partitions[index]) for index in indexes
            ],
            topic_authorized_operations=TOPIC_OPERATIONS,
        )

    def _partition(
        self, topic: str, index: int, state: PartitionState
    ) -> DescribeTopicPartitionsResponsePartition:
        code, leader, offline_replicas = self._leaderships.of(topic, index, state)
        return DescribeTopicPartitionsResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            eligible_leader_replicas=list(state.elr),
            last_known_elr=[],
            offline_replicas=offline_replicas,
        )


def _why_missing(name: str) -> ErrorCode:
    if topic_name_error(name) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_TOPIC_EXCEPTION


def _page(
    topics: list[DescribeTopicPartitionsResponseTopic], cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)


def _refused(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.INVALID_REQUEST, name=name, topic_id=NULL_TOPIC_ID, partitions=[]
    )


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=_why_missing(name),
        name=name,
        topic_id=NULL_TOPIC_ID,
        is_internal=is_internal(name),
        partitions=[],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
