"""The work that a broker repeats beside its requests: when it is due, and never twice at a time.

Owns the timers and the one rule: a piece of work begins so long after it has ended the last time,
and never while it is under way, whatever is altered meanwhile. Work that fails is logged and begun
again at its next time. Knows nothing of what is done. Used by the broker alone.
"""

import logging
from collections.abc import Callable, Coroutine

from ottla.env.clock import Clock, Timer
from ottla.errors import OttlaError
from ottla.pending import Pending, pending_of

logger = logging.getLogger(__name__)

Work = Callable[[], Coroutine[None, None, None]]


class _Chore:
    """One piece of work and its interval."""

    def __init__(self, clock: Clock, work: Work, interval_ms: int) -> None:
        self._clock = clock
        self._work = work
        self.interval_ms = interval_ms
        self.timer: Timer | None = None
        """When the work begins next. Invariant: None while it is under way, and after a stop."""
        self.under_way: Pending[None] | None = None
        self.is_stopped = False

    def arm(self) -> None:
        """Begin so long from now, and not earlier; what is under way arms itself when it ends."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if not self.is_stopped and self.under_way is None:
            self.timer = self._clock.call_later(max(self.interval_ms, 1) / 1000, self._begin)

    def _begin(self) -> None:
        self.timer = None
        self.under_way = pending_of(self._work())
        self.under_way.on_done(self._ended)

    def _ended(self, finished: Pending[None]) -> None:
        self.under_way = None
        error = finished.error
        if error is not None:
            is_ours = not isinstance(error, (OSError, OttlaError))
            logger.error(
                "housekeeping failed, it will be tried again: %s",
                error,
                exc_info=error if is_ours else None,
            )
        self.arm()


class Schedule:
    """The periodic work of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chores: dict[Work, _Chore] = {}

    def every(self, interval_ms: int, work: Work) -> None:
        """Do ``work`` for the first time after ``interval_ms``, then so long after each end."""
        assert work not in self._chores, "each work is given once; its interval can be changed"
        self._chores[work] = chore = _Chore(self._clock, work, interval_ms)
        chore.arm()

    def change(self, interval_ms: int, work: Work) -> None:
        """Let ``work`` have another interval, from now or, if it is under way, from its end.

        Nothing happens when it is the same, and for work that was not given (yet).
        """
        chore = self._chores.get(work)
        if chore is not None and chore.interval_ms != interval_ms:
            chore.interval_ms = interval_ms
            chore.arm()

    def stop(self) -> None:
        """Begin nothing any more. What is under way goes on."""
        for chore in self._chores.values():
            chore.is_stopped = True
            chore.arm()
