"""Lets a group do one thing at a time: while it decides or writes, requests to it stand in line.

Requests that come while a group's records are on their way wait, and see the durable state when
their turn comes. Groups do not wait for each other; a group that is not busy costs a look-up. Knows
ids, and no kinds of groups.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any, NamedTuple, TypeVar

from ottla.coordinator.appends import Done
from ottla.coordinator.group.answering import Answering
from ottla.coordinator.operations import Refuse
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.shard import Shard
from ottla.errors import ErrorCode, KafkaError
from ottla.pending import Pending
from ottla.sliced import Slices, Steps
from ottla.turns import Portions

Decided = TypeVar("Decided")


class _Waiting(NamedTuple):
    run: Callable[[], None]
    refuse: Refuse


class _Busy:
    """A group that decides or writes, and the requests that wait for it."""

    __slots__ = ("changed", "is_occupied", "waiting")

    def __init__(self) -> None:
        self.is_occupied = True
        """Use: False: the requests that wait run, one after the other."""
        self.waiting: deque[_Waiting] = deque()
        self.changed: set[str] = set()
        """Use: topics that have changed since the group began to decide."""


class GroupLine:
    """The lines of a shard's groups."""

    def __init__(
        self, shard: Shard[Any], note_changed: Callable[[str, Collection[str]], None]
    ) -> None:
        """``note_changed``: tells a group of topics that changed while it was busy."""
        self._shard = shard
        self._note_changed = note_changed
        self._busy: dict[str, _Busy] = {}
        self._slices = Slices(shard.turns)
        self._freed: deque[str] = deque()
        """Use: groups that have ended what they did, and for which requests wait."""
        self._freeing = Portions(shard.turns, self._free_one, "requests to a group that was busy")
        self._answering = Answering(shard.turns)

    def unloaded(self, error: KafkaError) -> None:
        """Refuse every request that waits."""
        busy, self._busy = self._busy, {}
        for one in busy.values():
            self._answering.take(lambda waiting: waiting.refuse(error), one.waiting)

    def topics_changed(self, names: Collection[str]) -> None:
        """Let busy groups hear of these topics when they are not busy any more."""
        for busy in self._busy.values():
            busy.changed.update(names)

    def in_turn(self, group_id: str, run: Callable[[], None], refuse: Refuse) -> None:
        """Run now, or when the group has ended what it does. ``run`` may raise KafkaError."""
        busy = self._busy.get(group_id)
        if busy is not None:
            busy.waiting.append(_Waiting(run, refuse))
        else:
            _attempt(run, refuse)

    def later(self, group_id: str, run: Callable[[], None], refuse: Refuse) -> None:
        """Run the work of a timer in its turn."""
        self._shard.execute(lambda: self.in_turn(group_id, run, refuse), refuse)

    def decide(
        self,
        group_id: str,
        steps: Steps[Decided],
        decided: Callable[[Decided], None],
        refuse: Refuse,
    ) -> None:
        """Call ``decided`` with the value of ``steps``, which read the group as it is.

        At once if the steps take no longer than a slice, else later; the group is busy meanwhile.
        Raises what the steps raise at once; later errors go to ``refuse``.
        """
        outcome = self._slices.run(steps, lambda: f"a decision for the group {group_id:.249}")
        if not isinstance(outcome, Pending):
            decided(outcome)
            return
        busy = self._busy.setdefault(group_id, _Busy())
        busy.is_occupied = True
        busy.changed.clear()
        self._shard.hold()

        def run(done: Pending[Decided]) -> None:
            if self._busy.get(group_id) is not busy:
                raise self._let_go()
            busy.is_occupied = False
            if done.error is not None:
                raise done.error
            decided(done.value)  # type: ignore[arg-type]
            if busy.changed:
                self._note_changed(group_id, busy.changed)

        def ended(done: Pending[Decided]) -> None:
            self._shard.attempt(lambda: _attempt(lambda: run(done), refuse), refuse)
            if self._busy.get(group_id) is busy:
                self._free(group_id, busy)
            self._shard.release()

        outcome.on_done(ended)

    def write(
        self, group_id: str, found: Sequence[CoordinatorRecord], done: Done, refuse: Refuse
    ) -> None:
        """Append records. The group is busy until they are durable and replayed."""
        if not found:
            done()
            return
        busy = self._busy.setdefault(group_id, _Busy())
        busy.is_occupied = True

        def over(tell: Callable[[], None]) -> None:
            if self._busy.get(group_id) is not busy:  # The shard was closed: nothing was replayed.
                refuse(self._let_go())
                return
            busy.is_occupied = False
            tell()
            if busy.changed:
                self._note_changed(group_id, busy.changed)
                busy.changed.clear()
            self._free(group_id, busy)

        self._shard.append(found, partial(over, done), lambda error: over(partial(refuse, error)))

    def _let_go(self) -> KafkaError:
        return KafkaError(ErrorCode.NOT_COORDINATOR, f"{self._shard.where} is not led here")

    def _free(self, group_id: str, busy: _Busy) -> None:
        """Let requests that wait run, in their order, until one makes the group busy again."""
        if busy.is_occupied:
            return
        if busy.waiting:
            self._freed.append(group_id)
            self._freeing.go_on()
        else:
            del self._busy[group_id]

    def _free_one(self) -> bool:
        group_id = self._freed[0]
        busy = self._busy.get(group_id)
        if busy is None or busy.is_occupied:
            self._freed.popleft()
        elif busy.waiting:
            run, refuse = busy.waiting.popleft()
            self._shard.attempt(lambda: _attempt(run, refuse), refuse)
        else:
            self._freed.popleft()
            del self._busy[group_id]
        return bool(self._freed)


def _attempt(run: Callable[[], None], refuse: Refuse) -> None:
    try:
        run()
    except KafkaError as error:
        refuse(error.as_value())
    except StructError:  # Bytes that are no UTF-8 become longer: three bytes stand for one.
        why = "a text is too long to store"
        refuse(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, why))
