"""DescribeLogDirs, key 35: the log directories, and how large the logs in them are.

v2 flexible, v3 an error for the whole answer, v4 the sizes of volumes (KIP-827), v5 cordoned
directories.
"""

from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.housekeeping.relocation import Relocation
from ottla.ids import TopicPartition
from ottla.pending import Pending
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.replication.partition import Partition
from ottla.replication.replica_manager import ReplicaManager
from ottla.sliced import STRIDE, Steps, each


class MeasuredDirectory(NamedTuple):
    """A log directory and the sizes of its volume, as measured now."""

    path: str
    """Absolute."""
    total_bytes: int
    usable_bytes: int
    error: Exception | None = None
    """Why it is offline or could not be measured; None: it was measured."""


class DescribeLogDirs:
    """Answers from the open logs and from measurements of the volumes."""

    def __init__(
        self,
        replicas: ReplicaManager,
        relocation: Relocation,
        measure: Callable[[], Pending[list[MeasuredDirectory]]],
    ) -> None:
        """Build the handler; ``measure`` measures every log directory, off the loop."""
        self._replicas = replicas
        self._relocation = relocation
        self._measure = measure

    def handle(
        self, request: DescribeLogDirsRequest, call: Call
    ) -> Pending[Steps[DescribeLogDirsResponse]]:
        """Describe every directory with the requested partitions in it; null topics means all."""
        del call

        def respond(directories: list[MeasuredDirectory]) -> Steps[DescribeLogDirsResponse]:
            wanted = yield from _wanted(request.topics)
            results = []
            for directory in directories:
                result = yield from self._result(directory, wanted)
                results.append(result)
            return DescribeLogDirsResponse(results=results)

        return self._measure().then(respond)

    def _result(
        self, directory: MeasuredDirectory, wanted: set[tuple[str, int]] | None
    ) -> Steps[DescribeLogDirsResult]:
        if directory.error is not None:
            return DescribeLogDirsResult(
                error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[]
            )
        here: list[Partition] = []
        for count, partition in enumerate(list(self._replicas.partitions), 1):
            if (
                (wanted is None or partition.topic_partition in wanted)
                and partition.log_dir == directory.path
                and self._replicas.offline(partition.topic_partition) is None
            ):
                here.append(partition)
            if not count % STRIDE:
                yield None
        told = yield from each(here, _told)
        copies = yield from each(
            [
                copy
                for copy in self._relocation.copies_in(directory.path)
                if wanted is None or copy.topic_partition in wanted
            ],
            lambda copy: _Told(copy.topic_partition, copy.size_bytes, copy.offset_lag, True),
        )
        topics = yield from _by_topic([*told, *copies])
        return DescribeLogDirsResult(
            log_dir=directory.path,
            topics=topics,
            total_bytes=directory.total_bytes,
            usable_bytes=directory.usable_bytes,
        )


class _Told(NamedTuple):
    """A log, or a copy that is being made of one, as the answer describes it."""

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int = 0
    """How many offsets a copy is behind its log; 0 for a leader's log."""
    is_copy: bool = False


def _told(partition: Partition) -> _Told:
    return _Told(partition.topic_partition, partition.size_bytes)


def _wanted(asked: list[DescribableLogDirTopic] | None) -> Steps[set[tuple[str, int]] | None]:
    if asked is None:
        return None
    wanted: set[tuple[str, int]] = set()
    for topic in asked:
        wanted.update((topic.topic, index) for index in topic.partitions)
        yield None
    return wanted


def _by_topic(found: Iterable[_Told]) -> Steps[list[DescribeLogDirsTopic]]:
    topics = []
    for name, here in groupby(
        sorted(found, key=attrgetter("topic_partition")),
        key=lambda each: each.topic_partition.topic,
    ):
        partitions = yield from each(here, _partition)
        topics.append(DescribeLogDirsTopic(name=name, partitions=partitions))
    return topics


def _partition(told: _Told) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=told.topic_partition.partition,
        partition_size=told.size_bytes,
        offset_lag=told.offset_lag,
        is_future_key=told.is_copy,
    )
