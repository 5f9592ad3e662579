"""Runs long work in slices, so that other work gets its turns of the loop in between.

Work whose length depends on a request is a generator. It yields None where it may be interrupted
(about every ``STRIDE`` elements), yields a Pending to get its value, and returns its result, which
for a handler is the response. ``Slices.run`` does the first slice at once, so a small request costs
no extra turn; the rest takes turns with everything else (``ottla.turns``). State that a generator
read before a yield may have changed after it, so it works on lists of its own.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from enum import Enum
from heapq import merge
from itertools import islice
from typing import Any, Generic, TypeVar

from ottla.answer_memory import AnswerMemory
from ottla.ids import TopicPartition
from ottla.pending import Pending
from ottla.turns import SLICE_SECONDS, Turns

Item = TypeVar("Item")
Value = TypeVar("Value")
Named = TypeVar("Named", str, int)
Ordered = TypeVar("Ordered", str, TopicPartition)
Steps = Generator[Pending[Any] | None, Any, Value]

STRIDE = 64
"""Elements between two yields: about 0.5 ms of work."""
RUN = 5000
"""Items that are sorted or looked up without a yield: some ms."""
RUNNING_MAX = 4
"""How many long pieces of work take turns; further ones wait in line, as undecoded frames. Bounds
memory: each may hold 200,000 objects of a request and as many of its answer. Work that waits for
something else (a disk, a lane of the executor) has no place meanwhile: four of those would keep all
others waiting just as long."""


class Room(Enum):
    """When a piece of work needs free answer memory for its result."""

    NEVER = "never"
    TO_GO_ON = "to go on"
    """After its first slice: the result of one slice is small."""
    TO_BEGIN = "to begin"
    """Before its first slice: even that makes a large answer."""


def each(items: Iterable[Item], do: Callable[[Item], Value]) -> Steps[list[Value]]:
    """Return ``do(item)`` for each item, yielding now and then.

    Nobody else may change ``items`` meanwhile.
    """
    found: list[Value] = []
    for item in items:
        found.append(do(item))
        if not len(found) % STRIDE:
            yield None
    yield None  # A caller may run many short ones in a row.
    return found


def each_in_steps(items: Iterable[Item], do: Callable[[Item], Steps[Value]]) -> Steps[list[Value]]:
    """As ``each``, for items that may take several slices themselves."""
    found: list[Value] = []
    for item in items:
        found.append((yield from do(item)))
        if not len(found) % STRIDE:
            yield None
    return found


def distinct(items: Iterable[Named]) -> Steps[list[Named]]:
    """Return each item once, in the order of first occurrence."""
    found: dict[Named, None] = {}
    left = iter(items)
    while some := list(islice(left, RUN)):
        found.update(dict.fromkeys(some))
        yield None
    return list(found)


def sifted(
    items: Iterable[Item], is_allowed: Callable[[Item], bool]
) -> Steps[tuple[list[Item], list[Item]]]:
    """Return the allowed items and the others, each in their order."""
    allowed: list[Item] = []
    refused: list[Item] = []
    for count, item in enumerate(items, 1):
        (allowed if is_allowed(item) else refused).append(item)
        if not count % STRIDE:
            yield None
    yield None
    return allowed, refused


def any_in_steps(items: Iterable[Item], is_such: Callable[[Item], bool]) -> Steps[bool]:
    """Tell whether any item is such. Nobody else may change ``items`` meanwhile."""
    left = iter(items)
    while some := list(islice(left, STRIDE)):
        if any(map(is_such, some)):
            return True
        yield None
    return False


def sorted_in_steps(items: Iterable[Ordered]) -> Steps[list[Ordered]]:
    """Return the items in order."""
    runs: list[list[Ordered]] = []
    left = iter(items)
    while run := sorted(islice(left, RUN)):
        runs.append(run)
        yield None
    return runs[0] if len(runs) == 1 else (yield from each(merge(*runs), lambda item: item))


def at_once(steps: Steps[Value]) -> Value:
    """Run all of ``steps`` without giving way and return their result: for few items.

    The steps must not wait: AssertionError when they yield a Pending.
    """
    try:
        while True:
            assert next(steps) is None, "it waits for nothing"
    except StopIteration as end:
        result: Value = end.value
        return result


def promptly(
    steps: Steps[Value],
) -> Value | Pending[Value | Steps[Value]] | Steps[Value]:
    """Begin work that is short as a rule, without a turn and a place of its own.

    Returns the result, or what is left of the steps when they may be interrupted: those are run by
    whoever runs steps. When they wait for something, a Pending of one of both.
    """
    return _resumed(steps, lambda: next(steps))


def _resumed(
    steps: Steps[Value], resume: Callable[[], Pending[Any] | None]
) -> Value | Pending[Value | Steps[Value]] | Steps[Value]:
    try:
        awaited = resume()
    except StopIteration as end:
        result: Value = end.value
        return result
    if awaited is None:
        return steps
    later: Pending[Value | Steps[Value]] = Pending()

    def cancel() -> None:
        awaited.cancel()
        steps.close()

    def go_on(done: Pending[Any]) -> None:
        def resume() -> Pending[Any] | None:
            return steps.send(done.value) if done.error is None else steps.throw(done.error)

        try:
            found = _resumed(steps, resume)
        except Exception as error:  # noqa: BLE001 - travels to whoever listens
            later.fail(error)
        else:
            later.follow(found)

    later.on_cancel(cancel, awaited.hurry)
    awaited.on_done(go_on)
    return later


class Slices:
    """Runs the long work of all connections."""

    def __init__(self, turns: Turns, answers: AnswerMemory | None = None) -> None:
        """``answers``: the memory in which work waits for room; None: it never waits for room."""
        self.turns = turns
        self.running = 0
        """*Invariant:* at most ``RUNNING_MAX``."""
        self._waiting: deque[_Work[Any]] = deque()
        """*Invariant:* holds no work that could have a place now."""
        self._answers = answers
        if answers is not None:
            answers.on_room(self._give_places)

    def run(
        self,
        steps: Steps[Value | Pending[Value]],
        name: Callable[[], str],
        *,
        room: Room = Room.TO_GO_ON,
    ) -> Value | Pending[Value]:
        """Do the first slice; return the result if that was all, else a Pending of it.

        Raises what the steps raise in their first slice. Cancelling the Pending closes the
        generator where it stands. If the steps return a Pending, its outcome is the result.
        ``name``: what a stall of the loop is put down to. ``room``: when the work waits for memory.
        """
        work = _Work(self, steps, name, room)
        if room is Room.TO_BEGIN and not self._has_room(work):
            work.pending.on_cancel(work.cancel)
            self.begin(work)
            return work.pending
        try:
            work.advance()
        except StopIteration as end:
            result: Value | Pending[Value] = end.value
            return result
        work.pending.on_cancel(work.cancel)
        work.go_on()
        return work.pending

    def begin(self, work: "_Work[Any]") -> None:
        """Give ``work`` a place, or queue it until one is free."""
        if self.running < RUNNING_MAX and self._has_room(work):
            self.running += 1
            work.have_place()
        else:
            self._waiting.append(work)

    def ended(self, work: "_Work[Any]") -> None:
        """Take ``work`` out of its place, which goes to the next in line, or out of the line."""
        if not work.has_place:
            if work in self._waiting:
                self._waiting.remove(work)
            return
        work.has_place = False
        self.running -= 1
        self._give_places()

    def _has_room(self, work: "_Work[Any]") -> bool:
        return work.room is Room.NEVER or self._answers is None or not self._answers.is_full

    def _give_places(self) -> None:
        """Give free places to waiting work, in the order of arrival.

        Work that has begun goes first. Work that still waits to begin (``Room.TO_BEGIN``) makes the
        largest answers, and a client that asks for many of them must not keep all others waiting.
        """
        while self.running < RUNNING_MAX:
            waiting = [work for work in self._waiting if self._has_room(work)]
            if not waiting:
                break
            begun = (work for work in waiting if work.room is not Room.TO_BEGIN)
            work = next(begun, waiting[0])
            self._waiting.remove(work)
            self.running += 1
            work.have_place()


class _Work(Generic[Value]):
    """One piece of work, between two of its slices."""

    __slots__ = ("_awaited", "_name", "_slices", "_steps", "has_place", "pending", "room")

    def __init__(
        self,
        slices: Slices,
        steps: Steps[Value | Pending[Value]],
        name: Callable[[], str],
        room: Room,
    ) -> None:
        self._slices = slices
        self._steps = steps
        self._name = name
        self._awaited: Pending[Any] | None = None
        self.has_place = False
        """Use: True while this work counts as one of the ``RUNNING_MAX``."""
        self.room = room
        self.pending: Pending[Value] = Pending()

    def go_on(self) -> None:
        """Queue for the next slice: now, or when the awaited Pending is done.

        While it waits it has no place: that may take long, and other work could use the place.
        """
        awaited = self._awaited
        if awaited is not None and not awaited.is_done:
            self._slices.ended(self)
            awaited.on_done(lambda _: self._slices.begin(self))
        elif self.has_place:
            self.have_place()
        else:
            self._slices.begin(self)

    def have_place(self) -> None:
        """Take a place and queue for a turn."""
        self.has_place = True
        self._slices.turns.wait(self._turn)

    def advance(self) -> None:
        """Do one slice. Raises StopIteration with the result at the end, else what steps raise."""
        monotonic = self._slices.turns.clock.monotonic
        end = monotonic() + SLICE_SECONDS
        steps, awaited = self._steps, self._awaited
        self._awaited = None
        while True:
            if awaited is None:
                awaited = next(steps)
            elif awaited.error is not None:
                awaited = steps.throw(awaited.error)
            else:
                awaited = steps.send(awaited.value)
            is_waiting = awaited is not None and not awaited.is_done
            if is_waiting or monotonic() >= end:
                self._awaited = awaited
                return

    def _turn(self) -> None:
        if self.pending.is_done:  # Cancelled while it was queued.
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
        else:
            self.pending.follow(result)  # type: ignore[arg-type]

    def cancel(self) -> None:
        """Close the generator where it stands: nobody waits for its result."""
        self.pending.is_done = True
        self._steps.close()
        if self._awaited is not None:
            self._awaited.cancel()
        self._slices.ended(self)
