"""What a broker in a thread of the test's process has logged lately, for the report."""

import logging
from collections import deque
from typing import Self

KEPT = 1_000
"""How many lines are kept."""


class KeptLog:
    """A context manager: within it the lines of the logger ``ottla`` are kept. No level changes."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._handler = _Keeper(self._lines)

    def __enter__(self) -> Self:
        logging.getLogger("ottla").addHandler(self._handler)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("ottla").removeHandler(self._handler)

    def lines(self) -> list[str]:
        """Return the lines, oldest first. From any thread."""
        return list(self._lines)


class _Keeper(logging.Handler):
    """Puts each message into a list."""

    def __init__(self, lines: deque[str]) -> None:
        super().__init__()
        self._lines = lines
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message."""
        self._lines.append(self.format(record))
