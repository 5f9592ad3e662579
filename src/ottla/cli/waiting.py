"""Says that a command waits for its cluster, once that takes longer than a moment."""

from ottla.cli.failure import explain
from ottla.cli.output import note
from ottla.client.asyncio.trouble import Trouble
from ottla.env.clock import Clock
from ottla.errors import OttlaError

PATIENCE_SECONDS = 1.0


class Waiting(Trouble):
    """Notes on standard error: what is waited for, anew when that changes, and that it is over."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None
        self._said = ""

    def retrying(self, error: OttlaError) -> None:
        """Count a failed try; say it if tries have failed for over a second."""
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        what = explain(error).what
        if now - self._since >= PATIENCE_SECONDS and what != self._said:
            self._said = what
            note(f"waiting: {what}; trying again")

    def answered(self) -> None:
        """Say that it goes on, if it was said that it did not."""
        if self._said:
            assert self._since is not None
            note(f"the cluster answers again, after {self._clock.monotonic() - self._since:.0f} s")
        self._since = None
        self._said = ""
