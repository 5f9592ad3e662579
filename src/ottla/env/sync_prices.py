"""Which way files that are due are synced: each by itself, or all that the file system holds.

Pure: knows counts and microseconds. One sync of everything costs little more than one of a single
file, unless other programs have written to the same file system, for it waits for theirs, too. So
both prices are measured all the time. What was dear is tried again, but nobody's data waits for the
trial's end: see ``wants_trial``.
"""

import math

COUNT_MIN = 3
"""Fewer files are always synced one by one: they run side by side."""
AT_ONCE = 2
"""How many files' syncs the device takes in the time of one, more or less."""
RISE, FALL = 2, 8
"""A new figure that is higher, or lower, counts as one in so many."""
HALF_LIFE_SECONDS = 10.0
"""In this time, unseen, the price of a single file is halved: so it is seen again."""
ONE_US = 300.0
"""The price of a single file before it is known."""
PATIENCE_US_MIN = 20_000.0
PATIENCE = 8
"""A sync of everything is late when it takes so many times its price."""
TRIAL_SECONDS_MIN = 1.0
TRIAL_SHARE = 20
"""Trials take one part in so many of the time."""


class SyncPrices:
    """The prices of one file system, in microseconds. Times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._one_us = ONE_US
        self._one_seen = now
        self._all_us: float | None = None
        self._tried = now - TRIAL_SECONDS_MIN
        self._trial_seconds = TRIAL_SECONDS_MIN

    def saw_one(self, us: float, now: float) -> None:
        """Learn what the sync of one file has taken."""
        self._one_us += (us - self._one_us) / (RISE if us > self._one_us else FALL)
        self._one_seen = now

    def saw_all(self, us: float) -> None:
        """Learn what a sync of everything has taken."""
        assert self._all_us is not None, "the first one is a trial"
        self._all_us += (us - self._all_us) / (RISE if us > self._all_us else FALL)

    def saw_trial(self, us: float, now: float) -> None:
        """Learn what a trial has taken: it is the price from now on."""
        self._all_us = us
        self._trial_seconds = max(TRIAL_SECONDS_MIN, us * TRIAL_SHARE / 1e6)
        self._tried = now

    def prefers_all(self, count: int, now: float) -> bool:
        """Tell whether ``count`` files, all due now, are better synced by one call."""
        if count < COUNT_MIN or self._all_us is None:
            return False
        unseen = (now - self._one_seen) / HALF_LIFE_SECONDS
        one_us = self._one_us * math.pow(0.5, unseen)
        return self._all_us * AT_ONCE < one_us * count

    def wants_trial(self, count: int, now: float) -> bool:
        """Tell whether to find out the price of one call, with nobody waiting for its end.

        Asked when ``count`` files go one by one. Without it, who was served badly once because of
        another program's writing would be served badly again to find out that it has ended.
        """
        return count >= COUNT_MIN and now - self._tried >= self._trial_seconds

    def patience_seconds(self) -> float:
        """Return after how long those who wait for one call are served another way."""
        return max(PATIENCE_US_MIN, (self._all_us or 0.0) * PATIENCE) / 1e6
