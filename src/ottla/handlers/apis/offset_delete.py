"""OffsetDelete, key 47: forgets a group's offsets of topics that it does not read any more."""

from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.ids import TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.pending import Pending
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


class OffsetDelete:
    """Hands what exists to the group."""

    def __init__(self, groups: GroupCoordinator, image: MetadataImage) -> None:
        self._groups = groups
        self._image = image

    def handle(self, request: OffsetDeleteRequest, call: Call) -> Pending[OffsetDeleteResponse]:
        """Answer per partition, or with an error for all."""
        del call
        asked = [
            TopicPartition(topic.name, part.partition_index)
            for topic in request.topics
            for part in topic.partitions
        ]
        exists = [self._image.partition(where) is not None for where in asked]
        wanted = [where for where, is_there in zip(asked, exists, strict=True) if is_there]

        def respond(outcome: list[ErrorCode] | KafkaError) -> OffsetDeleteResponse:
            if isinstance(outcome, KafkaError):
                return OffsetDeleteResponse(error_code=outcome.code, topics=[])
            codes = iter(outcome)
            answers = iter(
                [
                    next(codes) if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    for is_there in exists
                ]
            )
            return OffsetDeleteResponse(
                topics=[
                    OffsetDeleteResponseTopic(
                        name=topic.name,
                        partitions=[
                            OffsetDeleteResponsePartition(
                                partition_index=part.partition_index, error_code=next(answers)
                            )
                            for part in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )

        return self._groups.delete_offsets(request.group_id, wanted).then(respond)
