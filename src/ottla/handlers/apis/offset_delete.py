"""OffsetDelete, key 47: deletes a group's offsets of topics that it no longer reads."""

from itertools import islice

from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.ids import TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.sliced import STRIDE, Steps, each


class OffsetDelete:
    """Passes the existing partitions to the group coordinator."""

    def __init__(self, groups: GroupCoordinator, image: MetadataImage) -> None:
        self._groups = groups
        self._image = image

    def handle(self, request: OffsetDeleteRequest, call: Call) -> Steps[OffsetDeleteResponse]:
        """Return one code per partition, or one error for all."""
        del call
        asked: list[TopicPartition] = []
        wanted: dict[TopicPartition, None] = {}
        for topic in request.topics:
            yield None
            for part in topic.partitions:
                if len(asked) % STRIDE == STRIDE - 1:
                    yield None
                where = TopicPartition(topic.name, part.partition_index)
                asked.append(where)
                if self._image.partition(where) is not None:
                    wanted[where] = None
        try:
            deleted = yield self._groups.delete_offsets(request.group_id, list(wanted))
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=error.code, topics=[])
        codes = dict(zip(wanted, deleted, strict=True))
        answers = yield from each(
            asked,
            lambda where: OffsetDeleteResponsePartition(
                partition_index=where.partition,
                error_code=codes.get(where, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ),
        )
        parts = iter(answers)
        return OffsetDeleteResponse(
            topics=[
                OffsetDeleteResponseTopic(
                    name=topic.name, partitions=list(islice(parts, len(topic.partitions)))
                )
                for topic in request.topics
            ]
        )
