"""AlterReplicaLogDirs, key 34: moves replicas to other log directories of this node. v2 flexible.

Answers when the moves have begun; DescribeLogDirs tells how far they are (KIP-113). A directory is
named by its text in ``log.dirs``, made absolute.
"""

from itertools import islice

from ottla.handlers.call import Call
from ottla.housekeeping.relocation import Relocation
from ottla.ids import TopicPartition
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.sliced import RUN, STRIDE, Steps


class AlterReplicaLogDirs:
    """Begins moves of replicas."""

    def __init__(self, relocation: Relocation) -> None:
        self._relocation = relocation

    def handle(
        self, request: AlterReplicaLogDirsRequest, call: Call
    ) -> Steps[AlterReplicaLogDirsResponse]:
        """Return one code per partition; of one named twice the last directory counts (Kafka)."""
        del call
        wanted: dict[TopicPartition, str] = {}
        for directory in request.dirs:
            for topic in directory.topics:
                name, path = topic.name, directory.path
                left_of_topic = iter(topic.partitions)
                while indexes := list(islice(left_of_topic, RUN)):
                    wanted.update((TopicPartition(name, index), path) for index in indexes)
                    yield None
                yield None
        answers: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        left = iter(wanted.items())
        while some := list(islice(left, STRIDE)):
            beginning = [(where, self._relocation.move(where, path)) for where, path in some]
            for where, pending in beginning:
                code = yield pending
                answers.setdefault(where.topic, []).append(
                    AlterReplicaLogDirPartitionResult(
                        partition_index=where.partition, error_code=code
                    )
                )
            yield None
        return AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
                for name, partitions in answers.items()
            ]
        )
