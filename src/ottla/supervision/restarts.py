"""Decides what happens when a node's process ends, and when one is silent. Pure.

A node that has served comes back: soon after good service, later each time while it keeps ending;
one that has never served would not the next time, either. Source: cluster design, section 2.5.
"""

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 10.0
WELL_SECONDS = 1.0
"""A node that served for so long counts as well: its next pause is the first one again. It has done
more than a start costs; a longer pause would keep its partitions from their clients for nothing."""
SILENT_SECONDS = 30.0
"""A node that serves says something three times in the nine seconds of its session."""


class Restarts:
    """When one node is started again."""

    def __init__(self, *, may_restart: bool) -> None:
        """``may_restart``: False when its data ended with its process."""
        self._may_restart = may_restart
        self._has_served = False
        self._ready_at: float | None = None
        """Use: since when it serves, in seconds; None: it does not."""
        self._ends_in_a_row = 0

    @property
    def is_serving(self) -> bool:
        """Whether it has become ready and not ended since."""
        return self._ready_at is not None

    def ready(self, now: float) -> None:
        """Note that the node serves."""
        self._has_served = True
        self._ready_at = now

    def ended(self, now: float) -> float | None:
        """Return the seconds after which it is started again; None: the others have to end, too."""
        was_well = self._ready_at is not None and now - self._ready_at >= WELL_SECONDS
        self._ready_at = None
        if not self._has_served or not self._may_restart:
            return None
        self._ends_in_a_row = 1 if was_well else self._ends_in_a_row + 1
        pause_seconds: float = FIRST_PAUSE_SECONDS * 2 ** min(self._ends_in_a_row - 1, 16)
        return min(pause_seconds, LONGEST_PAUSE_SECONDS)


def is_silent(now: float, heard_at: float, listening_since: float) -> bool:
    """Whether a node that serves has to be killed.

    ``listening_since``: until then the supervisor itself stood still, and could hear nobody.
    """
    return now - max(heard_at, listening_since) >= SILENT_SECONDS
