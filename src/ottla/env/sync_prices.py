"""Which way files that are due are synced: each by itself, or all that the file system holds.

Pure: knows counts and microseconds. Those of single files are added up, as if each waited for the
one before it: side by side they end sooner, but each of them takes the processor as long as all
together do. One sync of everything costs little more than one of a single
file, unless other programs have written to the same file system, for it waits for theirs, too. So
both prices are measured all the time, as means in which no single figure counts for much: a device
that stops for a moment does so for either way. What was dear is tried again by a probe: a sync of
everything that is late as soon as single ones would have been done twice over.
"""

import math

COUNT_MIN = 3
"""Fewer files are always synced one by one: they run side by side."""
ONE_SHARE, ALL_SHARE = 16, 4
"""A new figure of one file, or of all, counts as one in so many."""
SURPRISE = 4
"""A figure counts as so many times the price at most."""
HALF_LIFE_SECONDS = 10.0
"""In this time, unseen, the price of a single file is halved: so it is seen again."""
ONE_US = 300.0
"""The price of a single file before it is known."""
PATIENCE_US_MIN = 20_000.0
PATIENCE = 8
"""A sync of everything is late when it takes so many times its price."""
PROBE_US_MIN = 5_000.0
"""A probe is late when it takes longer than that and than what single syncs would have."""
PROBE_SECONDS_MIN = 0.1
PROBE_PAUSE_MIN, PROBE_PAUSE_MAX = 4, 20
"""After a probe it is waited so many times what it took; twice as long after each that was dear."""


class SyncPrices:
    """The prices of one file system, in microseconds. Times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._one_us = ONE_US
        self._one_seen = now
        self._all_us: float | None = None
        self._probe_due = now
        self._pause = PROBE_PAUSE_MIN

    def saw_one(self, us: float, now: float) -> None:
        """Learn what the sync of one file has taken."""
        self._one_us += (min(us, self._one_us * SURPRISE) - self._one_us) / ONE_SHARE
        self._one_seen = now

    def saw_all(self, us: float, now: float) -> None:
        """Learn what a sync of everything has taken."""
        if self._all_us is None:
            self.saw_probe(us, now)
            return
        self._all_us += (min(us, self._all_us * SURPRISE) - self._all_us) / ALL_SHARE

    def saw_probe(self, us: float, now: float) -> None:
        """Learn what a probe has taken: it is the price from now on."""
        was_dear = self._all_us is not None and us >= self._all_us
        self._pause = min(self._pause * 2, PROBE_PAUSE_MAX) if was_dear else PROBE_PAUSE_MIN
        self._all_us = us
        self._probe_due = now + max(PROBE_SECONDS_MIN, us * self._pause / 1e6)

    def prefers_all(self, count: int, now: float) -> bool:
        """Tell whether ``count`` files, all due now, are better synced by one call."""
        if count < COUNT_MIN or self._all_us is None:
            return False
        return self._all_us < self._alone_us(count, now)

    def wants_probe(self, count: int, now: float) -> bool:
        """Tell whether ``count`` files should probe what one call costs now.

        Asked when it is not preferred. Without it, what was dear once would be so for ever.
        """
        return count >= COUNT_MIN and now >= self._probe_due

    def patience_seconds(self, count: int, now: float, *, is_probe: bool) -> float:
        """Return the seconds after which files that wait for one call are synced one by one."""
        if is_probe:
            return max(PROBE_US_MIN, self._alone_us(count, now)) / 1e6
        return max(PATIENCE_US_MIN, (self._all_us or 0.0) * PATIENCE) / 1e6

    def _alone_us(self, count: int, now: float) -> float:
        """Return what ``count`` files take, one after another."""
        unseen = (now - self._one_seen) / HALF_LIFE_SECONDS
        return self._one_us * math.pow(0.5, unseen) * count
