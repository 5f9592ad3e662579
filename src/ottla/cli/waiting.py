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
        self._since: dict[object, float] = {}
        """Use: who is in trouble, and since when."""
        self._began = 0.0
        self._said = ""

    def retrying(self, error: OttlaError, of: object = None) -> None:
        """Count a failed try; say it if tries have failed for over a second."""
        now = self._clock.monotonic()
        if not self._since and not self._said:
            self._began = now
        since = self._since.setdefault(of, now)
        what = explain(error).what
        if now - since >= PATIENCE_SECONDS and what != self._said:
            self._said = what
            note(f"waiting: {what}; trying again")

    def answered(self, of: object = None) -> None:
        """Say that it goes on, if it was said that it did not, and nobody else waits."""
        self._since.pop(of, None)
        if self._said and not self._since:
            note(f"the cluster answers again, after {self._clock.monotonic() - self._began:.0f} s")
            self._said = ""

    def gave_up(self, of: object = None) -> None:
        """Forget who does not try any more."""
        self._since.pop(of, None)
