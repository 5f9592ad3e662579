"""ListPartitionReassignments, key 46: what replicas are on the move (KIP-455)."""

from collections.abc import Iterable

from ottla.handlers.call import Call
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.sliced import STRIDE, Steps


class ListPartitionReassignments:
    """Answers from the image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def handle(
        self, request: ListPartitionReassignmentsRequest, call: Call
    ) -> Steps[ListPartitionReassignmentsResponse]:
        """Tell of those named, or of all; what does not exist or does not move is left out."""
        del call
        found: list[OngoingTopicReassignment] = []
        if request.topics is None:
            for topic in list(self._image.topics.values()):
                yield from self._add(found, topic, range(len(topic.partitions)))
        else:
            for named in request.topics:
                known = self._image.topic(named.name)
                if known is not None:
                    yield from self._add(found, known, named.partition_indexes)
        return ListPartitionReassignmentsResponse(topics=found)

    def _add(
        self, found: list[OngoingTopicReassignment], topic: TopicImage, indexes: Iterable[int]
    ) -> Steps[None]:
        moving = []
        for count, index in enumerate(indexes, 1):
            if not count % STRIDE:
                yield None
            if not 0 <= index < len(topic.partitions):
                continue
            state = topic.partitions[index]
            if state.adding or state.removing:
                moving.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(state.replicas),
                        adding_replicas=list(state.adding),
                        removing_replicas=list(state.removing),
                    )
                )
        if moving:
            found.append(OngoingTopicReassignment(name=topic.name, partitions=moving))
        yield None
