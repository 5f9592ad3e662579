"""A clock that a test lets jump, as after a sleep of the machine: days pass in milliseconds.

Between two jumps it goes as the true clock does. A jump goes from one timer that is set to the
next, in the order in which they are due, and each rings at its moment. Timers that are set
meanwhile ring at the end of the jump if they are due by then: a timer that is set again and again
(each second, for eight days) rings twice or three times, not 700,000 times. ``ManualClock`` rings
it each time.

``SteadyClock`` is for all that must not notice: connections, requests that wait, the loop's turns.
For one loop's thread, both. Source: the clock of a machine that slept.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from ottla.env.clock import Clock, Timer

WALL_MS_MAX = 253_402_300_799_999
"""The last moment of the year 9999."""
ROUNDS_MAX = 1_000
"""How often a jump looks for timers that are due at its end: each may set others."""


class JumpingTimer:
    """A timer of a JumpingClock, and the true clock's behind it."""

    __slots__ = ("_behind", "_callback", "_clock", "due", "number")

    def __init__(
        self, clock: "JumpingClock", due: float, number: int, callback: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._callback = callback
        self._behind: Timer | None = None
        self.due = due
        """By the JumpingClock, in seconds."""
        self.number = number
        """Timers that are due at the same moment ring in this order."""

    def follow(self, behind: Timer) -> None:
        """Take the true clock's timer, which calls ``ring``."""
        self._behind = behind

    def ring(self) -> None:
        """Call back. Harmless when it has rung or is cancelled."""
        if self._clock.forget(self):
            if self._behind is not None:
                self._behind.cancel()
            self._callback()

    def cancel(self) -> None:
        """Make sure the callback does not run."""
        if self._clock.forget(self) and self._behind is not None:
            self._behind.cancel()


class JumpingClock:
    """The clock ``clock``, moved on by each ``jump``."""

    def __init__(self, clock: Clock, settled: Callable[[], Awaitable[None]] | None = None) -> None:
        """``settled``: returns when the work that rung timers have begun is done; None: at once."""
        self._clock = clock
        self._settled = settled or _next_turn
        self._skipped = 0.0
        """Seconds of all jumps so far. *Invariant:* never falls."""
        self._timers: dict[JumpingTimer, None] = {}
        """Those that are set. *Invariant:* none that has rung or is cancelled."""
        self._numbers = count()

    def wall_ms(self) -> int:
        """Return the true wall time, moved on."""
        return self._clock.wall_ms() + int(self._skipped * 1000)

    def monotonic(self) -> float:
        """Return the true seconds, moved on."""
        return self._clock.monotonic() + self._skipped

    def thread_cpu(self) -> float:
        """Return the true clock's."""
        return self._clock.thread_cpu()

    def call_later(self, delay_seconds: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` after so many seconds, jumps included. Needs a running loop."""
        due = self.monotonic() + max(delay_seconds, 0.0)
        timer = JumpingTimer(self, due, next(self._numbers), callback)
        self._timers[timer] = None
        timer.follow(self._clock.call_later(delay_seconds, timer.ring))
        return timer

    def forget(self, timer: JumpingTimer) -> bool:
        """Take a timer out; False: it was out already."""
        return self._timers.pop(timer, timer) is None

    def drop_timers(self) -> None:
        """Cancel all timers: whoever set them is gone."""
        for timer in list(self._timers):
            timer.cancel()

    async def jump(self, seconds: float) -> None:
        """Move on by ``seconds`` (>= 0, to the year 9999), and ring what becomes due.

        Returns when all that is rung, and the work that it began has settled. Raises what a
        callback raises.
        """
        if not 0 <= seconds * 1000 <= WALL_MS_MAX - self.wall_ms():
            raise ValueError(f"a clock cannot go back, nor beyond the year 9999: {seconds:g} s")
        end = self._skipped + seconds
        for timer in self._due(seconds):
            self._skipped = min(max(timer.due - self._clock.monotonic(), self._skipped), end)
            timer.ring()
        self._skipped = max(end, self._skipped)
        for _ in range(ROUNDS_MAX):
            await self._settled()
            due = self._due(0.0)
            if not due:
                return
            for timer in due:
                timer.ring()

    def _due(self, within_seconds: float) -> list[JumpingTimer]:
        """Return the timers that are due within so many seconds, in order."""
        until = self.monotonic() + within_seconds
        due = [timer for timer in self._timers if timer.due <= until]
        return sorted(due, key=lambda timer: (timer.due, timer.number))


class SteadyClock:
    """The wall time of a JumpingClock; seconds and timers of the true clock, which never jump."""

    def __init__(self, clock: Clock, jumping: JumpingClock) -> None:
        self._jumping = jumping
        self.monotonic = clock.monotonic
        self.call_later = clock.call_later

    def wall_ms(self) -> int:
        """Return the JumpingClock's."""
        return self._jumping.wall_ms()

    def thread_cpu(self) -> float:
        """Return the true clock's."""
        return self._jumping.thread_cpu()


async def _next_turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)
