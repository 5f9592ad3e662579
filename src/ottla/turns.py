"""Shares the event loop: no connection and no request keeps it for long.

Owns the queue of those that gave way. A connection that has served for ``SLICE_SECONDS`` queues
here, as does work in slices (``ottla.sliced``), and everything that arrives after a turn of the
loop has cost ``TURN_SECONDS``. The queue is served in order, so busy connections get equal shares.
Knows neither connections nor requests. Costs one addition per round, and a call of the loop's per
``RENEW_SECONDS``, until somebody has to wait.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from ottla.env.clock import Clock
from ottla.env.stall_meter import Name, StallMeter

SLICE_SECONDS = 0.005
"""How long one connection, or one piece of work, runs before it gives way."""
TURN_SECONDS = 0.02
"""How much work is done before the loop looks at its sockets and timers again."""
RENEW_SECONDS = 0.01
"""After so much work ``Turns`` asks to be told of the loop's next turn. Not each turn: that would
cost a call even where a turn serves one request."""

TakeTurn = Callable[[], None]
Step = Callable[[], bool]
"""Does a small piece of work (some microseconds); returns False when nothing is left."""


class Turns:
    """The queue for turns of one loop."""

    def __init__(
        self,
        clock: Clock,
        meter: StallMeter | None = None,
        *,
        call_soon: Callable[[TakeTurn], object] | None = None,
    ) -> None:
        """``call_soon``: calls a function in the loop's next turn; None: the running loop's."""
        self.clock = clock
        self._loop_calls = call_soon
        self.meter = StallMeter(clock) if meter is None else meter
        self.is_over = False
        """Use: True when this turn has had its share; new work must ``wait`` for the next turn."""
        self.used_seconds = 0.0
        """Use: see ``look``. Invariant: seconds of work since some turn of the loop began: this one
        or, while it is below ``RENEW_SECONDS``, an earlier one."""
        self._waiting: deque[TakeTurn] = deque()
        self._is_due = False  # Use: the loop will call _next.

    def spent(self, seconds: float, name: Name) -> None:
        """Account for work that was just done on the loop; ``name`` says what it was."""
        self.used_seconds += seconds
        self.look(seconds, name)

    def look(self, seconds: float, name: Name) -> None:
        """Note work that took long, and end the turn when it has had its share.

        For callers that have added to ``used_seconds`` themselves; after short work they need not
        call this before ``used_seconds`` exceeds ``RENEW_SECONDS``.
        """
        if seconds > self.meter.notable_seconds:
            self.meter.note(seconds, name)
        if self.used_seconds > RENEW_SECONDS:
            self.is_over = self.used_seconds > TURN_SECONDS
            self._call_soon()

    def wait(self, take_turn: TakeTurn) -> None:
        """Call ``take_turn`` in a later turn of the loop, after those that wait already."""
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
    """One owner's queue of work, of any length: does a slice now and the rest in later turns.

    A step must take its item out of the owner's queue before it can fail. Then a step that raises
    is not repeated, and the items after it have their turns.
    """

    __slots__ = ("_is_running", "_is_waiting", "_name", "_step", "_turns")

    def __init__(self, turns: Turns, step: Step, name: str) -> None:
        """``name``: what a stall of the loop is put down to."""
        self._turns = turns
        self._step = step
        self._name = name
        self._is_running = False
        self._is_waiting = False

    def go_on(self) -> None:
        """Do a slice at once, unless this turn of the loop is used up; the rest in later turns.

        Call it whenever there is new work. Harmless while a slice is under way or queued.
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
