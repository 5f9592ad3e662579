"""The operations on a shard, in the order in which they came.

    in order  runs when it comes, or behind the operations that wait
    alone     runs when everything before it has ended, appends and long work included; operations
              behind it wait until its own appends and long work have ended

An operation comes as two callbacks: ``run``, and ``refuse``, which gets a KafkaError if ``run`` is
not called or raises one. ``Pending.fail`` is such a ``refuse``. A fault of ours in an operation
costs that operation: it is logged and refused.

Owns the queue of operations and the count of what is under way. Knows nothing of logs or memory.
"""

from __future__ import annotations  # else those of inner functions are made at each call

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.coordinator.step_line import StepLine
from ottla.errors import ErrorCode, InvariantBroken, KafkaError
from ottla.ids import TopicPartition
from ottla.turns import Portions, Turns

logger = logging.getLogger(__name__)

Run = Callable[[], None]
Refuse = Callable[[KafkaError], None]


class _Operation(NamedTuple):
    run: Run
    refuse: Refuse
    is_alone: bool


class Operations:
    """The operations of one shard."""

    def __init__(self, where: TopicPartition, turns: Turns) -> None:
        self._where = where
        self._under_way = 0
        """Use: how many appends, pieces of long work and decisions have not ended."""
        self._is_alone = False
        """Use: True while an operation that runs alone is under way."""
        self._queue: deque[_Operation] = deque()
        self._serving = Portions(turns, self._run_first, f"operations on {where}")
        self._long = StepLine(turns, f"long work of {where}")

    def execute(self, run: Run, refuse: Refuse, *, alone: bool = False) -> None:
        """Run an operation in its turn: now, unless something is in its way."""
        if self._queue or self._is_alone or (alone and self._under_way):
            self._queue.append(_Operation(run, refuse, alone))
        else:
            self._run(run, refuse, alone=alone)

    def _run(self, run: Run, refuse: Refuse, *, alone: bool) -> None:
        self._is_alone = alone
        self.attempt(run, refuse)
        if not self._under_way:
            self._is_alone = False

    def attempt(self, run: Run, refuse: Refuse) -> None:
        """Run a part of an operation; a KafkaError that it raises goes to ``refuse``."""
        try:
            run()
        except KafkaError as error:
            refuse(error.as_value())
        except Exception:
            logger.exception("%s: an operation failed unexpectedly", self._where)
            self._refuse_faulty(refuse)

    def _refuse_faulty(self, refuse: Refuse) -> None:
        """Refuse an operation that raised an unexpected error, unless it was answered already."""
        try:
            refuse(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "see the broker's log"))
        except InvariantBroken:
            logger.debug("%s: it was answered before it failed", self._where)

    def _run_first(self) -> bool:
        """Run the first operation of the queue; False when there is none that can run now."""
        if not self._queue or self._is_alone or (self._queue[0].is_alone and self._under_way):
            return False
        operation = self._queue.popleft()
        self._run(operation.run, operation.refuse, alone=operation.is_alone)
        return True

    def in_steps(self, steps: Iterator[object]) -> None:
        """Do the rest of an operation in steps; the operation ends with the last step.

        So an operation that runs alone waits for the last step; if this one runs alone itself, the
        operations behind it wait.
        """
        self.hold()
        self._long.add(self._released_behind(steps))

    def _released_behind(self, steps: Iterator[object]) -> Iterator[None]:
        try:
            for _ in steps:
                yield
        except Exception:  # An unexpected error ends the steps.
            logger.exception("%s: an operation failed unexpectedly", self._where)
        self.release()

    def hold(self) -> None:
        """Let operations that run alone wait until ``release``: something is under way."""
        self._under_way += 1

    def hold_all(self) -> None:
        """Let all operations wait until ``release``."""
        self.hold()
        self._is_alone = True

    def release(self) -> None:
        """End one ``hold``: operations run again when everything they wait for has ended."""
        self._under_way -= 1
        if not self._under_way:
            self._is_alone = False
        if self._queue:
            self._serving.go_on()

    def send_away(self, error: KafkaError) -> Iterator[None]:
        """Refuse all operations that wait, in steps. The queue is empty at once."""
        queued, self._queue = self._queue, deque()
        return self._refuse_each(queued, error)

    def _refuse_each(self, queued: deque[_Operation], error: KafkaError) -> Iterator[None]:
        for operation in queued:
            try:
                operation.refuse(error)
            except Exception:
                logger.exception("%s: an operation could not be refused", self._where)
            yield
