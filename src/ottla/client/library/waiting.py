"""How the blocking face waits: the core runs on a loop in a thread of its own.

Owns that thread, one for a client. Knows nothing of what it waits for.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ottla.client.library.failures import ClientClosed, seconds_of, within
from ottla.env.clock import SystemClock
from ottla.env.loop_thread import LoopThread

Value = TypeVar("Value")


class Waiter:
    """A thread with a loop, from ``start`` to ``stop``."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.process_id = os.getpid()
        """Use: a fork's child has this object, and not its thread."""
        self._thread = LoopThread("ottla-client")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wait(
        self,
        what: str,
        work: Callable[[], Coroutine[Any, Any, Value]],
        timeout: float | None,
        *,
        said: float | None = None,
    ) -> Value:
        """Run ``work()`` on the loop and return its value. Blocks; ^C ends the work, too.

        ``timeout`` in seconds; None: no limit but the work's own. ``said``: the one that the
        caller has given, if only a part of it is left. Raises ClientError.
        """
        self.check(what)
        try:
            return self._thread.run(lambda: within(what, work(), timeout, said))
        except asyncio.CancelledError:
            raise ClientClosed(what, "the client was closed meanwhile") from None

    def soon(self, call: Callable[[], object]) -> None:
        """Call ``call`` on the loop's thread. Raises ClientClosed."""
        self.check("send")
        self._thread.soon(call)

    def ends(self, timeout: float | None) -> float | None:
        """Return when a call with ``timeout`` ends; of several waits ``left`` is what remains.

        Raises BadArgument.
        """
        seconds = seconds_of("wait", timeout)
        return None if seconds is None else self.clock.monotonic() + seconds

    def left(self, ends: float | None) -> float | None:
        """Return the seconds until ``ends``, 0 if it is over; None: no limit."""
        return None if ends is None else max(ends - self.clock.monotonic(), 0.0)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the thread is the parent's of which this process is a fork."""
        return self._thread.is_elsewhere

    def stop(self) -> None:
        """End loop and thread; what waits is cancelled. Harmless when stopped."""
        self._thread.stop()

    def abandon(self) -> None:
        """As ``stop``, without waiting for the end."""
        self._thread.abandon()

    def check(self, what: str) -> None:
        """Raise ClientClosed when nobody would ever do what is handed in."""
        if self._thread.is_running:
            return
        if self._thread.is_elsewhere:
            why = "the client belongs to the process of which this one is a fork"
            raise ClientClosed(what, why, fix="make a client behind the fork")
        raise ClientClosed(what, "the client is closed")
