"""One timer of the clock for many moments: it rings at the earliest of them.

Whoever waits for many things until different times keeps the times itself and needs one timer, set
for the earliest. Owns that timer, and knows when it rings so late that the process must have stood
still: then what is waited for may have happened meanwhile, unheard, and an alarm with patience
waits a moment longer. Knows nothing of what is waited for.
"""

from collections.abc import Callable

from ottla.env.clock import Clock, Timer

STALL_SECONDS = 1.0
"""A timer that rings later than this tells that the process stood still."""
GRACE_SECONDS = 0.5
"""How long an alarm waits after that for what could not be heard of."""
NEVER = float("inf")


class Alarm:
    """Rings once for each time it is set, at the earliest moment that it was set for since."""

    __slots__ = ("_clock", "_has_patience", "_is_grace", "_ring", "_timer", "at")

    def __init__(
        self, clock: Clock, ring: Callable[[float], None], *, has_patience: bool = False
    ) -> None:
        """``ring`` is given the time, in monotonic seconds, never earlier than it was set for.

        ``has_patience``: ring ``GRACE_SECONDS`` after a stall, not at once.
        """
        self._clock = clock
        self._ring = ring
        self._has_patience = has_patience
        self._is_grace = False
        self._timer: Timer | None = None
        self.at = NEVER
        """When it rings, by the monotonic clock; NEVER: not at all. Use: read by hot callers, who
        call ``set`` only for an earlier moment."""

    def set(self, at: float) -> None:
        """Ring at ``at`` or earlier. After a stall it rings when the grace is over, not before."""
        if at < self.at and not self._is_grace:
            self._start(at)

    def clear(self) -> None:
        """Do not ring. Harmless when it is not set."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_grace = False
        self.at = NEVER

    def _start(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.at = at
        self._timer = self._clock.call_later(max(at - self._clock.monotonic(), 0.0), self._rung)

    def _rung(self) -> None:
        self._timer = None
        now, at = self._clock.monotonic(), self.at
        if self._has_patience and now - at > STALL_SECONDS:
            self._is_grace = True
            self._start(now + GRACE_SECONDS)
            return
        self._is_grace = False
        self.at = NEVER
        # The time it was set for has come, however the clock's fractions round.
        self._ring(max(now, at))
