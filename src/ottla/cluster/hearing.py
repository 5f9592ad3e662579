"""Until when this node knows that it hears of what is committed.

A node may be a member for certain, and hear late of changes all the same: administrators let other
nodes lead what it leads, and it goes on. Those who are elected commit nothing without it before it
counts as lagging. So it asks the store now and then for all that was committed before, and counts
on what it hears for less than that time. Begins with the first question. Source: cluster design
3.7.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ottla.env.clock import Clock, Timer
from ottla.env.tasks import begin_task
from ottla.metadata.store import MetadataError

logger = logging.getLogger(__name__)

LOOKS = 4
"""So often it is asked within the time."""


class Hearing:
    """Of one node."""

    def __init__(
        self,
        catch_up: Callable[[], Awaitable[None]],
        certain_until: Callable[[], float],
        clock: Clock,
        *,
        patience_seconds: float,
    ) -> None:
        """``catch_up``: waits until this node has heard of all that was committed before.

        ``certain_until``: until when it is registered for certain. ``patience_seconds``: how long
        what was heard holds.
        """
        self._catch_up = catch_up
        self._registered_until = certain_until
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._heard_at = 0.0
        """Use: at that time this node knew of everything. Invariant: never falls."""
        self._asking: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._has_begun = False

    def certain_until(self) -> float:
        """Return until when this node is registered for certain and would have heard otherwise."""
        if not self._has_begun:
            # The image was read, or told of this node's registration, just now.
            self._has_begun = True
            self._heard_at = self._clock.monotonic()
            self._look()
        return min(self._registered_until(), self._heard_at + self._patience_seconds)

    def stop(self) -> None:
        """Ask no more."""
        self._has_begun = True
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def _look(self) -> None:
        if self._asking is None:
            self._asking = begin_task(self._ask(), name="hear of changes", ended=self._asked)
        delay_seconds = self._patience_seconds / LOOKS
        self._timer = self._clock.call_later(delay_seconds, self._look)

    async def _ask(self) -> None:
        asked_at = self._clock.monotonic()
        await self._catch_up()
        self._heard_at = max(self._heard_at, asked_at)

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, MetadataError):
            logger.error("it could not be heard what was changed", exc_info=error)
