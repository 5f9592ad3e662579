"""Waits until the followers of partitions that are led here have deleted what the leader has.

Each follower's fetch says where its log starts. The low watermark of a partition is the lowest
start of all replicas on nodes that are registered, in sync or not; a DeleteRecords is answered when
it has passed what was asked for, or when its time is over. Knows no wire. Source: KIP-107; Kafka's
DelayedDeleteRecords and Partition.lowWatermarkIfLeader.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from ottla.env.clock import Clock, Timer
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NodeId, TopicPartition
from ottla.pending import Pending
from ottla.replication.follower_sessions import FollowerSessions
from ottla.replication.partition import Partition

UNKNOWN = -1
"""The low watermark while a live follower has not said where its log starts."""

LowWatermark = tuple[int, ErrorCode]


class _Wait:
    """One request: what of it is still waited for."""

    def __init__(self, count: int) -> None:
        self.pending: Pending[list[LowWatermark]] = Pending()
        self.outcomes: list[LowWatermark] = [(UNKNOWN, ErrorCode.NONE)] * count
        self.left: dict[int, tuple[Partition, int]] = {}
        """By ordinal, the partition and the offset that all have to start at, or behind."""
        self.timer: Timer | None = None

    def settle(self, ordinal: int, outcome: LowWatermark) -> None:
        self.outcomes[ordinal] = outcome
        del self.left[ordinal]

    def answer_if_done(self) -> None:
        if not self.left and not self.pending.is_done:
            if self.timer is not None:
                self.timer.cancel()
            self.pending.resolve(self.outcomes)


class LowWatermarks:
    """Who waits for followers' log start offsets."""

    def __init__(
        self, sessions: FollowerSessions, live: Callable[[], Container[NodeId]], clock: Clock
    ) -> None:
        """``live``: the nodes that are registered now."""
        self._sessions = sessions
        self._live = live
        self._clock = clock
        self._waits: dict[TopicPartition, list[tuple[_Wait, int]]] = {}
        """By partition, who waits, and for which of its ordinals."""

    def of(self, partition: Partition) -> int:
        """Return the low watermark; UNKNOWN: a follower that is alive has not said it yet."""
        lowest = partition.log_start_offset
        live = self._live()
        for node in partition.state.replicas:
            if node == partition.state.leader or node not in live:
                continue
            start = self._sessions.start_offset_of(node, partition)
            lowest = min(lowest, UNKNOWN if start is None else start)
        return lowest

    def wait(
        self, wanted: Sequence[tuple[Partition, int]], timeout_ms: int
    ) -> Pending[list[LowWatermark]]:
        """Return each low watermark, in order, when it has reached the offset beside it.

        With REQUEST_TIMED_OUT when the time is over; NOT_LEADER_OR_FOLLOWER when this node leads
        the partition no more. Followers are woken, so that they hear of it.
        """
        wait = _Wait(len(wanted))
        for ordinal, (partition, offset) in enumerate(wanted):
            wait.left[ordinal] = partition, offset
            self._look_at(wait, ordinal)
        if not wait.left:
            wait.answer_if_done()
            return wait.pending
        for ordinal, (partition, _) in list(wait.left.items()):
            self._waits.setdefault(partition.topic_partition, []).append((wait, ordinal))
            self._sessions.start_moved(partition.topic_partition)
        wait.timer = self._clock.call_later(max(timeout_ms, 0) / 1000, lambda: self._expire(wait))
        return wait.pending

    def look_at(self, where: TopicPartition) -> None:
        """Take note that a follower has said more, or that the partition's role is another one."""
        waiting = self._waits.pop(where, None)
        if waiting is None:
            return
        left = [(wait, ordinal) for wait, ordinal in waiting if not self._look_at(wait, ordinal)]
        if left:
            self._waits[where] = left
        for wait, _ in waiting:
            wait.answer_if_done()

    def look_at_all(self) -> None:
        """Take note that nodes came or went."""
        for where in list(self._waits):
            self.look_at(where)

    def _look_at(self, wait: _Wait, ordinal: int) -> bool:
        """Tell whether one is waited for no more; then its outcome is known."""
        if ordinal not in wait.left:
            return True
        partition, offset = wait.left[ordinal]
        try:
            partition.check_leader()
        except KafkaError as error:
            wait.settle(ordinal, (UNKNOWN, error.code))
            return True
        low_watermark = self.of(partition)
        if low_watermark < offset:
            return False
        wait.settle(ordinal, (low_watermark, ErrorCode.NONE))
        return True

    def _expire(self, wait: _Wait) -> None:
        for ordinal, (partition, _) in list(wait.left.items()):
            where = partition.topic_partition
            wait.settle(ordinal, (self.of(partition), ErrorCode.REQUEST_TIMED_OUT))
            left = [each for each in self._waits.get(where, ()) if each != (wait, ordinal)]
            if left:
                self._waits[where] = left
            else:
                self._waits.pop(where, None)
        wait.answer_if_done()
