"""Judges how long a peer has been silent, sending one request, or not reading its answers.

Owns the moments at which a connection last made progress. Judges only; the connection acts. Time in
which this process stood still does not count against the peer (``forgive``). Times are in seconds
of the monotonic clock.
Source: rows 2 and 12-14 of the hostile-client rules (docs/hostile-clients.md).
"""

from typing import NamedTuple

from ottla.network.limits import Limits

SCARCE_SECONDS = 5.0
"""While the memory for answers is full, a peer must read at ``Limits.bytes_per_second_min``,
averaged over this time. Not shorter: the kernel reports room in its buffers by the MB, and an
honest peer on a slow line needs some seconds for one."""


class _Mark(NamedTuple):
    """A moment, and how many bytes the peer had read by then."""

    since: float
    taken_bytes: int


class Patience:
    """The clocks that run against one peer."""

    __slots__ = (
        "_limits",
        "_slow",
        "_stalled",
        "began",
        "frame_began",
        "last_activity",
        "let_in_by",
        "starved_since",
    )

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self.began = now
        """Use: when the connection was made."""
        self.let_in_by: float | None = None
        """Use: until then the client has to prove who it is. None: it has, or need not."""
        self.last_activity = now
        """Use: when bytes last arrived or an answer last left."""
        self.frame_began: float | None = None
        """Use: when the current partial frame began to arrive; None: there is none."""
        self.starved_since: float | None = None
        """Use: since when it waits for receive memory; None: it does not."""
        self._stalled: _Mark | None = None
        """Use: the peer has read nothing since. Invariant: None when nothing is unsent."""
        self._slow: _Mark | None = None
        """Use: the peer has read too little since. Invariant: None when nothing is unsent."""

    def look(self, now: float, unsent_bytes: int, taken_bytes: int) -> None:
        """Note how many bytes of answers are unsent, and how many the peer has read in all."""
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
        """Whether the peer has read nothing of a waiting answer for too long."""
        mark = self._stalled
        return mark is not None and now - mark.since > self._limits.write_stall_seconds

    def slow_seconds(self, now: float) -> float:
        """Return for how long it has been reading too slowly for scarce memory; 0: it has not."""
        mark = self._slow
        seconds = 0.0 if mark is None else now - mark.since
        return seconds if seconds > SCARCE_SECONDS else 0.0

    def sends_too_slowly(self, now: float, held_bytes: int) -> bool:
        """Whether the request of which ``held_bytes`` have arrived takes too long."""
        if self.frame_began is None:
            return False
        allowed = self._limits.frame_seconds + held_bytes / self._limits.bytes_per_second_min
        return now - self.frame_began > allowed

    def confine(self, seconds: float) -> None:
        """Give the client so long, from when it connected, to prove who it is."""
        self.let_in_by = self.began + seconds

    def waits_in_vain(self, now: float) -> bool:
        """Tell whether the client has had its time to prove who it is, and has not."""
        return self.let_in_by is not None and now > self.let_in_by

    def is_idle(self, now: float) -> bool:
        """Whether the peer has been silent for too long; ask only if no answer is owed to it."""
        return now - self.last_activity > self._limits.idle_seconds

    def has_starved(self, now: float) -> bool:
        """Whether it has waited too long for receive memory."""
        since = self.starved_since
        return since is not None and now - since > self._limits.frame_seconds

    def forgive(self, seconds: float) -> None:
        """Do not count the last ``seconds``: this process stood still."""
        self.began += seconds
        if self.let_in_by is not None:
            self.let_in_by += seconds
        self.last_activity += seconds
        if self.frame_began is not None:
            self.frame_began += seconds
        if self.starved_since is not None:
            self.starved_since += seconds
        if self._stalled is not None:
            self._stalled = self._stalled._replace(since=self._stalled.since + seconds)
        if self._slow is not None:
            self._slow = self._slow._replace(since=self._slow.since + seconds)
