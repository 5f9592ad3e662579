"""How long the loop was held at a time, and by what: the first thing to ask when clients wait.

Owns the longest turn so far and the lines in the log about turns of ``LOGGED_SECONDS`` and more.
Whoever is called by the loop measures itself: a connection's round, a timer (``MeteredClock``), the
end of a job (``ThreadExecutor``). What nobody measures (a task's step, many short rounds in one
turn) shows in a beat that comes late. Knows no loop of its own: it works with any, and with a
``ManualClock``. Costs two comparisons and a look at the clock per round (0.1 us), and a few beats
a second.

Wall time is what clients feel; the time that the loop's thread had the processor tells our own work
from a busy machine. It is read at beats only, so that up to ``BUSY_BEAT_SECONDS`` of work before
the turn count into it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from ottla.env.clock import Clock, SystemClock, Timer

logger = logging.getLogger(__name__)

LOGGED_SECONDS = 0.2
"""A turn this long is told in the log."""
NOTED_SECONDS = 0.01
"""A shorter turn is never looked at."""
LINE_SECONDS = 1.0
"""The log gets one line in so much time at most."""
BUSY_BEAT_SECONDS = 0.1
IDLE_BEAT_SECONDS = 0.5
BUSY_CPU_SECONDS = 0.001
"""A process that used less CPU between two beats is idle."""

Name = Callable[[], str]


class Turn(NamedTuple):
    """One turn of the loop, or the longest thing that ran in it."""

    wall_seconds: float
    cpu_seconds: float
    """Of the loop's thread; may hold up to ``BUSY_BEAT_SECONDS`` of what ran before."""
    what: str

    def __str__(self) -> str:
        wall_ms, cpu_ms = self.wall_seconds * 1000, self.cpu_seconds * 1000
        return f"{wall_ms:.0f} ms ({cpu_ms:.0f} ms of CPU) by {self.what}"


class StallMeter:
    """Measures the turns of the one loop on whose thread it is used."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.longest = Turn(0.0, 0.0, "nothing")
        """Use: for tests and the log's last line. The longest turn since ``start`` or ``reset``."""
        self.notable_seconds = NOTED_SECONDS
        """Use: who measured more calls ``note``; cheap to compare with."""
        self._cpu_at_beat = 0.0
        self._span: Turn | None = None  # Use: the longest that was noted since the last beat.
        self._beat_due: float | None = None
        self._timer: Timer | None = None
        self._told_at = float("-inf")
        self._untold = 0

    def start(self) -> None:
        """Begin to measure, on the loop's thread."""
        self.reset()
        self._cpu_at_beat = self.clock.thread_cpu()
        self._arm(BUSY_BEAT_SECONDS)

    def stop(self) -> None:
        """Measure no more turns than those that are noted. Harmless when not started."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reset(self) -> None:
        """Forget the longest turn."""
        self.longest = Turn(0.0, 0.0, "nothing")
        self.notable_seconds = NOTED_SECONDS

    def run(self, work: Callable[..., object], *arguments: object) -> None:
        """Call ``work`` for the loop, and note it if it takes long."""
        monotonic = self.clock.monotonic
        began = monotonic()
        try:
            work(*arguments)
        finally:
            took = monotonic() - began
            if took > self.notable_seconds:
                self.note(took, lambda: _name_of(work))

    def note(self, wall_seconds: float, name: Name) -> None:
        """Take note of what just held the loop for longer than ``notable_seconds``."""
        cpu = min(self.clock.thread_cpu() - self._cpu_at_beat, wall_seconds)
        turn = Turn(wall_seconds, cpu, name())
        if self._span is None or wall_seconds > self._span.wall_seconds:
            self._span = turn
        self._keep(turn)

    def _keep(self, turn: Turn) -> None:
        if turn.wall_seconds > self.longest.wall_seconds:
            self.longest = turn
            self.notable_seconds = max(NOTED_SECONDS, min(turn.wall_seconds, LOGGED_SECONDS))
        if turn.wall_seconds >= LOGGED_SECONDS:
            self._tell(turn)

    def _tell(self, turn: Turn) -> None:
        now = self.clock.monotonic()
        if now - self._told_at < LINE_SECONDS:
            self._untold += 1
            return
        others = f", and {self._untold} times unreported before" if self._untold else ""
        self._told_at, self._untold = now, 0
        logger.warning("the loop was held for %s%s", turn, others)

    def _arm(self, seconds: float) -> None:
        self._beat_due = self.clock.monotonic() + seconds
        self._timer = self.clock.call_later(seconds, self._beat)

    def _beat(self) -> None:
        """Look whether this comes later than what was noted explains."""
        assert self._beat_due is not None, "armed"
        late = self.clock.monotonic() - self._beat_due
        cpu_now = self.clock.thread_cpu()
        cpu = cpu_now - self._cpu_at_beat
        span, self._span = self._span, None
        explained = 0.0 if span is None else span.wall_seconds
        if late > max(self.notable_seconds, explained + NOTED_SECONDS):
            longest = "" if span is None else f", the longest of it {span}"
            self._keep(Turn(late, min(cpu, late), f"several things or a task{longest}"))
        self._cpu_at_beat = cpu_now
        self._arm(BUSY_BEAT_SECONDS if cpu > BUSY_CPU_SECONDS else IDLE_BEAT_SECONDS)


class MeteredClock(SystemClock):
    """The system's clocks; each timer is measured."""

    def __init__(self) -> None:
        self.meter = StallMeter(self)

    def call_later(self, delay_seconds: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback``, measured, on the running loop. Needs a running loop."""
        return asyncio.get_running_loop().call_later(delay_seconds, self.meter.run, callback)


def _name_of(work: Callable[..., object]) -> str:
    """Return what a job is called in the code, for whoever looks for it there."""
    work = getattr(work, "func", work)  # of a partial
    module = getattr(work, "__module__", None) or type(work).__module__
    name = getattr(work, "__qualname__", None) or type(work).__qualname__
    return f"{module}.{name}"
