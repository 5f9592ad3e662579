"""Answers offset commits that take too long to become durable: their clients may try again.

All commits have the same timeout, so they time out in the order in which they came: one timer looks
at the first one. A commit that becomes durable later counts all the same. Source: Kafka's
``offsets.commit.timeout.ms``.
"""

from collections import deque
from typing import Protocol

from ottla.deadlines import Deadlines
from ottla.env.clock import Clock
from ottla.errors import ErrorCode, KafkaError

_TIMER = "commit timeouts"


class Waiting(Protocol):
    """A commit that may wait."""

    @property
    def is_done(self) -> bool:
        """Whether the client has its answer."""

    def give_up(self, error: KafkaError) -> None:
        """Answer with ``error``."""


class CommitTimeouts:
    """The commit timeouts of one shard."""

    def __init__(self, timers: Deadlines, clock: Clock, timeout_ms: int) -> None:
        self._timers = timers
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._waiting: deque[tuple[float, Waiting]] = deque()
        """Use: commits that were not durable at once, with their deadlines, in order."""

    def watch(self, commit: Waiting) -> None:
        """Answer a commit with COORDINATOR_NOT_AVAILABLE if it is not durable in time."""
        if commit.is_done:
            return
        self._forget_done()
        self._waiting.append((self._clock.monotonic() + self._timeout_ms / 1000, commit))
        if _TIMER not in self._timers:
            self._timers.schedule(_TIMER, self._timeout_ms, self._ring)

    def _forget_done(self) -> None:
        while self._waiting and self._waiting[0][1].is_done:
            self._waiting.popleft()

    def _ring(self) -> None:
        now = self._clock.monotonic()
        self._forget_done()
        while self._waiting and self._waiting[0][0] <= now:
            _, commit = self._waiting.popleft()
            why = f"not durable after {self._timeout_ms} ms"
            commit.give_up(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why))
            self._forget_done()
        if self._waiting:
            delay_ms = int((self._waiting[0][0] - now) * 1000) + 1
            self._timers.schedule(_TIMER, delay_ms, self._ring)
