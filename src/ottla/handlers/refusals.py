"""Logs clients that were refused: each kind of refusal once a minute, with a count.

Owns the logger ``ottla.audit``. Somebody who guesses passwords must not be able to fill a disk with
log lines, or to write lines of his own: names are escaped and shortened.
"""

import logging

from ottla.env.clock import Clock

logger = logging.getLogger("ottla.audit")

QUIET_SECONDS = 60.0
"""How long refusals of one kind (host, user, reason) are counted together."""
KINDS_MAX = 1_000
"""How many kinds are counted at a time; all further ones share one count."""
SHOWN_MAX = 64
"""How many characters of a name are shown."""


class Refusals:
    """The refusals of one node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._counts: dict[tuple[str, str, str], int] = {}
        self.count = 0
        """How many there were since the start."""

    def note(self, host: str, name: str, why: str) -> None:
        """Note a client that was refused. ``why`` must not contain a secret."""
        self.count += 1
        now = self._clock.monotonic()
        if now - self._since >= QUIET_SECONDS:
            self._tell_counts()
            self._since = now
        kind = (host, name, why) if len(self._counts) < KINDS_MAX else ("", "", "")
        seen = self._counts.get(kind, 0)
        self._counts[kind] = seen + 1
        if not seen:
            if kind[0]:
                logger.info("refused %s: user %s: %s", host, _shown(name), why)
            else:
                logger.info("refused more than %d different clients in a minute", KINDS_MAX)

    def _tell_counts(self) -> None:
        for (host, name, why), count in self._counts.items():
            if count > 1:
                logger.info(
                    "refused %s: user %s: %s: %d times in a minute",
                    host or "others",
                    _shown(name),
                    why or "several reasons",
                    count,
                )
        self._counts.clear()


def _shown(name: str) -> str:
    return repr(name[:SHOWN_MAX]) if name else "(none)"
