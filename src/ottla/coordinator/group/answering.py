"""Answers many that waited, some per turn of the loop.

A rebalance that completes answers every member at once, and each answer is encoded and written: of
10,000 members that is a third of a second. Whoever is in front is answered in this turn, the rest
in the next ones. Knows nothing of groups; what is answered is decided already.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from ottla.turns import Portions, Turns

Item = TypeVar("Item")


class Answering:
    """See the module."""

    def __init__(self, turns: Turns) -> None:
        self._left: deque[Iterator[object]] = deque()
        self._work = Portions(turns, self._answer_one, "answers to a group's members")

    @property
    def is_idle(self) -> bool:
        """Tell whether nobody is to be answered."""
        return not self._left

    def take(self, answer: Callable[[Item], object], items: Iterable[Item]) -> None:
        """Call ``answer`` with each of ``items``, in order; those of an earlier call come first.

        ``items`` is the caller's own: nobody changes it. One that raises does not keep the others.
        """
        self._left.append(map(answer, items))
        self._work.go_on()

    def _answer_one(self) -> bool:
        try:
            next(self._left[0])
        except StopIteration:
            self._left.popleft()
        return bool(self._left)
