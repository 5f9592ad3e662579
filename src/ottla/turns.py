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
"""Seconds after which one connection, or one piece of work, gives way."""
TURN_SECONDS = 0.02
"""Seconds of work after which the loop looks at its sockets and timers."""

TakeTurn = Callable[[], None]
Step = Callable[[], bool]
"""Does a small piece of work, some microseconds; returns False when nothing is left."""


class Turns:
    """The one line of a loop."""

    def __init__(
        self,
        clock: Clock,
        meter: StallMeter | None = None,
        *,
        call_soon: Callable[[TakeTurn], object] | None = None,
    ) -> None:
        """``call_soon``: calls in the loop's next turn; None: that of the running loop."""
        self.clock = clock
        self._loop_calls = call_soon
        self.meter = StallMeter(clock) if meter is None else meter
        self.is_over = False
        """Use: when True, this turn has had its share; work must ``wait`` for the next one."""
        self.used_seconds = 0.0
        """Use: see ``look``. Invariant: what was spent since others were let in last."""
        self._waiting: deque[TakeTurn] = deque()
        self._is_due = False  # Use: the loop will call _next.

    def spent(self, seconds: float, name: Name) -> None:
        """Account for work that was just done on the loop."""
        self.used_seconds += seconds
        self.look(seconds, name)

    def look(self, seconds: float, name: Name) -> None:
        """Note work that took long, and end the turn that has had its share.

        For who has added to ``used_seconds`` by itself; it need not ask after short work.
        """
        if seconds > self.meter.notable_seconds:
            self.meter.note(seconds, name)
        if self.used_seconds > TURN_SECONDS:
            self.is_over = True
            self._call_soon()

    def wait(self, take_turn: TakeTurn) -> None:
        """Call ``take_turn`` in a later turn of the loop, behind those who wait already."""
        self._waiting.append(take_turn)
        self._call_soon()

    def _call_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            (self._loop_calls or asyncio.get_running_loop().call_soon)(self._next)

    def _next(self) -> None:
        self._is_due = self.is_over = False
        self.used_seconds = 0.0
        try:
            for _ in range(len(self._waiting)):
                self._waiting.popleft()()
                if self.is_over:
                    break
        finally:
            if self._waiting:
                self._call_soon()


class Portions:
    """One owner's work, which may arrive at any time in any amount: a slice now, the rest in turns.

    A step takes what it works on before it can fail: one that raises is not done again, and those
    behind it have their turns as if it had not been.
    """

    __slots__ = ("_is_running", "_is_waiting", "_name", "_step", "_turns")

    def __init__(self, turns: Turns, step: Step, name: str) -> None:
        """``name``: what a stall is put down to."""
        self._turns = turns
        self._step = step
        self._name = name
        self._is_running = False
        self._is_waiting = False

    def go_on(self) -> None:
        """Do what there is to do: a slice at once, unless others have used up this turn.

        Harmless while it is under way: the steps go on until there is nothing more to do.
        """
        if self._is_running or self._is_waiting:
            return
        if self._turns.is_over:
            self._wait()
        else:
            self._slice()

    def _wait(self) -> None:
        self._is_waiting = True
        self._turns.wait(self._turn)

    def _turn(self) -> None:
        self._is_waiting = False
        self._slice()

    def _slice(self) -> None:
        turns, step = self._turns, self._step
        monotonic = turns.clock.monotonic
        began = now = monotonic()
        has_more = self._is_running = True
        try:
            while now - began < SLICE_SECONDS and (has_more := step()):
                now = monotonic()
        finally:
            self._is_running = False
            if has_more:
                self._wait()
            turns.spent(monotonic() - began, lambda: self._name)
