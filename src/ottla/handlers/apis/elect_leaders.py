"""ElectLeaders, key 43: lets preferred replicas lead, or such as may lack records (KIP-460)."""

from ottla.cluster.in_time import Patience
from ottla.env.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.ids import TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from ottla.replication.administration import Election, ReplicaAdministration
from ottla.sliced import Steps, each, each_in_steps


class ElectLeaders:
    """Asks for elections; answers when this node has heard of their outcome."""

    def __init__(
        self, administration: ReplicaAdministration, image: MetadataImage, clock: Clock
    ) -> None:
        self._administration = administration
        self._image = image
        self._clock = clock

    def handle(self, request: ElectLeadersRequest, call: Call) -> Steps[ElectLeadersResponse]:
        """Elect for each partition that is named, or for all; each succeeds or fails alone.

        Of all partitions those are told that needed an election.
        """
        del call
        named = request.topic_partitions
        try:
            election = Election(request.election_type)
        except ValueError:
            why = f"Unknown election type {request.election_type}"
            return (yield from refused(named, KafkaError(ErrorCode.INVALID_REQUEST, why)))
        if request.timeout_ms <= 0:
            over = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            return (yield from refused(named, over, is_told=False))
        is_all = named is None
        asked = yield from self._all() if named is None else each_in_steps(named, _indexes)
        wanted = [where for _, wheres in asked for where in wheres]
        yield None
        outcomes: list[KafkaError | None] = yield self._administration.elect(
            election, wanted, Patience(self._clock, request.timeout_ms)
        )
        left = iter(outcomes)

        def results(one: tuple[str, list[TopicPartition]]) -> Steps[ReplicaElectionResult]:
            found = yield from each(one[1], lambda where: self._result(where, next(left)))
            if is_all:
                not_needed = ErrorCode.ELECTION_NOT_NEEDED
                found = [each for each in found if each.error_code != not_needed]
            return ReplicaElectionResult(topic=one[0], partition_result=found)

        return ElectLeadersResponse(
            replica_election_results=(yield from each_in_steps(asked, results))
        )

    def _all(self) -> Steps[list[tuple[str, list[TopicPartition]]]]:
        return (
            yield from each(
                list(self._image.topics.values()),
                lambda topic: (
                    topic.name,
                    [TopicPartition(topic.name, index) for index in range(len(topic.partitions))],
                ),
            )
        )

    def _result(self, where: TopicPartition, outcome: KafkaError | None) -> PartitionResult:
        if outcome is None:
            return PartitionResult(partition_id=where.partition)
        why: str | None = outcome.why or None
        if outcome.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            is_topic = self._image.topic(where.topic) is not None
            what = f"partition as {where.topic}-{where.partition}" if is_topic else "topic as "
            why = f"No such {what}{'' if is_topic else where.topic}"
        return PartitionResult(
            partition_id=where.partition, error_code=outcome.code, error_message=why
        )


def _indexes(topic: TopicPartitions) -> Steps[tuple[str, list[TopicPartition]]]:
    name = topic.topic
    found = yield from each(topic.partitions, lambda index: TopicPartition(name, index))
    return name, found


def refused(
    named: list[TopicPartitions] | None, error: KafkaError, *, is_told: bool = True
) -> Steps[ElectLeadersResponse]:
    """Return the refusal of a whole request; ``is_told``: with the error's text."""
    why = error.why if is_told else None

    def results(topic: TopicPartitions) -> Steps[ReplicaElectionResult]:
        found = yield from each(
            topic.partitions,
            lambda index: PartitionResult(
                partition_id=index, error_code=error.code, error_message=why
            ),
        )
        return ReplicaElectionResult(topic=topic.topic, partition_result=found)

    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=(yield from each_in_steps(named or [], results)),
    )
