"""How the blocking face waits: the core runs on a loop in a thread of its own.

Owns that thread, one for a client. Knows nothing of what it waits for.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ottla.client.library.failures import ClientClosed, within
from ottla.env.clock import SystemClock
from ottla.env.loop_thread import LoopThread

Value = TypeVar("Value")


class Waiter:
    """A thread with a loop, from ``start`` to ``stop``."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self._thread = LoopThread("ottla-client")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wait(
        self, what: str, work: Callable[[], Coroutine[Any, Any, Value]], timeout: float | None
    ) -> Value:
        """Run ``work()`` on the loop and return its value. Blocks; ^C ends the work, too.

        ``timeout`` in seconds; None: no limit but the work's own. Raises ClientError.
        """
        if not self._thread.is_running:
            raise ClientClosed(what, "the client is closed")
        try:
            return self._thread.run(lambda: within(what, work(), timeout))
        except asyncio.CancelledError:
            raise ClientClosed(what, "the client was closed meanwhile") from None

    def soon(self, call: Callable[[], object]) -> None:
        """Call ``call`` on the loop's thread. Raises ClientClosed."""
        if not self._thread.is_running:
            raise ClientClosed("send", "the client is closed")
        self._thread.soon(call)

    def stop(self) -> None:
        """End loop and thread; what waits is cancelled. Harmless when stopped."""
        self._thread.stop()

    def abandon(self) -> None:
        """As ``stop``, without waiting for the end."""
        self._thread.abandon()
