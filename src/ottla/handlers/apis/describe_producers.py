"""DescribeProducers, key 61: what a partition knows of its idempotent producers (KIP-664).

Tools find hanging transactions with it. A partition that is named twice is answered once (Kafka
answers it twice). Source: the answers of a live Kafka 4.3.
"""

from ottla.cluster.topics import topic_name_error
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.answer_room import AnswerRoom
from ottla.handlers.call import Call
from ottla.ids import TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from ottla.records.batch import NO_SEQUENCE
from ottla.replication.partition import check_standing
from ottla.replication.replica_manager import ReplicaManager
from ottla.sliced import Steps, distinct, each, each_in_steps


class DescribeProducers:
    """Answers from the logs of partitions that this node leads."""

    def __init__(
        self, replica_manager: ReplicaManager, image: MetadataImage, *, elements_max: int
    ) -> None:
        self._replica_manager = replica_manager
        self._image = image
        self._elements_max = elements_max

    def handle(
        self, request: DescribeProducersRequest, call: Call
    ) -> Steps[DescribeProducersResponse]:
        """Return the producers, or an error, of each partition."""
        del call
        room = AnswerRoom(self._elements_max)
        seen: dict[str, set[int]] = {}
        topics = yield from each_in_steps(
            request.topics, lambda topic: self._describe_all(topic, room, seen)
        )
        return DescribeProducersResponse(topics=topics)

    def _describe_all(
        self, topic: TopicRequest, room: AnswerRoom, seen: dict[str, set[int]]
    ) -> Steps[TopicResponse]:
        known = seen.setdefault(topic.name, set())
        named = yield from distinct(topic.partition_indexes)
        indexes = [index for index in named if index not in known]
        yield None
        known.update(indexes)
        refusal: tuple[ErrorCode, str | None] | None = None
        why = topic_name_error(topic.name)
        if why is not None:
            refusal = ErrorCode.INVALID_TOPIC_EXCEPTION, why
        elif topic.name not in self._image.topics:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refusal = code, code.text
        if refusal is not None:
            code, why = refusal
            parts = yield from each(indexes, lambda index: _refused(index, code, why))
        else:
            parts = yield from each_in_steps(
                indexes, lambda index: self._describe(topic.name, index, room)
            )
        return TopicResponse(name=topic.name, partitions=parts)

    def _describe(self, topic: str, index: int, room: AnswerRoom) -> Steps[PartitionResponse]:
        try:
            partition = self._replica_manager.leader_of(TopicPartition(topic, index))
            check_standing(partition)
        except KafkaError as error:
            return _refused(index, error.code, None)
        if not room.take(1 + len(partition.producers)):
            return _refused(index, room.refusal.code, room.refusal.why)
        producers = yield from each(
            list(partition.producers),
            lambda one: ProducerState(
                producer_id=one[0],
                producer_epoch=one[1].epoch,
                last_sequence=one[1].batches[-1].last_sequence if one[1].batches else NO_SEQUENCE,
                last_timestamp=one[1].last_timestamp,
                coordinator_epoch=one[1].coordinator_epoch,
                current_txn_start_offset=one[1].current_transaction_first_offset,
            ),
        )
        return PartitionResponse(partition_index=index, active_producers=producers)


def _refused(index: int, code: ErrorCode, why: str | None) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=code, error_message=why, active_producers=[]
    )
