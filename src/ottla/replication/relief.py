"""Lets other nodes lead what a full log directory of this node takes no records for.

Owns which directories count as full: also for a while after they have space again, so that a
directory whose space comes and goes gives no lead away at each turn. The other nodes are told
first, by this node's registration, and give it no lead meanwhile; then they are given the lead.
Each node knows so, before it leads, that the one before it has no space: two full nodes never give
the lead to each other. Decides nothing of who leads; ``hand_overs`` does. Knows no store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from posixpath import dirname

from ottla.env.clock import Clock, pause
from ottla.env.tasks import begin_task
from ottla.log.directories.directory import LogDirectory
from ottla.log.directories.manager import LogManager
from ottla.metadata.store import MetadataError
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

SETTLES_SECONDS = 1.5
"""Until the lead is given away: nodes that share a disk find it full within a second. They all have
told by then, and nothing moves among them."""
HELD_SECONDS = 10.0
"""So long a directory must have had space until it counts as one with space."""
AGAIN_SECONDS = 1.0
"""Between looks; twice as long after each one that moved nothing."""
AGAIN_SECONDS_MAX = 4.0


class Relief:
    """Of one node."""

    def __init__(
        self,
        log_manager: LogManager,
        partitions: Callable[[], Iterable[Partition]],
        tell: Callable[[bool], Awaitable[int | None]],
        hand_over: Callable[[Iterable[Partition]], Awaitable[int]],
        clock: Clock,
    ) -> None:
        """Begin; on the running loop. ``partitions``: those that this node hosts.

        ``tell``: lets the other nodes know whether a directory here is full. It returns None when
        they could not be told, or raises MetadataError. ``hand_over``: lets others lead what they
        can of what this node leads; it returns how many partitions they lead now.
        """
        self._partitions = partitions
        self._tell = tell
        self._hand_over = hand_over
        self._clock = clock
        self._full_until: dict[str, float] = {}
        """Use: by path, until when a directory counts as full. Infinite while it is full."""
        self._due_at = 0.0
        """Use: nothing is given away earlier."""
        self._pause_seconds = AGAIN_SECONDS
        self._has_told = False
        """Use: what the other nodes were told last."""
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        log_manager.listeners.append(self.directory_changed)
        for directory in log_manager.directories.values():
            self.directory_changed(directory)

    def directory_changed(self, directory: LogDirectory) -> None:
        """Take note that a directory may be full, may have space again, or has failed."""
        path, now = directory.path, self._clock.monotonic()
        if not directory.is_online:
            self._full_until.pop(path, None)  # All in it is handed over otherwise.
        elif not directory.is_full:
            if self._full_until.get(path) == inf:
                self._full_until[path] = now + HELD_SECONDS
        elif self._full_until.get(path) != inf:
            if path not in self._full_until:
                self._due_at = now + SETTLES_SECONDS
            self._full_until[path] = inf
            self._pause_seconds = AGAIN_SECONDS
            self._begin()

    def stop(self) -> None:
        """Give nothing more away."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        if self._task is None and not self._is_stopped:
            self._task = begin_task(self._work(), name="relieve full disks", ended=self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("what full disks take no records for is led on here", exc_info=error)
        elif self._full_until:
            self._begin()

    async def _work(self) -> None:
        """Tell, give away and look again, until no directory counts as full."""
        while True:
            now = self._clock.monotonic()
            over = [path for path, until in self._full_until.items() if until <= now]
            for path in over:
                del self._full_until[path]
            if await self._have_others_heard():
                if not self._full_until:
                    return
                if self._due_at <= self._clock.monotonic():
                    await self._give_away()
            await pause(self._clock, self._pause_seconds)

    async def _have_others_heard(self) -> bool:
        is_full = bool(self._full_until)
        if self._has_told == is_full:
            return True
        try:
            revision = await self._tell(is_full)
        except MetadataError as error:
            logger.info("other nodes do not know yet about the space here: %s", error)
            return False
        if revision is None:
            return False
        self._has_told = is_full
        return True

    async def _give_away(self) -> None:
        here = [
            partition
            for partition in self._partitions()
            if partition.is_leader
            and not partition.is_failed
            and dirname(partition.log.directory) in self._full_until
        ]
        count = await self._hand_over(here)
        if count:
            logger.warning("other nodes lead %d partitions for which there is no space here", count)
            self._pause_seconds = AGAIN_SECONDS
        else:
            self._pause_seconds = min(2 * self._pause_seconds, AGAIN_SECONDS_MAX)
