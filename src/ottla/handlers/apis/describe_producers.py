"""DescribeProducers, key 61: what a partition remembers of who wrote to it (KIP-664).

Tools find hanging transactions with it. Topics and partitions are answered as they are asked for,
also twice. Source: the answers of a live Kafka 4.3.
"""

from ottla.cluster.topics import topic_name_error
from ottla.errors import ErrorCode, KafkaError
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
from ottla.replication.replica_manager import ReplicaManager


class DescribeProducers:
    """Asks the logs that this node leads."""

    def __init__(self, replica_manager: ReplicaManager, image: MetadataImage) -> None:
        self._replica_manager = replica_manager
        self._image = image

    def handle(self, request: DescribeProducersRequest, call: Call) -> DescribeProducersResponse:
        """Answer per partition."""
        del call
        return DescribeProducersResponse(
            topics=[
                TopicResponse(name=topic.name, partitions=self._describe_all(topic))
                for topic in request.topics
            ]
        )

    def _describe_all(self, topic: TopicRequest) -> list[PartitionResponse]:
        refusal: tuple[ErrorCode, str | None] | None = None
        why = topic_name_error(topic.name)
        if why is not None:
            refusal = ErrorCode.INVALID_TOPIC_EXCEPTION, why
        elif topic.name not in self._image.topics:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refusal = code, code.text
        if refusal is None:
            return [self._describe(topic.name, index) for index in topic.partition_indexes]
        return [_refused(index, *refusal) for index in topic.partition_indexes]

    def _describe(self, topic: str, index: int) -> PartitionResponse:
        try:
            partition = self._replica_manager.leader_of(TopicPartition(topic, index))
        except KafkaError as error:
            return _refused(index, error.code, None)
        return PartitionResponse(
            partition_index=index,
            active_producers=[
                ProducerState(
                    producer_id=producer_id,
                    producer_epoch=state.epoch,
                    last_sequence=(
                        state.batches[-1].last_sequence if state.batches else NO_SEQUENCE
                    ),
                    last_timestamp=state.last_timestamp,
                    coordinator_epoch=state.coordinator_epoch,
                    current_txn_start_offset=state.current_transaction_first_offset,
                )
                for producer_id, state in partition.log.producers.states
            ],
        )


def _refused(index: int, code: ErrorCode, why: str | None) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=code, error_message=why, active_producers=[]
    )
