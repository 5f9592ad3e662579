"""What lies in partitions: sizes by broker and disk, who writes there, deletion from the start.

On asyncio. Owns requests and answers; ``cluster`` owns connections and retries. Source: KIP-107
(DeleteRecords), KIP-113 (DescribeLogDirs), KIP-664 (DescribeProducers).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.asyncio.cluster import Cluster
from ottla.client.wire.errors import error_code
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)


class LogDir(NamedTuple):
    """A directory of logs on one broker; bytes are None where the broker does not tell."""

    broker_id: int
    path: str
    total_bytes: int | None
    free_bytes: int | None
    error: ErrorCode
    replicas: tuple["ReplicaLog", ...]


class ReplicaLog(NamedTuple):
    """One replica on one disk; ``is_future``: it is on its way there from another disk."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


class ActiveProducer(NamedTuple):
    """A producer that a partition remembers; ``first_offset``: of its open transaction, or None."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    first_offset: int | None


class Partitions:
    """Calls on partitions. Every method raises KafkaError with the broker's own words."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def log_dirs(self, partitions: Iterable[TopicPartition] | None = None) -> list[LogDir]:
        """Return all brokers' log directories, with these partitions' replicas (None: all)."""
        topics = None
        if partitions is not None:
            topics = [
                DescribableLogDirTopic(topic=name, partitions=indexes)
                for name, indexes in by_topic(partitions).items()
            ]
        request = DescribeLogDirsRequest(topics=topics)

        async def attempt() -> list[LogDir]:
            view = await self._cluster.refresh([])
            found: list[LogDir] = []
            for node_id in sorted(view.brokers):
                connection = await self._cluster.connection(node_id)
                answer = await connection.call(request, DescribeLogDirsResponse)
                _check(answer.error_code, f"broker {node_id}")
                found += [
                    LogDir(
                        node_id,
                        each.log_dir,
                        each.total_bytes if each.total_bytes >= 0 else None,
                        each.usable_bytes if each.usable_bytes >= 0 else None,
                        error_code(each.error_code),
                        tuple(
                            ReplicaLog(
                                TopicPartition(topic.name, one.partition_index),
                                one.partition_size,
                                one.offset_lag,
                                one.is_future_key,
                            )
                            for topic in each.topics
                            for one in topic.partitions
                        ),
                    )
                    for each in answer.results
                ]
            return found

        return await self._cluster.retrying(attempt)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete the records before these offsets; return where each partition begins now."""
        left = dict(offsets)
        starts: dict[TopicPartition, int] = {}

        async def attempt() -> dict[TopicPartition, int]:
            await self._cluster.ensure({topic for topic, _ in left})
            for leader, partitions in self._cluster.view.by_leader(left).items():
                request = DeleteRecordsRequest(
                    topics=[
                        DeleteRecordsTopic(
                            name=name,
                            partitions=[
                                DeleteRecordsPartition(
                                    partition_index=each, offset=left[TopicPartition(name, each)]
                                )
                                for each in indexes
                            ],
                        )
                        for name, indexes in by_topic(partitions).items()
                    ],
                    timeout_ms=self._cluster.settings.request_timeout_ms,
                )
                connection = await self._cluster.connection(leader)
                answer = await connection.call(request, DeleteRecordsResponse)
                failed: KafkaError | None = None
                for topic in answer.topics:
                    for one in topic.partitions:
                        where = TopicPartition(topic.name, one.partition_index)
                        try:
                            _check(one.error_code, str(where))
                        except KafkaError as error:
                            failed = error
                            continue
                        starts[where] = one.low_watermark
                        left.pop(where, None)
                if failed is not None:
                    raise failed
            return starts

        return await self._cluster.retrying(attempt)

    async def producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """Return the producers that the leaders of these partitions remember."""
        wanted = list(partitions)

        async def attempt() -> dict[TopicPartition, list[ActiveProducer]]:
            await self._cluster.ensure({topic for topic, _ in wanted})
            found: dict[TopicPartition, list[ActiveProducer]] = {}
            for leader, led in self._cluster.view.by_leader(wanted).items():
                request = DescribeProducersRequest(
                    topics=[
                        TopicRequest(name=name, partition_indexes=indexes)
                        for name, indexes in by_topic(led).items()
                    ]
                )
                connection = await self._cluster.connection(leader)
                answer = await connection.call(request, DescribeProducersResponse)
                for topic in answer.topics:
                    for one in topic.partitions:
                        where = TopicPartition(topic.name, one.partition_index)
                        _check(one.error_code, one.error_message or str(where))
                        found[where] = [
                            ActiveProducer(
                                each.producer_id,
                                each.producer_epoch,
                                each.last_sequence,
                                each.last_timestamp,
                                each.coordinator_epoch,
                                each.current_txn_start_offset
                                if each.current_txn_start_offset >= 0
                                else None,
                            )
                            for each in one.active_producers
                        ]
            return found

        return await self._cluster.retrying(attempt)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the indexes of partitions by their topics."""
    found: dict[str, list[int]] = {}
    for name, index in partitions:
        found.setdefault(name, []).append(index)
    return found


def _check(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        error = error_code(code)
        raise KafkaError(error, f"{what}: {error.text}")
