"""Hears from all nodes of a host which copies they have, and takes in what the metadata lacks.

Each node says so at its start, and waits for the answer before it serves. While the metadata is
unsettled all answers wait for the last node; else only those of nodes that have something to be
taken in do. So the newest copy of each partition is served, whichever node starts first. A node
that starts again later, beside others that serve, is answered at once.

Nothing is taken in while something cannot be read: the newest copy may be there.
Source: ADR 5.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from ottla.cluster.copies import Held
from ottla.cluster.taking_in import TakingIn
from ottla.env.clock import Clock, Timer
from ottla.env.tasks import begin_task
from ottla.errors import OttlaError
from ottla.ids import NodeId

logger = logging.getLogger(__name__)

FIRST_WORD_SECONDS = 5.0
"""So long the nodes may wait for each other before the log says why."""
NEXT_WORD_SECONDS = 30.0
NAMED_MAX = 5

Answer = Callable[[int], None]
"""Lets a node go on: it takes the store's revision when all is decided, 0: nothing was."""


class CannotSettle(OttlaError):
    """Nothing may be taken in. ``why`` and ``fix`` are for people."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.why = why
        self.fix = fix


class Settling:
    """What the nodes have said, from the first one's word to the answers."""

    def __init__(
        self,
        taking_in: TakingIn,
        nodes: Collection[NodeId],
        clock: Clock,
        *,
        is_unsettled: bool,
        is_lost: bool,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """``nodes``: all that are started. ``is_lost``: the metadata is new, and the data is not.

        ``on_failed``: takes why nodes cannot be answered.
        """
        self._taking_in = taking_in
        self._missing = set(nodes)
        """Use: who has not said yet what it has. Invariant: never grows."""
        self._clock = clock
        self._is_unsettled = is_unsettled
        self._is_lost = is_lost
        self._on_failed = on_failed
        self._held: dict[NodeId, Held] = {}
        """Use: what was said and is not taken in yet."""
        self._answers: dict[NodeId, Answer] = {}
        self._is_first = True
        """Use: whether this is the start of all; later ones are of single nodes."""
        self._turn = asyncio.Lock()
        self._timer: Timer | None = None

    def hear(self, node: NodeId, held: Held, answer: Answer) -> None:
        """Take what a node has; ``answer`` is called now or later."""
        self._missing.discard(node)
        self._held[node] = held
        if held.copies or self._is_unsettled:
            self._answers[node] = answer
        else:
            answer(0)
        if not self._missing:
            self.stop()
            begin_task(self._settle(), name="taking in", ended=self._ended)
        elif self._answers and self._timer is None:
            self._timer = self._clock.call_later(FIRST_WORD_SECONDS, self._tell)

    def stop(self) -> None:
        """Say nothing more. Harmless when nothing was to be said."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _settle(self) -> None:
        async with self._turn:
            held, self._held = self._held, {}
            answers, self._answers = self._answers, {}
            is_first, self._is_first = self._is_first, False
            if not answers:
                return
            found = {node: one.copies for node, one in held.items() if one.copies}
            if self._is_unsettled:
                _tell_who_is_empty(held, found)
            if is_first and (found or self._is_lost):
                _check_readable(held)
            lacking = {node for node, one in held.items() if one.may_lack}
            revision = await self._taking_in.all(found, lacking)
            self._is_unsettled = False
            for answer in answers.values():
                answer(revision)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failed(error)

    def _tell(self) -> None:
        logger.warning(
            "%s to serve until %s: the newest copy of each partition is served, "
            "whoever has it; to do without a node's copies, stop, and move its directories away",
            _nodes(self._answers, "waits", "wait"),
            _nodes(self._missing, "has opened its logs", "have opened their logs"),
        )
        self._timer = self._clock.call_later(NEXT_WORD_SECONDS, self._tell)


def _nodes(nodes: Collection[NodeId], one: str, several: str) -> str:
    names = ", ".join(map(str, sorted(nodes)))
    return f"node {names} {one}" if len(nodes) == 1 else f"nodes {names} {several}"


def _tell_who_is_empty(held: Mapping[NodeId, Held], found: Collection[NodeId]) -> None:
    """Say which nodes have no data although others have: perhaps a disk is not mounted."""
    empty = held.keys() - set(found)
    if found and empty:
        logger.error(
            "the metadata does not tell who has the newest records, and %s no copy of any "
            "partition, but others have: if data is missing there, stop now, and put it back "
            "before new records come",
            _nodes(empty, "has", "have"),
        )


def _check_readable(held: Mapping[NodeId, Held]) -> None:
    """Raise CannotSettle when there may be copies that are not known."""
    unreadable = [f"node {node}: {one}" for node in sorted(held) for one in held[node].unreadable]
    if unreadable:
        more = "; ..." if len(unreadable) > NAMED_MAX else ""
        why = (
            "the metadata does not know all partitions, and the newest copy of one may be where"
            f" nothing can be read: {'; '.join(unreadable[:NAMED_MAX])}{more}"
        )
        fix = "mend that, or move it away to do without what is in it, then start again"
        raise CannotSettle(why, fix)
