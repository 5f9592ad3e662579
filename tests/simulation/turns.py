"""What one turn of a node's loop may cost: calls of the disk, the world's time and the real one.

The calls are counted, and the world's time is that of the clock, which goes on with the work: both
are the same in every run. The real time is only looked at closely where a turn took long by the
wall clock: what trips is far above what any turn here needs.
"""

import time
import traceback

CALLS_MAX = 128
"""Of the disk, by one turn of a node that serves. On a slow disk each may take milliseconds."""
CALL_SECONDS = 1e-4
"""Of the world: what a call of the disk by the loop takes, so that slices of work come to ends."""
SECONDS_MAX = 0.25
"""Of the processor. The rule is 50 ms, which the world's own time is held to; this only finds what
does not look at a clock."""
GLANCE_SECONDS = 0.02
"""Of the wall clock: how old a look at the processor's time may be when a turn begins. Each costs
a call of the kernel."""
WORLD_SECONDS_MAX = 0.05
"""Of the world. What is over by then may have begun its last piece of work shortly before."""
LAST_PIECES = 100
"""Pieces of work, of as long as the world's are, that a turn may take beyond that: some turns look
at the clock for each client or partition, which costs a real one next to nothing."""


class TurnJudge:
    """Of one world. Told of each turn's begin and end, and of calls of the disk on the loop."""

    def __init__(self, world):
        self._world = world
        self._calls = 0
        self._cpu_seconds = time.thread_time()
        self._glanced = self._began = time.perf_counter()
        self._began_at = 0.0
        self._most_in_world = WORLD_SECONDS_MAX + LAST_PIECES * world.mix.work_seconds
        self.most_calls = 0
        """The costliest turns."""
        self.longest_seconds = 0.0
        self.longest_in_world = 0.0

    def begin(self):
        self._calls = 0
        self._began = time.perf_counter()
        if self._began - self._glanced > GLANCE_SECONDS:
            self._cpu_seconds = time.thread_time()
            self._glanced = self._began
        self._began_at = self._world.loop.now

    def leave_out(self, seconds):
        """Do not count so many seconds of the turn: somebody else had the processor, or a judge."""
        self._began += seconds
        self._cpu_seconds += seconds

    def end(self, life):
        """Judge the turn of a life."""
        took = self._world.loop.now - self._began_at
        if took > self.longest_in_world and self._is_judged(life):
            self.longest_in_world = took
            if took > self._most_in_world:
                self._world.problem(f"a turn of the loop took {took:.3f} s of the world")
        wall = time.perf_counter() - self._began
        if wall > self.longest_seconds and self._is_judged(life):
            # With what the turns since the last glance took, which is little.
            seconds = min(wall, time.thread_time() - self._cpu_seconds)
            self._cpu_seconds = time.thread_time()
            self.longest_seconds = max(self.longest_seconds, seconds)
            if seconds > SECONDS_MAX:
                self._world.problem(f"a turn of the loop took {seconds:.2f} s of the processor")

    def called(self, life):
        """The loop calls the disk."""
        self._world.loop.now += CALL_SECONDS
        self._calls += 1
        if self._calls <= self.most_calls or not self._is_judged(life):
            return
        self.most_calls = self._calls
        if self._calls == CALLS_MAX:
            stack = "".join(traceback.format_stack(limit=14))
            text = f"a turn of the loop has called the disk {CALLS_MAX} times"
            self._world.problem(f"{text}\n{stack}")

    def _is_judged(self, life):
        node = self._world.node
        return node.life is life and node.is_up
