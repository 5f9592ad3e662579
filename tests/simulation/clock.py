"""The clock port of one life: the world's time, and a wall clock that may be wrong.

Who asks for the time on the loop asks between two pieces of work: each answer costs a little of the
world's time, as the work does. So slices of work come to their ends, and a turn has a length.
"""

WALL_MS = 1_700_000_000_000


class SimulatedClock:
    """Monotonic time is the world's. ``skew_ms`` moves the wall clock alone."""

    def __init__(self, loop, *, work_seconds=0.0, is_at_work=lambda: False):
        """``work_seconds``: what the loop does between two looks at the clock takes so long.

        ``is_at_work`` tells whether it is the node's loop that asks.
        """
        self._loop = loop
        self._work_seconds = work_seconds
        self._is_at_work = is_at_work
        self.skew_ms = 0

    def wall_ms(self):
        return WALL_MS + self.skew_ms + int(self._loop.now * 1000)

    def monotonic(self):
        if self._work_seconds and self._is_at_work():
            self._loop.now += self._work_seconds
        return self._loop.now

    def thread_cpu(self):
        return self._loop.now

    def call_later(self, delay_seconds, callback):
        return self._loop.call_later(delay_seconds, callback)
