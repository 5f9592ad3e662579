"""Appends of one batch that wait for their commit, in the order in which they were made.

The short way of ``DelayedProduce`` for what nearly every producer sends. Each append to a partition
ends above the one before it, so whoever is in front is committed first: a deque needs neither keys
nor a watch per append. Owned by the replica manager, one queue for each partition that was waited
for; told whenever that partition moved. One timer, for the earliest deadline.
"""

from collections import deque

from ottla.env.clock import Clock, Timer
from ottla.log.results import AppendResult
from ottla.pending import Pending
from ottla.replication.append import (
    FLUSH_FAILED,
    GONE,
    LEADERSHIP_MOVED,
    TIMED_OUT,
    AppendOutcome,
    AppendRefusal,
)
from ottla.replication.partition import Partition
from ottla.replication.purgatory import GRACE_SECONDS, STALL_SECONDS


class _Wait:
    """One append, and who waits for it."""

    __slots__ = ("deadline", "pending", "result")

    def __init__(
        self, result: AppendResult, pending: Pending[list[AppendOutcome]], deadline: float
    ) -> None:
        self.result = result
        self.pending = pending
        self.deadline = deadline


class CommitQueue:
    """Who waits for commits of one partition."""

    __slots__ = ("_clock", "_timer", "_timer_deadline", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[_Wait] = deque()
        """Invariant: not resolved; in the order of the appends. (A resend may stand behind later
        offsets than its own: it is then answered with them.)"""
        self._timer: Timer | None = None
        self._timer_deadline = 0.0
        """Invariant: with a timer, not after any deadline."""

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, result: AppendResult, *, timeout_seconds: float) -> Pending[list[AppendOutcome]]:
        """Return what resolves to ``[result]`` once that is committed, or to why it was not."""
        pending: Pending[list[AppendOutcome]] = Pending(overlaps=True)
        deadline = self._clock.monotonic() + max(timeout_seconds, 0.0)
        self._waiting.append(_Wait(result, pending, deadline))
        if self._timer is None or deadline < self._timer_deadline:
            self._arm(deadline)
        return pending

    def settle(self, partition: Partition | None) -> None:
        """Answer all that can be answered now that the partition (None: it is gone) has moved."""
        waiting = self._waiting
        if not waiting:
            return
        if partition is None:
            self._refuse(GONE)
        elif not partition.is_leader:
            self._refuse(LEADERSHIP_MOVED)
        elif partition.is_failed:
            self._refuse(FLUSH_FAILED)
        else:
            high_watermark = partition.high_watermark
            while waiting and waiting[0].result.last_offset < high_watermark:
                wait = waiting.popleft()
                wait.pending.resolve([wait.result])

    def _refuse(self, refusal: AppendRefusal) -> None:
        waiting, self._waiting = self._waiting, deque()
        for wait in waiting:
            wait.pending.resolve([refusal])

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_deadline = deadline
        delay = max(deadline - self._clock.monotonic(), 0.0)
        self._timer = self._clock.call_later(delay, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        if now - self._timer_deadline > STALL_SECONDS:
            # This process stood still. A flush that ended meanwhile could not be heard of yet.
            self._arm(now + GRACE_SECONDS)
            return
        expired = [wait for wait in self._waiting if wait.deadline <= now]
        self._waiting = deque(wait for wait in self._waiting if wait.deadline > now)
        if self._waiting:
            self._arm(min(wait.deadline for wait in self._waiting))
        for wait in expired:
            wait.pending.resolve([TIMED_OUT])
