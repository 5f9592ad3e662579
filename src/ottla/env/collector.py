"""Python's garbage collector in small bites: no pass over everything while clients wait.

A pass over the oldest generation looks at every object that may be part of a cycle: a tenth of a
second with a million of them, which a long request alone can make. What survives such a pass is put
aside (``gc.freeze``), so that the next one looks only at what is new since. Objects that are put
aside still go by their reference counts; only cycles among them stay. When there are many more of
them than the last full pass left, and not only while a long request is served, the next pass looks
at everything again.

For a process whose loop serves clients. Source: Python's ``gc`` module.
"""

import gc
from typing import Literal

from ottla.env.clock import Clock

MORE_MAX = 250_000
"""Objects that may be set aside beyond twice what a full pass left: some tens of MB of cycles."""
PATIENCE_SECONDS = 10.0
"""Seconds above the limit before a full pass: a long request is served within some seconds."""
PASSES_PER_COUNT = 16
"""Passes between counts: counting takes milliseconds per million objects."""
_OLDEST = 2


class Collector:
    """Decides how much each pass of the process's garbage collector looks at."""

    def __init__(self, clock: Clock, *, more_max: int = MORE_MAX) -> None:
        self._clock = clock
        self._more_max = more_max
        self._limit = 0
        self._passes = 0
        self._is_full_due = False
        self._many_since: float | None = None
        """Use: the second since which there were more than the limit at each count."""

    def start(self) -> None:
        """Set all present objects aside, and collect from now on. Call it once."""
        gc.freeze()
        self._limit = self._limit_after(gc.get_freeze_count())
        gc.callbacks.append(self._heard)
        gc.enable()

    def _limit_after(self, left: int) -> int:
        return 2 * left + self._more_max

    def _heard(self, phase: Literal["start", "stop"], info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] != _OLDEST:
            return
        gc.freeze()
        self._passes += 1
        if self._is_full_due:
            self._is_full_due = False
            self._limit = self._limit_after(gc.get_freeze_count())
        elif self._passes % PASSES_PER_COUNT == 0:
            self._count()

    def _count(self) -> None:
        if gc.get_freeze_count() <= self._limit:
            self._many_since = None
            return
        now = self._clock.monotonic()
        if self._many_since is None:
            self._many_since = now
        elif now - self._many_since >= PATIENCE_SECONDS:
            self._many_since = None
            gc.unfreeze()
            self._is_full_due = True
