"""ListOffsets, key 2: offsets by time, and by the times that stand for a place in the log.

v2 isolation level (KIP-98), v4 leader epochs (KIP-320), v7 the largest timestamp (KIP-734), v8 the
earliest local offset, v9 the latest tiered one (KIP-405/1005), v11 the earliest not yet tiered.
A special timestamp before its version is UNSUPPORTED_VERSION, as a live Kafka answers.
"""

from collections import Counter

from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.ids import TopicPartition
from ottla.log.results import TimestampedOffset
from ottla.log.segment.time_lookup import FoundRecord
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.records.batch import NO_TIMESTAMP
from ottla.replication.fetch import Isolation, exposed_end
from ottla.replication.partition import Partition
from ottla.replication.replica_manager import ReplicaManager
from ottla.sliced import Steps

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NEVER = 1 << 15


class ListOffsets:
    """Looks offsets up in the logs that this node leads."""

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._replica_manager = replica_manager

    def handle(self, request: ListOffsetsRequest, call: Call) -> Steps[ListOffsetsResponse]:
        """Answer per partition; one named twice is INVALID_REQUEST.

        Batches that take long to search are searched in an executor, one at a time.
        """
        times: Counter[tuple[str, int]] = Counter()
        for topic in request.topics:
            times.update((topic.name, part.partition_index) for part in topic.partitions)
            yield None
        isolation = (
            Isolation.READ_COMMITTED
            if request.isolation_level == Isolation.READ_COMMITTED
            else Isolation.READ_UNCOMMITTED
        )
        answers: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
        for topic in request.topics:
            found = answers.setdefault(topic.name, {})
            for part in topic.partitions:
                where = TopicPartition(topic.name, part.partition_index)
                if times[where] > 1:
                    yield None
                    found[part.partition_index] = _refused(part, ErrorCode.INVALID_REQUEST)
                else:
                    looked_up = yield from self._look_up(where, part, isolation, call)
                    found[part.partition_index] = looked_up
                    yield None
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(name=name, partitions=list(found.values()))
                for name, found in answers.items()
            ]
        )

    def _look_up(
        self, where: TopicPartition, part: ListOffsetsPartition, isolation: Isolation, call: Call
    ) -> Steps[ListOffsetsPartitionResponse]:
        if part.timestamp < 0 and call.api_version < _SINCE.get(part.timestamp, _NEVER):
            return _refused(part, ErrorCode.UNSUPPORTED_VERSION)
        try:
            partition = self._replica_manager.leader_of(where, part.current_leader_epoch)
            found = yield from self._find(partition, part.timestamp, isolation)
        except KafkaError as error:
            return _refused(part, error.code)
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
        """Return what stands at a time or at a special one; None when nothing does.

        Only what the isolation level may see counts. Reads the log, and so may block on the disk.
        """
        if timestamp < 0 and timestamp != MAX_TIMESTAMP:
            return _special(partition, timestamp, isolation)
        log = partition.log
        search = log.search_timestamp(None if timestamp == MAX_TIMESTAMP else timestamp)
        found: FoundRecord | None = None
        try:
            batch = next(search)
            while True:
                is_done, found = batch.run_if_short()
                if not is_done:
                    found = yield self._replica_manager.search_elsewhere(batch)
                yield None
                log.ensure_open()  # It may have gone meanwhile, with its files.
                batch = search.send(found)
        except StopIteration as end:
            found = end.value
        if found is None or found.offset >= exposed_end(partition, isolation):
            return None
        return log.place_of(found)


def _special(
    partition: Partition, timestamp: int, isolation: Isolation
) -> TimestampedOffset | None:
    """Return what stands at a special timestamp other than the largest; None when nothing does."""
    if timestamp == LATEST:
        end = exposed_end(partition, isolation)
        return TimestampedOffset(NO_TIMESTAMP, end, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = partition.log_start_offset
        epoch = partition.log.leader_epochs.epoch_for_offset(start)
        return TimestampedOffset(
            NO_TIMESTAMP, start, partition.leader_epoch if epoch < 0 else epoch
        )
    return None  # Nothing is tiered, so nothing waits for it either.


def _refused(part: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=code)
