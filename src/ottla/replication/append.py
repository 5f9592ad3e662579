"""An append on its way to being answered: its status per partition, and the wait for replication.

DelayedProduce completes when every partition it appended to is committed past its batch; the
purgatory wakes it when a high watermark moves. Source: the API refactoring seed.
"""

from collections.abc import Hashable, Mapping

from ottla.errors import ErrorCode, RecordError
from ottla.ids import TopicPartition
from ottla.log.log import AppendResult
from ottla.pending import Pending
from ottla.replication.partition import Partition


class AppendStatus:
    """What became of one partition's part of an append."""

    __slots__ = (
        "code",
        "log_start_offset",
        "rejected",
        "required_offset",
        "result",
        "topic_partition",
        "why",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.code = ErrorCode.NONE
        self.why = ""
        self.result: AppendResult | None = None
        """None when nothing was appended."""
        self.rejected: tuple[RecordError, ...] = ()
        """The records that are the reason for a refusal, if some of them are."""
        self.log_start_offset = -1
        """Told beside an error only when the log itself looked at the records; else -1."""
        self.required_offset = -1
        """The high watermark that commits this append; -1 when nothing is waited for."""

    def refuse(self, code: ErrorCode, why: str) -> None:
        """Answer with an error; nothing is waited for any more."""
        self.code = code
        self.why = why
        self.required_offset = -1


class DelayedProduce:
    """An acks=-1 append whose records are in the log but not committed everywhere yet."""

    __slots__ = ("_partitions", "_pending", "_statuses", "_waiting")

    def __init__(
        self,
        statuses: list[AppendStatus],
        partitions: Mapping[TopicPartition, Partition],
        pending: Pending[list[AppendStatus]],
    ) -> None:
        self._statuses = statuses
        self._partitions = partitions
        self._pending = pending
        self._waiting = [status for status in statuses if status.required_offset >= 0]

    def try_complete(self, key: Hashable) -> bool:
        """Resolve if nothing is left to wait for."""
        partitions = self._partitions
        waiting = []
        for status in self._waiting:
            partition = partitions.get(status.topic_partition)
            if partition is None or not partition.is_leader:
                status.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, "leadership moved while waiting")
            elif partition.is_failed:
                status.refuse(ErrorCode.KAFKA_STORAGE_ERROR, "the log could not be flushed")
            elif partition.high_watermark < status.required_offset:
                waiting.append(status)
        self._waiting = waiting
        if waiting:
            return False
        self._pending.resolve(self._statuses)
        return True

    def expire(self) -> None:
        """Resolve; what is not committed by now timed out."""
        for status in self._waiting:
            status.refuse(ErrorCode.REQUEST_TIMED_OUT, "not committed within the request's timeout")
        self._pending.resolve(self._statuses)
