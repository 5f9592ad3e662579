"""The clock port of one life: the world's time, and a wall clock that may be wrong."""

WALL_MS = 1_700_000_000_000


class SimulatedClock:
    """Monotonic time is the world's. ``skew_ms`` moves the wall clock alone."""

    def __init__(self, loop):
        self._loop = loop
        self.skew_ms = 0

    def wall_ms(self):
        return WALL_MS + self.skew_ms + int(self._loop.now * 1000)

    def monotonic(self):
        return self._loop.now

    def thread_cpu(self):
        return self._loop.now

    def call_later(self, delay_seconds, callback):
        return self._loop.call_later(delay_seconds, callback)
