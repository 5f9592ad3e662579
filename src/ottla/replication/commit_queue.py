"""The queue of a partition's appends that wait for the high watermark, in order.

Each append to a partition ends above the one before it, so the one in front is committed first: a
deque needs neither keys nor a watch per append. An append to many partitions is in the queue of
each, and is done when the last of them is past it. A partition owns its queue, from the first wait
on, and tells it when it moved. One timer per queue, for the earliest deadline.
"""

from __future__ import annotations  # else those of inner functions are made at each call

from collections import deque

from ottla.env.alarm import Alarm
from ottla.env.clock import Clock
from ottla.log.results import AppendResult
from ottla.pending import Pending
from ottla.replication.append import (
    TIMED_OUT,
    AppendOutcome,
    AppendRefusal,
)


class CommitWait:
    """One request's append, to one partition or more, and who waits for it."""

    __slots__ = ("_outcomes", "deadline", "left", "pending")

    def __init__(self, outcomes: list[AppendOutcome], deadline: float) -> None:
        """``outcomes``: what is answered when all are there, and committed those waited for."""
        self.pending: Pending[list[AppendOutcome]] = Pending(overlaps=True)
        self.deadline = deadline
        """By the monotonic clock."""
        self._outcomes = outcomes
        self.left = 1
        """Use: to be told so many times; one of them is ``all_added``."""

    def all_added(self) -> None:
        """Take note that no queue will get it any more. Once."""
        self.left -= 1
        if not self.left:
            self.resolve()

    def told(self, ordinal: int, refusal: AppendRefusal) -> None:
        """Take why one that is waited for is not committed. Once for each."""
        self._outcomes[ordinal] = refusal
        self.left -= 1
        if not self.left:
            self.resolve()

    def resolve(self) -> None:
        """Answer: nothing is left to wait for."""
        self.pending.resolve(self._outcomes)


class CommitQueue:
    """The appends to one partition that wait for their commit."""

    __slots__ = ("_alarm", "_clock", "_waiting", "expected")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[tuple[int, CommitWait, int]] = deque()
        """Last offset, who waits, and for which of its outcomes. Invariant: not told; in the order
        of the appends. (A resend may stand behind later offsets than its own: it is then answered
        with them.)"""
        # With patience: a flush that ended during a stall could not be heard of yet.
        self._alarm = Alarm(clock, self._expire, has_patience=True)
        """Invariant: set, while anybody waits, for no later moment than the earliest deadline; but
        for the grace after a stall."""
        self.expected = 0
        """Use: how many waited when a follower was last told of records; see ``gathering``."""

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, result: AppendResult, *, timeout_seconds: float) -> Pending[list[AppendOutcome]]:
        """Return what resolves to ``[result]`` once that is committed, or to why it was not."""
        deadline = self._clock.monotonic() + max(timeout_seconds, 0.0)
        wait = CommitWait([result], deadline)
        self.add(result.last_offset, wait, 0)
        wait.all_added()
        return wait.pending

    def add(self, last_offset: int, wait: CommitWait, ordinal: int) -> None:
        """Tell ``wait`` what becomes of the append that ended with ``last_offset``."""
        self._waiting.append((last_offset, wait, ordinal))
        wait.left += 1
        if wait.deadline < self._alarm.at:
            self._alarm.set(wait.deadline)

    def settle(self, high_watermark: int) -> None:
        """Answer all that ended below ``high_watermark``."""
        waiting = self._waiting
        while waiting and waiting[0][0] < high_watermark:
            _, wait, _ = waiting.popleft()
            wait.left -= 1  # As ``told``.
            if not wait.left:
                wait.resolve()

    def refuse(self, refusal: AppendRefusal) -> None:
        """Answer all with ``refusal``, and leave no timer behind: its time may be weeks."""
        self._alarm.clear()
        waiting, self._waiting = self._waiting, deque()
        for _, wait, ordinal in waiting:
            wait.told(ordinal, refusal)

    def _expire(self, now: float) -> None:
        expired = [each for each in self._waiting if each[1].deadline <= now]
        self._waiting = deque(each for each in self._waiting if each[1].deadline > now)
        if self._waiting:
            self._alarm.set(min(wait.deadline for _, wait, _ in self._waiting))
        for _, wait, ordinal in expired:
            wait.told(ordinal, TIMED_OUT)
