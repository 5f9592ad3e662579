"""DeleteRecords, key 21: deletes a partition's records below an offset. v2 is flexible (KIP-107).

Answers when the new log start offsets are durable, and followers that are alive have them, too:
``timeout_ms`` limits the wait for these. As in a live Kafka, a topic that is only compacted
refuses, and one without a cleanup policy does not. An internal topic refuses whatever its policy,
because its records together are the state of groups and transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.apis.metadata import is_internal
from ottla.handlers.call import Call
from ottla.housekeeping.deletion import Deletion
from ottla.ids import TopicId, TopicPartition
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.replication.append import gone_meanwhile
from ottla.replication.replica_manager import ReplicaManager
from ottla.sliced import STRIDE, Steps, each

if TYPE_CHECKING:  # Types only: most nodes have no followers.
    from ottla.replication.low_watermarks import LowWatermark
    from ottla.replication.partition import Partition

    Outcome = int | KafkaError | LowWatermark
    """The log start offset; why it could not be raised; or how far the followers are."""

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
        outcomes = yield from self._delete(wanted)
        yield from self._wait_for_followers(outcomes, request.timeout_ms)
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

    def _wait_for_followers(
        self, outcomes: dict[TopicPartition, Outcome], timeout_ms: int
    ) -> Steps[None]:
        replicas = self._replica_manager.replicas
        if replicas is None:
            return
        waited: list[TopicPartition] = []
        wanted: list[tuple[Partition, int]] = []
        for count, (where, offset) in enumerate(outcomes.items(), 1):
            if not count % STRIDE:
                yield None
            partition = self._replica_manager.get(where)
            if isinstance(offset, int) and partition is not None and partition.view is not None:
                waited.append(where)
                wanted.append((partition, offset))
        found: list[LowWatermark] = yield replicas.low_watermarks.wait(wanted, timeout_ms)
        outcomes.update(zip(waited, found, strict=True))

    def _delete(self, wanted: dict[TopicPartition, int]) -> Steps[dict[TopicPartition, Outcome]]:
        """Raise log start offsets here; return what became of each."""
        meant = {where: self._replica_manager.topic_id_of(where) for where in wanted}
        deleted = yield self._deletion.delete_records(list(wanted.items()))
        outcomes: dict[TopicPartition, Outcome] = dict(zip(wanted, deleted, strict=True))
        for count, where in enumerate(wanted, 1):
            if not count % STRIDE:
                yield None
            if isinstance(outcomes[where], int):
                outcomes[where] = self._why_in_vain(where, meant[where]) or outcomes[where]
        return outcomes

    def _why_in_vain(self, where: TopicPartition, meant: TopicId | None) -> KafkaError | None:
        """Return why what was deleted here may be there again: another node leads by now.

        Or the topic is gone. None: it is not.
        """
        if self._replica_manager.topic_id_of(where) not in (meant, None):
            return gone_meanwhile(where)
        try:
            self._replica_manager.leader_of(where)
        except KafkaError as error:
            return error.as_value()
        return None

    def _check(self, where: TopicPartition) -> None:
        """Raise KafkaError unless records of the partition may be deleted here."""
        self._replica_manager.leader_of(where)
        if is_internal(where.topic):
            why = f"{where.topic} is internal: its records are not for clients to delete"
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)


def _result(partition: int, outcome: Outcome) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, KafkaError):
        low_watermark, code = NO_LOW_WATERMARK, outcome.code
    elif isinstance(outcome, tuple):
        low_watermark, code = outcome
    else:
        low_watermark, code = outcome, ErrorCode.NONE
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=low_watermark, error_code=code
    )
