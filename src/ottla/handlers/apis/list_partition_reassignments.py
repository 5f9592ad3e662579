"""ListPartitionReassignments, key 46: what replicas are on the move (KIP-455)."""

from collections.abc import Iterable

from ottla.cluster.in_time import Patience
from ottla.env.clock import Clock
from ottla.errors import KafkaError
from ottla.handlers.call import Call
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.replication.administration import ReplicaAdministration
from ottla.sliced import STRIDE, Steps


class ListPartitionReassignments:
    """Answers from the image, once it has what was asked for by way of other nodes before.

    Else a reassignment that has just begun would be taken for one that is over.
    """

    def __init__(
        self, administration: ReplicaAdministration, image: MetadataImage, clock: Clock
    ) -> None:
        self._administration = administration
        self._image = image
        self._clock = clock

    def handle(
        self, request: ListPartitionReassignmentsRequest, call: Call
    ) -> Steps[ListPartitionReassignmentsResponse]:
        """Tell of those named, or of all; what does not exist or does not move is left out."""
        del call
        outcomes: list[KafkaError | None] = yield self._administration.heard(
            Patience(self._clock, max(request.timeout_ms, 1))
        )
        if (behind := outcomes[0]) is not None:
            return ListPartitionReassignmentsResponse(
                error_code=behind.code, error_message=behind.why, topics=[]
            )
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
