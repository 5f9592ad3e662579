"""Log lines that clients can provoke: each kind once a minute, then a count.

Who connects, asks or fails as often as he likes must not be able to fill a disk with lines. Owns
how often a kind is told; its callers own logger and words.
"""

import logging

from ottla.env.clock import Clock

QUIET_SECONDS = 60.0
"""How long lines of one kind are counted together."""
KINDS_MAX = 200
"""How many kinds are counted at a time (of addresses there may be many); all further ones share one
count."""
LINE_MAX = 1_000
"""How many characters of a line are told: names in it may be a client's."""
OTHERS = "more of the like, of too many kinds to tell each"


class Complaints:
    """The lines of one logger that clients can provoke."""

    def __init__(
        self,
        logger: logging.Logger,
        clock: Clock,
        *,
        kinds_max: int = KINDS_MAX,
        others: tuple[str, str] = (OTHERS, OTHERS),
    ) -> None:
        """Build it; ``others``: the line, and what is counted, when there are too many kinds."""
        self._logger = logger
        self._clock = clock
        self._kinds_max = kinds_max
        self._others = others
        self._since = clock.monotonic()
        self._counts: dict[tuple[int, str], int] = {}
        """Use: by level and what is told. Invariant: at most ``kinds_max`` + one a level."""

    def warn(self, what: str, more: str = "") -> None:
        """Log ``what`` and ``more`` as a warning if ``what`` is new in this minute; else count."""
        self.note(logging.WARNING, what, more)

    def note(
        self, level: int, what: str, more: str = "", *, error: BaseException | None = None
    ) -> None:
        """Do as ``warn``, at this level; ``error``: with its traceback."""
        if not self._logger.isEnabledFor(level):
            return
        self.tell()
        what = _shown(what)
        kind = level, what
        if kind not in self._counts and len(self._counts) >= self._kinds_max:
            kind, line, error = (level, self._others[1]), self._others[0], None
        else:
            line = what + _shown(more)
        seen = self._counts.get(kind, 0)
        self._counts[kind] = seen + 1
        if not seen:
            self._logger.log(level, "%s", line, exc_info=error)

    def tell(self) -> None:
        """Tell the counts if a minute is over; a call now and then tells them in time."""
        now = self._clock.monotonic()
        if now - self._since < QUIET_SECONDS:
            return
        self._since = now
        counts, self._counts = self._counts, {}
        for (level, what), count in counts.items():
            if count > 1:
                self._logger.log(level, "%s: %d times in a minute", what, count)


def _shown(text: str) -> str:
    """Return the beginning, on one line: a name in it must not write lines of its own."""
    text = text[:LINE_MAX]
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
