"""Commits that take too long to become durable: their clients hear of it, and may ask again.

All commits have the same time, so they end in the order in which they came: one timer looks at the
first one. What is on its way to the disk counts all the same once it is there. Source: Kafka's
``offsets.commit.timeout.ms``.
"""

from collections import deque
from typing import Protocol

from ottla.coordinator.timers import Timers
from ottla.env.clock import Clock
from ottla.errors import ErrorCode, KafkaError

_TIMER = "commit timeouts"


class Waiting(Protocol):
    """A commit, and whoever waits for it."""

    @property
    def is_done(self) -> bool:
        """Whether there was an answer."""

    def resolve(self, outcome: KafkaError) -> None:
        """Answer."""


class CommitTimeouts:
    """Those of one shard."""

    def __init__(self, timers: Timers, clock: Clock, timeout_ms: int) -> None:
        self._timers = timers
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._waiting: deque[tuple[float, Waiting]] = deque()
        """Use: commits that were not durable at once, with their ends, the first one first."""

    def watch(self, commit: Waiting) -> None:
        """Answer with COORDINATOR_NOT_AVAILABLE unless there is another answer in time."""
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
            commit.resolve(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why))
            self._forget_done()
        if self._waiting:
            delay_ms = int((self._waiting[0][0] - now) * 1000) + 1
            self._timers.schedule(_TIMER, delay_ms, self._ring)
