"""AlterPartitionReassignments, key 45: moves replicas, or calls that off (KIP-455, KIP-860)."""

from ottla.cluster.in_time import Patience
from ottla.env.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.ids import TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from ottla.replication.administration import Move, ReplicaAdministration
from ottla.sliced import Steps, each, each_in_steps


class AlterPartitionReassignments:
    """Begins and cancels; answers when this node has heard of it, not when replicas have moved."""

    def __init__(
        self, administration: ReplicaAdministration, image: MetadataImage, clock: Clock
    ) -> None:
        self._administration = administration
        self._image = image
        self._clock = clock

    def handle(
        self, request: AlterPartitionReassignmentsRequest, call: Call
    ) -> Steps[AlterPartitionReassignmentsResponse]:
        """Change each partition that is named; each succeeds or fails on its own."""
        del call
        if request.timeout_ms <= 0:
            return (yield from refused(request, ErrorCode.REQUEST_TIMED_OUT, None))
        by_topic = yield from each_in_steps(request.topics, _moves)
        moves = [move for moves in by_topic for move in moves]
        yield None
        outcomes: list[KafkaError | None] = yield self._administration.reassign(
            moves,
            Patience(self._clock, request.timeout_ms),
            may_change_factor=request.allow_replication_factor_change,
        )
        left = iter(zip(moves, outcomes, strict=True))

        def results(topic: ReassignableTopic) -> Steps[ReassignableTopicResponse]:
            found = yield from each(topic.partitions, lambda _: self._result(*next(left)))
            return ReassignableTopicResponse(name=topic.name, partitions=found)

        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None if request.topics else "",  # As Kafka.
            responses=(yield from each_in_steps(request.topics, results)),
        )

    def _result(self, move: Move, outcome: KafkaError | None) -> ReassignablePartitionResponse:
        where = move.where
        if outcome is None:
            return ReassignablePartitionResponse(partition_index=where.partition)
        why: str | None = outcome.why or None
        if outcome.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            why = f"Unable to find partition {where.topic}:{where.partition}."
            if self._image.topic(where.topic) is None:
                why = f"Unable to find a topic named {where.topic}."
        return ReassignablePartitionResponse(
            partition_index=where.partition, error_code=outcome.code, error_message=why
        )


def _moves(topic: ReassignableTopic) -> Steps[list[Move]]:
    name = topic.name
    return (
        yield from each(
            topic.partitions,
            lambda one: Move(TopicPartition(name, one.partition_index), one.replicas),
        )
    )


def refused(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode, why: str | None
) -> Steps[AlterPartitionReassignmentsResponse]:
    """Return the refusal of a whole request."""

    def results(topic: ReassignableTopic) -> Steps[ReassignableTopicResponse]:
        found = yield from each(
            topic.partitions,
            lambda one: ReassignablePartitionResponse(
                partition_index=one.partition_index, error_code=code, error_message=why
            ),
        )
        return ReassignableTopicResponse(name=topic.name, partitions=found)

    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=why,
        responses=(yield from each_in_steps(request.topics, results)),
    )
