"""AlterReplicaLogDirs, key 34: replicas move to other log directories of this node. v2 is flexible.

Answered when the move has begun; DescribeLogDirs tells how far it is (KIP-113). A directory is
known by the exact text of ``log.dirs``, made absolute.
"""

from ottla.handlers.call import Call
from ottla.housekeeping.relocation import Relocation
from ottla.ids import TopicPartition
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.sliced import STRIDE, Steps


class AlterReplicaLogDirs:
    """Begins moves."""

    def __init__(self, relocation: Relocation) -> None:
        self._relocation = relocation

    def handle(
        self, request: AlterReplicaLogDirsRequest, call: Call
    ) -> Steps[AlterReplicaLogDirsResponse]:
        """Answer per partition; of one named twice the last directory counts, as in Kafka."""
        del call
        wanted = {
            TopicPartition(topic.name, index): directory.path
            for directory in request.dirs
            for topic in directory.topics
            for index in topic.partitions
        }
        answers: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        for ordinal, (where, path) in enumerate(wanted.items()):
            if ordinal % STRIDE == STRIDE - 1:
                yield None
            answers.setdefault(where.topic, []).append(
                AlterReplicaLogDirPartitionResult(
                    partition_index=where.partition,
                    error_code=self._relocation.move(where, path),
                )
            )
        return AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
                for name, partitions in answers.items()
            ]
        )
