"""DeleteRecords, key 21: deletes a partition's records below an offset. v2 is flexible (KIP-107).

Answers when the new log start offsets are durable. ``timeout_ms`` limits the wait for followers, of
which there are none. As in a live Kafka, a topic that is only compacted refuses, and one without a
cleanup policy does not. An internal topic refuses whatever its policy, because its records together
are the state of groups and transactions.
"""

from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.apis.metadata import is_internal
from ottla.handlers.call import Call
from ottla.housekeeping.deletion import Deletion
from ottla.ids import TopicPartition
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.replication.replica_manager import ReplicaManager
from ottla.sliced import STRIDE, Steps, each

NO_LOW_WATERMARK = -1


class DeleteRecords:
    """Has the log start offsets of partitions raised."""

    def __init__(self, replica_manager: ReplicaManager, deletion: Deletion) -> None:
        self._replica_manager = replica_manager
        self._deletion = deletion

    def handle(self, request: DeleteRecordsRequest, call: Call) -> Steps[DeleteRecordsResponse]:
        """Return one result per partition; of one named twice the last offset counts (Kafka)."""
        del call
        wanted: dict[TopicPartition, int] = {}
        refused: dict[TopicPartition, KafkaError] = {}
        for topic in request.topics:
            yield None
            for count, part in enumerate(topic.partitions, 1):
                if not count % STRIDE:
                    yield None
                where = TopicPartition(topic.name, part.partition_index)
                if where in refused:
                    continue
                try:
                    self._check(where)
                except KafkaError as error:
                    refused[where] = error.as_value()
                else:
                    wanted[where] = part.offset
        deleted = yield self._deletion.delete_records(list(wanted.items()))
        outcomes = dict(zip(wanted, deleted, strict=True))
        answers: dict[str, dict[int, DeleteRecordsPartitionResult]] = {}
        for topic in request.topics:
            yield None
            found = answers.setdefault(topic.name, {})
            for count, part in enumerate(topic.partitions, 1):
                if not count % STRIDE:
                    yield None
                index = part.partition_index
                where = TopicPartition(topic.name, index)
                found[index] = _result(index, refused.get(where) or outcomes[where])
        topics = yield from each(
            answers.items(),
            lambda one: DeleteRecordsTopicResult(name=one[0], partitions=list(one[1].values())),
        )
        return DeleteRecordsResponse(topics=topics)

    def _check(self, where: TopicPartition) -> None:
        """Raise KafkaError unless records of the partition may be deleted here."""
        self._replica_manager.leader_of(where)
        if is_internal(where.topic):
            why = f"{where.topic} is internal: its records are not for clients to delete"
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)


def _result(partition: int, outcome: int | KafkaError) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, KafkaError):
        low_watermark, code = NO_LOW_WATERMARK, outcome.code
    else:
        low_watermark, code = outcome, ErrorCode.NONE
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=low_watermark, error_code=code
    )
