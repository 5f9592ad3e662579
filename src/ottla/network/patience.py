"""How long one peer may take: to be silent, to send a request, to take an answer.

Owns the moments since when something of a connection does not move. Judges, and closes nothing.
Time in which this process stood still is not the peer's (``forgive``).
Source: rows 2 and 12-14 of the hostile-client rules (docs/hostile-clients.md).
"""

from typing import NamedTuple

from ottla.network.limits import Limits

SCARCE_SECONDS = 5.0
"""While the memory for answers is full a peer has to take so many seconds' bytes, at the pace of
``Limits.bytes_per_second_min``, within this time. Not shorter: the kernel tells of room in its
buffers by the MB, which an honest peer's slow line takes some seconds for."""


class _Mark(NamedTuple):
    """How much had been taken at a moment from which nothing, or too little, was taken."""

    since: float
    taken_bytes: int


class Patience:
    """The clocks that run against one peer."""

    __slots__ = (
        "_limits",
        "_slow",
        "_stalled",
        "frame_began",
        "last_activity",
        "starved_since",
    )

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self.last_activity = now
        """Use: when bytes came, or an answer left."""
        self.frame_began: float | None = None
        """Use: when the partial frame at hand began to arrive."""
        self.starved_since: float | None = None
        """Use: it waits for receive memory since then."""
        self._stalled: _Mark | None = None
        """Use: nothing was taken since. Invariant: None when everything has been taken."""
        self._slow: _Mark | None = None
        """Use: as ``_stalled``, but for less than what the pace asks for."""

    def look(self, now: float, unsent_bytes: int, taken_bytes: int) -> None:
        """Take note of how much the peer has taken of its answers, and has not."""
        if not unsent_bytes:
            self._stalled = self._slow = None
            return
        here = _Mark(now, taken_bytes)
        if self._stalled is None or taken_bytes > self._stalled.taken_bytes:
            self._stalled = here
        pace_bytes = SCARCE_SECONDS * self._limits.bytes_per_second_min
        if self._slow is None or taken_bytes - self._slow.taken_bytes >= pace_bytes:
            self._slow = here

    def has_stalled(self, now: float) -> bool:
        """Tell whether the peer has taken nothing of a waiting answer for too long."""
        mark = self._stalled
        return mark is not None and now - mark.since > self._limits.write_stall_seconds

    def slow_seconds(self, now: float) -> float:
        """Return for how long it has been taking too little for when memory is scarce; or 0."""
        mark = self._slow
        seconds = 0.0 if mark is None else now - mark.since
        return seconds if seconds > SCARCE_SECONDS else 0.0

    def sends_too_slowly(self, now: float, held_bytes: int) -> bool:
        """Tell whether the request of which ``held_bytes`` have arrived takes too long."""
        if self.frame_began is None:
            return False
        allowed = self._limits.frame_seconds + held_bytes / self._limits.bytes_per_second_min
        return now - self.frame_began > allowed

    def is_idle(self, now: float) -> bool:
        """Tell whether the peer has been silent for too long, if nobody owes it an answer."""
        return now - self.last_activity > self._limits.idle_seconds

    def has_starved(self, now: float) -> bool:
        """Tell whether it has waited too long for receive memory."""
        since = self.starved_since
        return since is not None and now - since > self._limits.frame_seconds

    def forgive(self, seconds: float) -> None:
        """Leave ``seconds`` out: this process stood still for so long."""
        self.last_activity += seconds
        if self.frame_began is not None:
            self.frame_began += seconds
        if self.starved_since is not None:
            self.starved_since += seconds
        if self._stalled is not None:
            self._stalled = self._stalled._replace(since=self._stalled.since + seconds)
        if self._slow is not None:
            self._slow = self._slow._replace(since=self._slow.since + seconds)
