"""How long the application has been away from its consumer: who stays away is taken for stuck.

Owns the time since the caller last waited for records or got one. Knows no group: what is to be
done then is its owner's. On asyncio. Source: Kafka's documentation of max.poll.interval.ms; KIP-62.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager

from ottla.env.clock import Clock

LOOKS_PER_INTERVAL = 10
LOOK_SECONDS_MAX = 1.0


class Polls:
    """``start`` it when there is a membership to lose; ``stop`` it at the end."""

    def __init__(
        self,
        interval_ms: int,
        progress: Callable[[], Hashable],
        expired: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """``progress``: what differs when the caller got a record.

        ``expired`` is awaited each time that the caller was away for ``interval_ms``, perhaps a
        second or a tenth of it later.
        """
        self._interval_seconds = interval_ms / 1000
        self._progress = progress
        self._expired = expired
        self._clock = clock
        self._waiting_count = 0
        self._entered_count = 0
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the caller as there, as long as this lasts."""
        self._entered_count += 1
        self._waiting_count += 1
        try:
            yield
        finally:
            self._waiting_count -= 1
            self._entered_count += 1

    def start(self) -> None:
        """Begin to watch, unless that is done already."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch(), name="ottla polls")

    def stop(self) -> "list[asyncio.Task[None]]":
        """Let the task end, and return it. Harmless when not started."""
        task, self._task = self._task, None
        if task is None:
            return []
        task.cancel()
        return [task]

    async def _watch(self) -> None:
        pause = min(self._interval_seconds / LOOKS_PER_INTERVAL, LOOK_SECONDS_MAX)
        while True:
            seen: Hashable = None
            since = self._clock.monotonic()
            while self._waiting_count or self._clock.monotonic() - since < self._interval_seconds:
                await asyncio.sleep(pause)
                found = (self._entered_count, self._progress())
                if self._waiting_count or found != seen:
                    seen, since = found, self._clock.monotonic()
            await self._expired()
