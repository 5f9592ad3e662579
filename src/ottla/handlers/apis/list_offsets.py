"""ListOffsets, key 2: finds offsets by timestamp, or by special timestamps such as "earliest".

v2 isolation level (KIP-98), v4 leader epochs (KIP-320), v5 OFFSET_NOT_AVAILABLE (KIP-207), v7 the
largest timestamp (KIP-734), v8 the earliest local offset, v9 the latest tiered one (KIP-405/1005),
v11 the earliest not yet tiered.
A special timestamp before its version is UNSUPPORTED_VERSION, as a live Kafka answers.
"""

from collections import Counter

from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.ids import TopicPartition
from ottla.pending import Pending
from ottla.protocol.messages.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    MAX_TIMESTAMP,
    PLACES_SINCE,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.replication.fetch import Isolation
from ottla.replication.offset_lookup import end_of, find_by_time, is_end_known, start_of
from ottla.replication.partition import Partition, check_standing
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.results import TimestampedOffset
from ottla.sliced import Steps, each

_NEVER = 1 << 15
OFFSET_NOT_AVAILABLE_SINCE = 5
"""Older clients are told LEADER_NOT_AVAILABLE, and ask again, too (KIP-207)."""

_Doubts = dict[TopicPartition, Pending[bool]]
"""Of partitions that another node may lead by now: whether nobody did when this was asked."""


class ListOffsets:
    """Looks offsets up in the logs that this node leads."""

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._replica_manager = replica_manager

    def handle(self, request: ListOffsetsRequest, call: Call) -> Steps[ListOffsetsResponse]:
        """Return one offset per partition; INVALID_REQUEST for one that is named twice.

        Batches that take long to search are searched in an executor, one at a time.
        """
        times: Counter[tuple[str, int]] = Counter()
        for topic in request.topics:
            name = topic.name
            yield from each(
                topic.partitions,
                lambda part, name=name: times.update(((name, part.partition_index),)),  # type: ignore[misc]
            )
        isolation = (
            Isolation.READ_COMMITTED
            if request.isolation_level == Isolation.READ_COMMITTED
            else Isolation.READ_UNCOMMITTED
        )
        doubts: _Doubts = {}
        answers: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
        try:
            yield from each(times, lambda where: self._ask(TopicPartition(*where), doubts))
            for topic in request.topics:
                found = answers.setdefault(topic.name, {})
                for part in topic.partitions:
                    where = TopicPartition(topic.name, part.partition_index)
                    if times[where] > 1:
                        yield None
                        found[part.partition_index] = _refused(part, ErrorCode.INVALID_REQUEST)
                    else:
                        looked_up = yield from self._look_up(where, part, isolation, call, doubts)
                        found[part.partition_index] = looked_up
                        yield None
        finally:
            for doubt in doubts.values():
                doubt.cancel()
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(name=name, partitions=list(found.values()))
                for name, found in answers.items()
            ]
        )

    def _ask(self, where: TopicPartition, doubts: _Doubts) -> None:
        """Note in ``doubts`` a partition that others may lead by now.

        All are asked about before the first answer is waited for: each takes its time.
        """
        partition = self._replica_manager.get(where)
        if partition is not None and partition.confirm is not None and partition.is_leader:
            asked = partition.confirm(partition)
            if not asked.value:
                doubts[where] = asked

    def _look_up(
        self,
        where: TopicPartition,
        part: ListOffsetsPartition,
        isolation: Isolation,
        call: Call,
        doubts: _Doubts,
    ) -> Steps[ListOffsetsPartitionResponse]:
        if part.timestamp < 0 and call.api_version < PLACES_SINCE.get(part.timestamp, _NEVER):
            return _refused(part, ErrorCode.UNSUPPORTED_VERSION)
        try:
            leads = (yield doubts[where]) if where in doubts else True
            partition = self._replica_manager.leader_of(where, part.current_leader_epoch)
            check_standing(partition)
            if not leads:  # The next leader may have told a higher end.
                return _refused(part, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            found = yield from self._find(partition, part.timestamp, isolation)
        except KafkaError as error:
            return _refused(part, error.code)
        if not is_end_known(partition) and _may_be_above(part.timestamp, found, partition):
            is_told = call.api_version >= OFFSET_NOT_AVAILABLE_SINCE
            not_yet, older = ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE
            return _refused(part, not_yet if is_told else older)
        if found is None:
            return ListOffsetsPartitionResponse(partition_index=part.partition_index)
        return ListOffsetsPartitionResponse(
            partition_index=part.partition_index,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
        )

    def _find(
        self, partition: Partition, timestamp: int, isolation: Isolation
    ) -> Steps[TimestampedOffset | None]:
        """Return the offset for a timestamp or a special one; None when there is none.

        Sees only what the isolation level may see. Reads the log, and so may block on the disk.
        """
        if timestamp == LATEST:
            return end_of(partition, isolation)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return start_of(partition)
        if timestamp < 0 and timestamp != MAX_TIMESTAMP:
            return None  # The special timestamps of tiered storage: nothing is tiered.
        return (
            yield from find_by_time(
                partition,
                None if timestamp == MAX_TIMESTAMP else timestamp,
                isolation,
                self._replica_manager.search_elsewhere,
            )
        )


def _may_be_above(timestamp: int, found: TimestampedOffset | None, partition: Partition) -> bool:
    """Tell whether the answer would be another one with a higher high watermark."""
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return False
    is_special = timestamp in (LATEST, MAX_TIMESTAMP)
    return is_special or found is None or found.offset >= partition.high_watermark


def _refused(part: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=code)
