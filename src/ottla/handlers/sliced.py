"""Work for one request in slices: the others have their turns in between.

A handler whose work grows with what is asked is a generator: it yields wherever it may be
interrupted (every few hundred elements), or yields a Pending to get its value, and returns the
response. ``Slices.run`` does the first slice at once, so that a small request costs no turn; what
is left over takes turns with everybody else (``ottla.turns``). Whatever a generator looked at
before a yield may be different behind it: it works on lists of its own.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from ottla.pending import Pending
from ottla.turns import SLICE_SECONDS, Turns

Value = TypeVar("Value")
Steps = Generator[Pending[Any] | None, Any, Value]

RUNNING_MAX = 4
"""So many long pieces of work take turns; the others wait in line, as what they were asked. Bounds
memory: each may hold 200,000 objects of a request and as many of its answer."""


class Slices:
    """Runs the long work of all connections."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.running = 0
        """*Invariant:* at most ``RUNNING_MAX``."""
        self._waiting: deque[_Work[Any]] = deque()
        """*Invariant:* empty unless ``RUNNING_MAX`` run."""

    def run(
        self, steps: Steps[Value | Pending[Value]], name: Callable[[], str]
    ) -> Value | Pending[Value]:
        """Do the first slice; return what came of it, or a promise of it.

        Raises what the steps raise in their first slice. If the Pending is cancelled the steps are
        closed where they are. If the steps return a Pending, that is waited for.
        """
        work = _Work(self, steps, name)
        try:
            work.advance()
        except StopIteration as end:
            result: Value | Pending[Value] = end.value
            return result
        self.begin(work)
        return work.pending

    def begin(self, work: "_Work[Any]") -> None:
        """Let ``work`` go on, or wait for one of the others to end."""
        if self.running < RUNNING_MAX:
            self.running += 1
            work.go_on()
        else:
            self._waiting.append(work)

    def ended(self, work: "_Work[Any]") -> None:
        """Let the next one go on in the place of ``work``."""
        if not work.has_place:
            self._waiting.remove(work)
            return
        self.running -= 1
        if self._waiting:
            self.running += 1
            self._waiting.popleft().go_on()


class _Work(Generic[Value]):
    """One piece of work, between two of its slices."""

    __slots__ = ("_awaited", "_name", "_slices", "_steps", "has_place", "pending")

    def __init__(
        self, slices: Slices, steps: Steps[Value | Pending[Value]], name: Callable[[], str]
    ) -> None:
        self._slices = slices
        self._steps = steps
        self._name = name
        self._awaited: Pending[Any] | None = None
        self.has_place = False
        self.pending: Pending[Value] = Pending()
        self.pending.on_cancel(self._cancel)

    def go_on(self) -> None:
        """Have the next turn, or the one behind what is waited for."""
        self.has_place = True
        if self._awaited is None:
            self._slices.turns.wait(self._turn)
        else:
            self._awaited.on_done(lambda _: self._slices.turns.wait(self._turn))

    def advance(self) -> None:
        """Do a slice. Raises StopIteration at the end, and what the steps raise."""
        monotonic = self._slices.turns.clock.monotonic
        end = monotonic() + SLICE_SECONDS
        steps, awaited = self._steps, self._awaited
        self._awaited = None
        if awaited is None:
            waits = next(steps)
        elif awaited.error is not None:
            waits = steps.throw(awaited.error)
        else:
            waits = steps.send(awaited.value)
        while waits is None and monotonic() < end:
            waits = next(steps)
        self._awaited = waits

    def _turn(self) -> None:
        if self.pending.is_done:  # Cancelled while it stood in line.
            return
        turns = self._slices.turns
        began = turns.clock.monotonic()
        try:
            self.advance()
        except StopIteration as end:
            self._finish(end.value, None)
        except Exception as error:  # noqa: BLE001 - travels to whoever listens
            self._finish(None, error)
        else:
            self.go_on()
        turns.spent(turns.clock.monotonic() - began, self._name)

    def _finish(self, result: Value | Pending[Value] | None, error: Exception | None) -> None:
        self._slices.ended(self)
        if error is not None:
            self.pending.fail(error)
        elif isinstance(result, Pending):
            self.pending.on_cancel(result.cancel, result.hurry)
            result.on_done(self.pending.take_over)
        else:
            self.pending.resolve(result)  # type: ignore[arg-type]

    def _cancel(self) -> None:
        self.pending.is_done = True
        self._steps.close()
        if self._awaited is not None:
            self._awaited.cancel()
        self._slices.ended(self)
