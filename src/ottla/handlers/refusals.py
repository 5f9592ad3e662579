"""Logs clients that were refused: each kind of refusal once a minute, with a count.

Owns the logger ``ottla.audit``. Somebody who guesses passwords must not be able to fill a disk with
log lines, or to write lines of his own: names are escaped and shortened.
"""

import logging

from ottla.complaints import Complaints
from ottla.env.clock import Clock

logger = logging.getLogger("ottla.audit")

KINDS_MAX = 1_000
"""How many kinds are counted at a time; all further ones share one count."""
SHOWN_MAX = 64
"""How many characters of a name are shown."""
_TOO_MANY = (
    f"refused more than {KINDS_MAX} different clients in a minute",
    "refused others: user (none): several reasons",
)


class Refusals:
    """The refusals of one node."""

    def __init__(self, clock: Clock) -> None:
        self._complaints = Complaints(logger, clock, kinds_max=KINDS_MAX, others=_TOO_MANY)
        self.count = 0
        """How many there were since the start."""

    def note(self, host: str, name: str, why: str) -> None:
        """Note a client that was refused. ``why`` must not contain a secret."""
        self.count += 1
        self._complaints.note(logging.INFO, f"refused {host}: user {_shown(name)}: {why}")


def _shown(name: str) -> str:
    return repr(name[:SHOWN_MAX]) if name else "(none)"
