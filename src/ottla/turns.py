"""Whose turn it is on the loop: nobody keeps it for long, whatever was asked.

Owns the queue of those who gave way. A connection that has served for ``SLICE_SECONDS``, and work
in slices (``ottla.sliced``), line up here; so does everybody who comes when a turn of the loop
has cost ``TURN_SECONDS``. The line is served in order, so that many busy connections share alike.
Knows neither connections nor requests. Costs one addition per round until somebody has to wait.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from ottla.env.clock import Clock
from ottla.env.stall_meter import Name, StallMeter

SLICE_SECONDS = 0.005
"""After so long one connection, or one piece of work, lets the others go first."""
TURN_SECONDS = 0.02
"""After so much of all of them together, the loop looks for what has arrived and for timers."""

TakeTurn = Callable[[], None]


class Turns:
    """The one line of a loop."""

    def __init__(self, clock: Clock, meter: StallMeter | None = None) -> None:
        self.clock = clock
        self.meter = StallMeter(clock) if meter is None else meter
        self.is_over = False
        """Use: this turn of the loop has had its share: do nothing more, but ``wait``."""
        self._used_seconds = 0.0
        self._waiting: deque[TakeTurn] = deque()
        self._is_due = False  # Use: the loop will call _next.

    def spent(self, seconds: float, name: Name) -> None:
        """Account for work that was just done on the loop."""
        if seconds > self.meter.notable_seconds:
            self.meter.note(seconds, name)
        self._used_seconds += seconds
        if self._used_seconds > TURN_SECONDS:
            self.is_over = True
            self._call_soon()

    def wait(self, take_turn: TakeTurn) -> None:
        """Call ``take_turn`` in a later turn of the loop, behind those who wait already."""
        self._waiting.append(take_turn)
        self._call_soon()

    def _call_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._is_due = self.is_over = False
        self._used_seconds = 0.0
        try:
            for _ in range(len(self._waiting)):
                self._waiting.popleft()()
                if self.is_over:
                    break
        finally:
            if self._waiting:
                self._call_soon()
