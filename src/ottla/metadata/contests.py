"""Changes that others may come before: who loses tries again, until it is through.

Owns in which order those of this node try, and when one gives up. Knows neither keys nor values.
Of the commits that meet on a key the store takes one, so somebody gets through each time; what can
go wrong is that it is always somebody else. So of those that have lost only one of a node tries,
the others wait in line: as many meet as there are nodes, not as there are clients.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.env.clock import Clock, pause
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.store import GuardFailed

PATIENCE_SECONDS = 30.0
"""How long a change tries: as long as clients wait for an answer (their request.timeout.ms)."""
AT_ONCE = 8
"""So many times one tries again at once; then it pauses first, in case that it can never win."""
PAUSE_SECONDS = 0.02

Made = TypeVar("Made")


class Contests:
    """The changes of one node that have lost, by what they change."""

    def __init__(self, clock: Clock, catch_up: Callable[[], Awaitable[None]]) -> None:
        """Build it; ``catch_up`` waits until this node knows what has won so far."""
        self._clock = clock
        self._catch_up = catch_up
        self._lines: dict[str, asyncio.Lock] = {}
        """By what is changed. Invariant: only of what somebody tries again or waits for."""
        self._users: dict[str, int] = {}
        """Use: how many hold or wait for a line. Invariant: the same keys as ``_lines``."""

    async def won(self, what: str, attempt: Callable[[], Awaitable[Made]]) -> Made:
        """Return what ``attempt`` returns; it is called until no guard of it fails.

        ``what`` is changed, as a person calls it. Before it is called again this node has caught
        up. Raises what ``attempt`` and ``catch_up`` raise, but for GuardFailed: after
        PATIENCE_SECONDS KafkaError REQUEST_TIMED_OUT; nothing is changed then.
        """
        deadline = self._clock.monotonic() + PATIENCE_SECONDS
        try:
            return await attempt()
        except GuardFailed:
            pass
        line = self._lines.setdefault(what, asyncio.Lock())
        self._users[what] = self._users.get(what, 0) + 1
        try:
            async with line:
                return await self._tried_again(what, attempt, deadline)
        finally:
            self._users[what] -= 1
            if not self._users[what]:
                del self._users[what], self._lines[what]

    async def _tried_again(
        self, what: str, attempt: Callable[[], Awaitable[Made]], deadline: float
    ) -> Made:
        lost = 0
        while self._clock.monotonic() < deadline:
            if lost >= AT_ONCE:
                await pause(self._clock, PAUSE_SECONDS)
            await self._catch_up()
            try:
                return await attempt()
            except GuardFailed:
                lost += 1
        why = f"others change {what} all the time; nothing was changed: try again"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why)
