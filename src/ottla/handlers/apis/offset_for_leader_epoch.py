"""OffsetForLeaderEpoch, key 23: tells where the records of a leader epoch end.

After a change of leaders consumers ask whether the last record they read is still in the log, and
followers ask where to truncate. v2 current leader epoch (KIP-320), v3 replica id, v4 flexible. The
answer may be up to the log end offset, above the high watermark, as Kafka's.
"""

from ottla.errors import KafkaError
from ottla.handlers.call import Call
from ottla.ids import TopicPartition
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from ottla.replication.partition import check_standing
from ottla.replication.replica_manager import ReplicaManager
from ottla.sliced import Steps, each, each_in_steps


class OffsetForLeaderEpoch:
    """Asks the logs of partitions that this node leads."""

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._replica_manager = replica_manager

    def handle(
        self, request: OffsetForLeaderEpochRequest, call: Call
    ) -> Steps[OffsetForLeaderEpochResponse]:
        """Return epoch and end offset per partition, in order; both -1: the log does not know."""
        del call
        return OffsetForLeaderEpochResponse(
            topics=(yield from each_in_steps(request.topics, self._look_up_all))
        )

    def _look_up_all(self, topic: OffsetForLeaderTopic) -> Steps[OffsetForLeaderTopicResult]:
        partitions = yield from each(
            topic.partitions, lambda part: self._look_up(topic.topic, part)
        )
        return OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)

    def _look_up(self, topic: str, part: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            where = TopicPartition(topic, part.partition)
            partition = self._replica_manager.leader_of(where, part.current_leader_epoch)
            end = partition.end_offset_for_epoch(part.leader_epoch)
            # Consumers go to where they reset to when their epoch is not known.
            check_standing(partition, is_final=end.epoch < 0)
        except KafkaError as error:
            return EpochEndOffset(partition=part.partition, error_code=error.code)
        return EpochEndOffset(
            partition=part.partition, leader_epoch=end.epoch, end_offset=end.end_offset
        )
