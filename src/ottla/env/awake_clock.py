"""A clock that stands while the process does: for what is asked of others within a time.

A process can stand still: it was stopped, the machine slept, a turn of the loop took for ever. When
it goes on, the deadlines of all its peers are over at once, although what they sent in time lies in
the sockets, unread. Who measures a peer's silence by this clock does not count the time in which it
could not have listened, nor a moment after it, in which it reads and peers connect again.

A pulse tells that the loop has its turns. Only for rare readings and many seconds; a wait of ours
(for a disk, a retry) wants the true clock.
"""

from collections.abc import Callable

from ottla.env.alarm import STALL_SECONDS
from ottla.env.clock import Clock, Timer

PULSE_SECONDS = 1.0
GRACE_SECONDS = 2.0
"""Seconds that this clock stands still after a stall."""
_EPSILON_SECONDS = 1e-6
"""Tolerance of timers, for what seconds lose in floating point."""


class _AwakeTimer:
    """A timer that is set again as long as this clock has not come to its time."""

    __slots__ = ("_callback", "_clock", "_due", "_timer")

    def __init__(self, clock: "AwakeClock", due: float, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._due = due
        self._callback = callback
        self._timer: Timer | None = clock.arm(due, self._ring)
        """Use: the true clock's timer behind this one. Invariant: None once rung or cancelled."""

    def cancel(self) -> None:
        """Make sure the callback does not run."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        if self._due - self._clock.monotonic() > _EPSILON_SECONDS:
            self._timer = self._clock.arm(self._due, self._ring)
        else:
            self._timer = None
            self._callback()


class AwakeClock:
    """A Clock whose seconds are those in which the process had its turns.

    ``wall_ms`` is the true one's. Between ``start`` and ``stop`` it notices stalls; else it goes as
    the true one does, less what it stood before.
    """

    def __init__(self, clock: Clock, steady_clock: Clock | None = None) -> None:
        """``steady_clock``: tells stalls where ``clock`` may jump; None: ``clock`` does."""
        self._clock = clock
        self._steady_clock = steady_clock or clock
        self._stood_seconds = 0.0
        self._latest = 0.0
        """The time returned last. *Invariant:* never goes back."""
        self._seen: float | None = None
        """Use: the steady clock's second at which the loop was last seen alive; None when not
        started."""
        self._pulse_timer: Timer | None = None

    def start(self) -> None:
        """Begin to notice stalls. Needs a running loop."""
        if self._pulse_timer is None:
            self._pulse()

    def stop(self) -> None:
        """Stop noticing stalls. Harmless when not started."""
        if self._pulse_timer is not None:
            self._pulse_timer.cancel()
        self._pulse_timer = None
        self._seen = None

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC, whatever this process did."""
        return self._clock.wall_ms()

    def monotonic(self) -> float:
        """Return the seconds in which this process was awake, from an arbitrary start."""
        now = awake = self._steady_clock.monotonic()
        if self._steady_clock is not self._clock:
            now = self._clock.monotonic()
        if self._seen is not None:
            if awake - self._seen > PULSE_SECONDS + STALL_SECONDS:
                self._stood_seconds += awake - self._seen + GRACE_SECONDS
            self._seen = awake
        self._latest = max(self._latest, now - self._stood_seconds)
        return self._latest

    def thread_cpu(self) -> float:
        """Return the true clock's."""
        return self._clock.thread_cpu()

    def call_later(self, delay_seconds: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` on the loop after ``delay_seconds`` of this clock."""
        return _AwakeTimer(self, self.monotonic() + delay_seconds, callback)

    def arm(self, due: float, ring: Callable[[], None]) -> Timer:
        """Arm the true clock's timer for ``due`` (of this clock), assuming no stall."""
        behind_seconds = due + self._stood_seconds - self._clock.monotonic()
        return self._clock.call_later(max(behind_seconds, 0.0), ring)

    def _pulse(self) -> None:
        if self._seen is None:
            self._seen = self._steady_clock.monotonic()
        self.monotonic()
        self._pulse_timer = self._steady_clock.call_later(PULSE_SECONDS, self._pulse)
