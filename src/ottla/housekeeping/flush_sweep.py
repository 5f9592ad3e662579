"""Flushes by time: logs with a ``flush.ms``, looked at now and then.

Beside the flushes by count that an append begins. A partition is watched only if time can matter to
it: with ``flush.messages=1`` nothing waits unflushed. With none watched there is no timer. Kafka
looks at ``log.flush.scheduler.interval.ms`` only, which is "never" by default; here the shortest
``flush.ms`` says how often, unless that option does. Very many flushes are begun in slices.
Source: Kafka's LogManager.flushDirtyLogs.
"""

from ottla.env.alarm import NEVER, Alarm
from ottla.env.clock import Clock
from ottla.ids import INT64_MAX
from ottla.replication.partition import Partition
from ottla.turns import Portions, Turns

SWEEP_SECONDS_MIN = 0.01
SWEEP_SECONDS_MAX = 60.0


class FlushSweep:
    """Begins a flush of every watched partition before its unflushed data is too old."""

    def __init__(self, clock: Clock, interval_ms: int, turns: Turns | None = None) -> None:
        """``interval_ms``: ``log.flush.scheduler.interval.ms``; INT64_MAX leaves it to the logs.

        ``turns``: the line of the loop, if others stand in it as well.
        """
        self._left: list[Partition] = []
        """Use: those that are still to be looked at in a sweep under way."""
        self._is_sweeping = False
        self._is_stopped = False
        self._swept_at = 0.0
        self._sweeping = Portions(turns or Turns(clock), self._look_at_one, "flushes by time")
        self._clock = clock
        self._fixed_seconds = None if interval_ms == INT64_MAX else _bounded(interval_ms)
        self._flushed: dict[Partition, float] = {}
        """Use: when each partition watched was last flushed from here, in monotonic seconds."""
        self._alarm = Alarm(clock, self._sweep)
        self._seconds = SWEEP_SECONDS_MAX

    def watch(self, partition: Partition) -> None:
        """Look after ``partition`` as its settings say now; do so again when they change."""
        config = partition.log.config
        if self._is_stopped or config.flush_messages == 1 or config.flush_ms == INT64_MAX:
            self.forget(partition)
            return
        self._flushed.setdefault(partition, self._clock.monotonic())
        if self._alarm.at == NEVER or self._interval_of(partition) < self._seconds:
            self._arm()

    def forget(self, partition: Partition) -> None:
        """Look after ``partition`` no longer. Harmless when it is not watched."""
        self._flushed.pop(partition, None)
        if not self._flushed:
            self._rest()

    def stop(self) -> None:
        """Begin no further flush, and watch nothing that is hosted later."""
        self._is_stopped = True
        self._rest()

    def _rest(self) -> None:
        self._left.clear()
        self._is_sweeping = False
        self._alarm.clear()

    def _arm(self) -> None:
        self._seconds = min(map(self._interval_of, self._flushed))
        self._alarm.clear()
        self._alarm.set(self._clock.monotonic() + self._seconds)

    def _interval_of(self, partition: Partition) -> float:
        return self._fixed_seconds or _bounded(partition.log.config.flush_ms)

    def _sweep(self, now: float) -> None:
        self._swept_at = now
        self._left = list(self._flushed)
        self._left.reverse()
        self._is_sweeping = True
        self._sweeping.go_on()

    def _look_at_one(self) -> bool:
        if not self._left:
            if self._is_sweeping:
                self._is_sweeping = False
                self._arm()
            return False
        partition, now = self._left.pop(), self._swept_at
        flushed = self._flushed.get(partition)
        if flushed is not None:  # Else it has gone meanwhile.
            # What would be too old at the next look is flushed at this one.
            is_due = now - flushed + self._seconds > partition.log.config.flush_ms / 1000
            if is_due and partition.flush():
                self._flushed[partition] = now
        return True


def _bounded(interval_ms: int) -> float:
    return min(max(interval_ms / 1000, SWEEP_SECONDS_MIN), SWEEP_SECONDS_MAX)
