"""DeleteRecords, key 21: partitions forget what lies below an offset. v2 is flexible (KIP-107).

Answered when the new log start offsets are durable. ``timeout_ms`` bounds the wait for followers,
of which there are none. A topic that is only compacted refuses, as a live Kafka does; one without
any cleanup policy does not.
"""

from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.ids import TopicPartition
from ottla.pending import Pending
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.replication.replica_manager import ReplicaManager

NO_LOW_WATERMARK = -1


class DeleteRecords:
    """Has the replica manager raise log start offsets."""

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._replica_manager = replica_manager

    def handle(self, request: DeleteRecordsRequest, call: Call) -> Pending[DeleteRecordsResponse]:
        """Answer per partition; of one named twice the last offset counts, as in Kafka."""
        del call
        wanted = {
            TopicPartition(topic.name, part.partition_index): part.offset
            for topic in request.topics
            for part in topic.partitions
        }

        def respond(outcomes: list[int | KafkaError]) -> DeleteRecordsResponse:
            answers: dict[str, list[DeleteRecordsPartitionResult]] = {}
            for where, outcome in zip(wanted, outcomes, strict=True):
                answers.setdefault(where.topic, []).append(_result(where.partition, outcome))
            return DeleteRecordsResponse(
                topics=[
                    DeleteRecordsTopicResult(name=name, partitions=partitions)
                    for name, partitions in answers.items()
                ]
            )

        return self._replica_manager.delete_records(list(wanted.items())).then(respond)


def _result(partition: int, outcome: int | KafkaError) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, KafkaError):
        low_watermark, code = NO_LOW_WATERMARK, outcome.code
    else:
        low_watermark, code = outcome, ErrorCode.NONE
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=low_watermark, error_code=code
    )
