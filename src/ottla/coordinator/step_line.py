"""Runs the work of one owner in steps, one piece after the other, taking turns with other work.

Knows nothing of the work. A piece is a generator: each of its steps takes some microseconds.
"""

from collections import deque
from collections.abc import Iterator

from ottla.turns import Portions, Turns


class StepLine:
    """Pieces of work in the order in which they came."""

    __slots__ = ("_is_at_once", "_pieces", "_portions", "_turns")

    def __init__(self, turns: Turns, name: str) -> None:
        """``name``: what the log calls this work when it reports a stall of the loop."""
        self._turns = turns
        self._pieces: deque[Iterator[object]] = deque()
        self._portions = Portions(turns, self._step, name)
        self._is_at_once = False
        """Use: True while ``do`` runs the first piece."""

    def add(self, piece: Iterator[object]) -> None:
        """Run ``piece`` after the pieces before it: now, as far as this turn of the loop allows."""
        self._pieces.append(piece)
        self.go_on()

    def put(self, piece: Iterator[object]) -> None:
        """Put ``piece`` into the line. The next ``go_on``, ``add`` or ``do`` runs it."""
        self._pieces.append(piece)

    def go_on(self) -> None:
        """Run the pieces in the line: now, as far as this turn of the loop allows."""
        if self._pieces and not self._is_at_once:
            self._portions.go_on()

    def do(self, piece: Iterator[object]) -> None:
        """Run ``piece``, a short one, at once and whole if the line is empty; else as ``add``."""
        if self._pieces or self._turns.is_over:
            self.add(piece)
            return
        self._pieces.append(piece)  # Pieces that come meanwhile stand behind it.
        self._is_at_once = True
        try:
            for _ in piece:
                pass
        finally:
            self._is_at_once = False
            self._pieces.popleft()
            if self._pieces:
                self._portions.go_on()

    def _step(self) -> bool:
        try:
            next(self._pieces[0])
        except StopIteration:
            self._pieces.popleft()
        return bool(self._pieces)
