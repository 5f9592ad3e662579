"""Answers requests that waited, some per turn of the loop.

A rebalance that completes answers every member at once, and each answer is encoded and written: of
10,000 members that is a third of a second. Whoever is in front is answered in this turn, the rest
in the next ones. Knows nothing of groups; what is answered is decided already.
"""

from collections import deque
from collections.abc import Callable

from ottla.env.clock import Clock

AT_A_TIME = 250
"""Answers per turn: some 10 ms."""


class Answering:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: deque[Callable[[], None]] = deque()
        self._is_due = False
        """Use: the next turn has been asked for. Invariant: true while any are left."""

    def __len__(self) -> int:
        return len(self._left)

    def take(self, answers: list[Callable[[], None]]) -> None:
        """Give the answers, in their order; those of an earlier call come first."""
        self._left.extend(answers)
        if not self._is_due:
            self._go_on()

    def _go_on(self) -> None:
        self._is_due = False
        left = self._left
        try:
            for _ in range(min(AT_A_TIME, len(left))):
                left.popleft()()
        finally:
            if left:
                self._is_due = True
                self._clock.call_later(0.0, self._go_on)
