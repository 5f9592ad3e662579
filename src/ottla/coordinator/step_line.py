"""Work of one owner in steps, one piece behind the other, in turn with everybody else on the loop.

Knows nothing of what is done. A piece is a generator: each of its steps takes some microseconds.
"""

from collections import deque
from collections.abc import Iterator

from ottla.turns import Portions, Turns


class StepLine:
    """Pieces of work in the order in which they came."""

    __slots__ = ("_is_at_once", "_pieces", "_portions", "_turns")

    def __init__(self, turns: Turns, name: str) -> None:
        """``name``: what a stall is put down to."""
        self._turns = turns
        self._pieces: deque[Iterator[object]] = deque()
        self._portions = Portions(turns, self._step, name)
        self._is_at_once = False
        """Use: the first piece is being done by ``do``."""

    def add(self, piece: Iterator[object]) -> None:
        """Do ``piece`` behind those before it: now as far as this turn of the loop allows."""
        self._pieces.append(piece)
        if not self._is_at_once:
            self._portions.go_on()

    def do(self, piece: Iterator[object]) -> None:
        """Do ``piece`` as ``add``; but at once and whole if nothing is before it: it is short."""
        if self._pieces or self._turns.is_over:
            self.add(piece)
            return
        self._pieces.append(piece)  # What comes meanwhile stands behind it.
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
