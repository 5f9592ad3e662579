"""Operations that cannot be completed yet, watched by key, with an end to their patience.

Generic: knows neither produce nor fetch. An operation is tried when one of its keys changes and
expires when its time is over, whichever comes first, and never both. Deadlines are kept in ticks of
a few milliseconds, so that a watched operation costs no timer of its own and leaves nothing behind
when it completes. Source: the API refactoring seed ("Request Purgatory"), Kafka's DelayedOperation.
"""

from __future__ import annotations  # Watch comes first, but is generic

import heapq
from collections.abc import Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from ottla.env.alarm import Alarm
from ottla.env.clock import Clock

TICKS_PER_SECOND = 200
"""How finely deadlines are told apart; an operation expires at most one tick late."""
STALE_TICKS_MAX = 64
"""Ticks kept beside the live ones, so that the heap is tidied rarely."""
_ROUNDING = 1e-3
"""Of a tick: more than a float loses on the way from a tick to seconds and back."""


class DelayedOperation(Protocol):
    """An operation that the purgatory can hold."""

    def try_complete(self, key: Hashable) -> bool:
        """Complete and return True if the operation is satisfied now that ``key`` changed."""

    def expire(self) -> None:
        """Complete with what there is: its time is over."""


Operation = TypeVar("Operation", bound=DelayedOperation)


class Watch(Generic[Operation]):
    """One operation, where it is watched and when it expires. The purgatory's own."""

    __slots__ = ("is_busy", "keys", "operation", "tick")

    def __init__(self, operation: Operation, keys: tuple[Hashable, ...], tick: int) -> None:
        self.operation = operation
        self.keys = keys
        self.tick = tick
        self.is_busy = False  # Use: it is being tried, or is over. It is then left alone.


class Purgatory(Generic[Operation]):
    """Holds delayed operations until ``check`` satisfies them or their timeout passes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watchers: dict[Hashable, dict[Watch[Operation], None]] = {}
        self._due: dict[int, dict[Watch[Operation], None]] = {}
        self._ticks: list[int] = []  # A heap. Invariant: holds every key of _due, and few others.
        self._alarm = Alarm(clock, self._expire_due, has_patience=True)
        self.watched_count = 0
        self.key_count = 0
        """Use: bounds memory. Invariant: the sum of the operations' distinct keys."""

    def watch(
        self, operation: Operation, keys: Iterable[Hashable], *, timeout_seconds: float
    ) -> Watch[Operation]:
        """Hold ``operation``, not satisfied just now, until a key changes or its time is up.

        Returns what ``cancel`` takes.
        """
        deadline = self._clock.monotonic() + max(timeout_seconds, 0.0)
        # A key given twice (a partition named twice in a request) is watched once.
        distinct = tuple(dict.fromkeys(keys))
        watch = Watch(operation, distinct, int(deadline * TICKS_PER_SECOND) + 1)
        for key in watch.keys:
            watchers = self._watchers.get(key)
            if watchers is None:
                self._watchers[key] = {watch: None}
            else:
                watchers[watch] = None
        due = self._due.get(watch.tick)
        if due is None:
            self._due[watch.tick] = {watch: None}
            heapq.heappush(self._ticks, watch.tick)
            self._arm()
        else:
            due[watch] = None
        self.watched_count += 1
        self.key_count += len(distinct)
        return watch

    def cancel(self, watch: Watch[Operation]) -> None:
        """Forget an operation that nobody waits for. Harmless when it is over."""
        if not watch.is_busy:
            watch.is_busy = True
            self._forget(watch)

    def expire(self, watch: Watch[Operation]) -> None:
        """Let an operation's time be over now. Harmless when it is over."""
        if not watch.is_busy:
            watch.is_busy = True
            self._forget(watch)
            watch.operation.expire()

    def check(self, key: Hashable) -> None:
        """Try every operation that is watched under ``key``, oldest first."""
        watchers = self._watchers.get(key)
        if not watchers:
            return
        for watch in list(watchers):
            # One operation's completion may run a check itself and take others with it.
            if watch.is_busy:
                continue
            watch.is_busy = True
            watch.is_busy = watch.operation.try_complete(key)
            if watch.is_busy:
                self._forget(watch)

    def is_watched(self, key: Hashable) -> bool:
        """Tell whether an operation waits for ``key`` to change."""
        return key in self._watchers

    def expire_all(self) -> None:
        """Expire every operation now; for a stop."""
        for tick in list(self._due):
            for watch in list(self._due.get(tick, ())):
                watch.is_busy = True
                self._forget(watch)
                watch.operation.expire()

    def _forget(self, watch: Watch[Operation]) -> None:
        for key in watch.keys:
            watchers = self._watchers[key]
            del watchers[watch]
            if not watchers:
                del self._watchers[key]
        self.watched_count -= 1
        self.key_count -= len(watch.keys)
        due = self._due.get(watch.tick)
        if due is not None:  # None while its tick is being expired.
            due.pop(watch, None)
            if not due:
                del self._due[watch.tick]
                self._tidy()

    def _tidy(self) -> None:
        """Drop the ticks nobody waits for any more, once they are the most of them."""
        if len(self._ticks) > 2 * len(self._due) + STALE_TICKS_MAX:
            self._ticks = list(self._due)
            heapq.heapify(self._ticks)

    def _arm(self) -> None:
        """Let the alarm ring at the earliest tick."""
        if self._ticks:
            self._alarm.set(self._ticks[0] / TICKS_PER_SECOND)

    def _expire_due(self, now: float) -> None:
        # The tick it was set for has come, however its fraction rounds.
        now_tick = int(now * TICKS_PER_SECOND + _ROUNDING)
        while self._ticks and self._ticks[0] <= now_tick:
            tick = heapq.heappop(self._ticks)
            for watch in self._due.pop(tick, ()):
                if watch.is_busy:
                    continue
                watch.is_busy = True
                self._forget(watch)
                watch.operation.expire()
        self._arm()
