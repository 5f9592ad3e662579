"""The clock port: wall time, monotonic time and timers.

Wall time stamps records; monotonic time measures waits. Code below the broker never asks the
operating system: a test moves a ManualClock instead of sleeping.
"""

import asyncio
import time
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Protocol


class Timer(Protocol):
    """A callback that is due later, once."""

    def cancel(self) -> None:
        """Make sure the callback does not run. Harmless when it ran already."""


class Clock(Protocol):
    """Time, as far as the rest of Ottla may know it."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC. May jump in both directions."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start. Never goes back."""

    def thread_cpu(self) -> float:
        """Return the seconds that the calling thread has had the processor. A system call."""

    def call_later(self, delay_seconds: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` on the loop's thread once ``delay_seconds`` (>= 0) have passed."""


class SystemClock:
    """The operating system's clocks; timers are those of the running loop."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC, as the system has it."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Return the system's monotonic seconds; the same in every thread. Called at each round."""

    def thread_cpu(self) -> float:
        """Return the system's count for the calling thread."""
        return time.thread_time()

    def call_later(self, delay_seconds: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` on the running loop after ``delay_seconds``. Needs a running loop."""
        return asyncio.get_running_loop().call_later(delay_seconds, callback)


async def pause(clock: Clock, seconds: float) -> None:
    """Wait until ``seconds`` (>= 0) have passed by the clock's timers."""
    over = asyncio.Event()
    timer = clock.call_later(seconds, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()


class ManualTimer:
    """A timer of a ManualClock. ``cancel`` only marks it; the clock drops it when it is due."""

    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Make sure the callback does not run."""
        self.cancelled = True


class ManualClock:
    """A clock that moves only when a test says so. Not for use from several threads.

    Time is kept in whole nanoseconds, so that many small steps add up exactly.
    """

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_at_start_ms = wall_ms
        self._now_ns = 0
        self._order = count()
        self._due: list[tuple[int, int, ManualTimer]] = []

    def wall_ms(self) -> int:
        """Return the start's wall time plus everything advanced and jumped since."""
        return self._wall_at_start_ms + self._now_ns // 1_000_000

    def monotonic(self) -> float:
        """Return the seconds advanced so far."""
        return self._now_ns / 1e9

    def thread_cpu(self) -> float:
        """Return the seconds advanced so far, as if the thread had worked all the time."""
        return self._now_ns / 1e9

    def call_later(self, delay_seconds: float, callback: Callable[[], None]) -> ManualTimer:
        """Run ``callback`` inside the ``advance`` that reaches ``delay_seconds`` from now."""
        timer = ManualTimer(callback)
        due_ns = self._now_ns + _nanoseconds(max(delay_seconds, 0.0))
        heappush(self._due, (due_ns, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Move both clocks on by ``seconds`` (>= 0) and fire what becomes due, in order.

        Each callback sees the time it was due at, or a later one after ``hold``. Timers it sets
        inside the span fire too. Raises what a callback raises; the time then stands at that
        callback and the rest is still due.
        """
        if seconds < 0:
            raise ValueError(f"the monotonic clock cannot go back: {seconds}")
        end_ns = self._now_ns + _nanoseconds(seconds)
        while self._due and self._due[0][0] <= end_ns:
            due_ns, _, timer = heappop(self._due)
            if not timer.cancelled:
                self._now_ns = max(due_ns, self._now_ns)
                timer.callback()
        self._now_ns = max(end_ns, self._now_ns)

    def hold(self, seconds: float) -> None:
        """Move both clocks on without firing what becomes due: work keeps the loop so long.

        The next ``advance`` fires it, late.
        """
        self._now_ns += _nanoseconds(seconds)

    def stall(self, seconds: float) -> None:
        """Let ``seconds`` (>= 0) pass in which the process stands, then fire what is overdue.

        In the order in which it was due, as a loop does that had no turn meanwhile: each callback
        sees the end of the stall.
        """
        if seconds < 0:
            raise ValueError(f"the monotonic clock cannot go back: {seconds}")
        self.hold(seconds)
        while self._due and self._due[0][0] <= self._now_ns:
            _, _, timer = heappop(self._due)
            if not timer.cancelled:
                timer.callback()

    def jump_wall(self, milliseconds: int) -> None:
        """Move the wall clock alone, in either direction, as an administrator would."""
        self._wall_at_start_ms += milliseconds

    def timers(self) -> int:
        """Return the count of timers that are set and not cancelled."""
        return sum(not timer.cancelled for _, _, timer in self._due)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
