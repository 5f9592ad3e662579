"""Where replicas are and who leads: reassignments, elections, moves between log directories.

On asyncio. Owns requests and answers; ``cluster`` owns connections and retries. Source: KIP-455
(reassignments), KIP-460 (elections), KIP-113 (directories).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.partitions import by_topic
from ottla.client.wire.errors import error_code
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

Outcomes = dict[TopicPartition, KafkaError | None]
"""What came of each partition; None: it was done."""


class Reassignment(NamedTuple):
    """A partition whose replicas are being moved; brokers by number."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Moves:
    """Calls that move replicas and leaders. Every method raises KafkaError if all was refused."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def reassign(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        may_change_factor: bool = True,
    ) -> Outcomes:
        """Have partitions on these brokers, the preferred leader first; None: as before a move.

        ``may_change_factor``: False: brokers that know KIP-860 refuse more or fewer replicas.
        """
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._cluster.settings.request_timeout_ms,
            allow_replication_factor_change=may_change_factor,
            topics=[
                ReassignableTopic(
                    name=name,
                    partitions=[
                        ReassignablePartition(
                            partition_index=each, replicas=_listed(targets, name, each)
                        )
                        for each in indexes
                    ],
                )
                for name, indexes in by_topic(targets).items()
            ],
        )

        async def attempt() -> Outcomes:
            connection = await self._cluster.controller()
            answer = await connection.call(request, AlterPartitionReassignmentsResponse)
            _check(answer.error_code, answer.error_message)
            return {
                TopicPartition(topic.name, one.partition_index): _error(
                    one.error_code, one.error_message
                )
                for topic in answer.responses
                for one in topic.partitions
            }

        return await self._cluster.retrying(attempt)

    async def reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the moves under way, of these partitions (None: all)."""
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                for name, indexes in by_topic(partitions).items()
            ]
        request = ListPartitionReassignmentsRequest(
            timeout_ms=self._cluster.settings.request_timeout_ms, topics=topics
        )

        async def attempt() -> dict[TopicPartition, Reassignment]:
            connection = await self._cluster.controller()
            answer = await connection.call(request, ListPartitionReassignmentsResponse)
            _check(answer.error_code, answer.error_message)
            return {
                TopicPartition(topic.name, one.partition_index): Reassignment(
                    tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
                )
                for topic in answer.topics
                for one in topic.partitions
            }

        return await self._cluster.retrying(attempt)

    async def elect(
        self, partitions: Iterable[TopicPartition], *, is_unclean: bool = False
    ) -> Outcomes:
        """Let the preferred replicas lead, or ``is_unclean`` any, where nobody leads.

        ELECTION_NOT_NEEDED is the outcome where the right one leads already.
        """
        request = ElectLeadersRequest(
            election_type=int(is_unclean),
            topic_partitions=[
                TopicPartitions(topic=name, partitions=indexes)
                for name, indexes in by_topic(partitions).items()
            ],
            timeout_ms=self._cluster.settings.request_timeout_ms,
        )

        async def attempt() -> Outcomes:
            connection = await self._cluster.controller()
            answer = await connection.call(request, ElectLeadersResponse)
            _check(answer.error_code, None)
            return {
                TopicPartition(result.topic, one.partition_id): _error(
                    one.error_code, one.error_message
                )
                for result in answer.replica_election_results
                for one in result.partition_result
            }

        return await self._cluster.retrying(attempt)

    async def move_to_directory(
        self, broker_id: int, path: str, partitions: Iterable[TopicPartition]
    ) -> Outcomes:
        """Have one broker's replicas of partitions in another of its log directories."""
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=name, partitions=indexes)
                        for name, indexes in by_topic(partitions).items()
                    ],
                )
            ]
        )

        async def attempt() -> Outcomes:
            connection = await self._cluster.connection(broker_id)
            answer = await connection.call(request, AlterReplicaLogDirsResponse)
            return {
                TopicPartition(topic.topic_name, one.partition_index): _error(one.error_code, None)
                for topic in answer.results
                for one in topic.partitions
            }

        return await self._cluster.retrying(attempt)


def _listed(
    targets: Mapping[TopicPartition, Sequence[int] | None], name: str, index: int
) -> list[int] | None:
    target = targets[TopicPartition(name, index)]
    return None if target is None else list(target)


def _error(code: int, message: str | None) -> KafkaError | None:
    if code == ErrorCode.NONE:
        return None
    error = error_code(code)
    return KafkaError(error, message or error.text)


def _check(code: int, message: str | None) -> None:
    error = _error(code, message)
    if error is not None:
        raise error
