"""An event loop in a thread of its own, for a program whose main thread does something else.

Owns the thread and the loop. Changes nothing that the process shares: no signal handler, no policy,
no default loop. Work is handed in from any other thread and waited for there.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from ottla.env.tasks import begin_task

Value = TypeVar("Value")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes loops: uvloop's where it is installed, else asyncio's."""
    try:
        import uvloop  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.Loop
    return factory


class LoopThread:
    """A thread that runs a loop from ``start`` to ``stop``. It does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether it takes work. Not in a child of ``fork``: threads stay with the parent."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_elsewhere(self) -> bool:
        """Whether it was started by a process of which this one is a fork."""
        return self._thread is not None and not self._thread.is_alive()

    def start(self) -> None:
        """Start the thread; returns when the loop takes work."""
        self._loop = loop = loop_factory()()
        running = threading.Event()
        loop.call_soon(running.set)
        self._thread = threading.Thread(target=self._run, args=(loop,), name=self._name)
        self._thread.daemon = True
        self._thread.start()
        running.wait()

    def run(
        self,
        work: Callable[[], Coroutine[Any, Any, Value]],
        *,
        timeout_seconds: float | None = None,
    ) -> Value:
        """Run ``work()`` on the loop; return its value or raise its error. Blocks.

        Raises TimeoutError, and the work goes on then. Whatever else ends the wait, such as ^C,
        cancels the work. Not to be called on the loop's own thread.
        """
        loop = self._loop
        assert loop is not None, "started"
        outcome: Future[Value] = Future()
        begun: list[asyncio.Task[Value]] = []

        def ended(task: asyncio.Task[Value]) -> None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())

        def begin() -> None:
            begun.append(begin_task(work(), name=self._name, ended=ended))

        def give_up() -> None:
            for task in begun:
                task.cancel()

        loop.call_soon_threadsafe(begin)
        try:
            return outcome.result(timeout_seconds)
        except TimeoutError:
            raise
        except BaseException:
            if not outcome.done():
                loop.call_soon_threadsafe(give_up)
            raise

    def soon(self, call: Callable[[], object]) -> None:
        """Call ``call`` on the loop's thread, soon."""
        assert self._loop is not None, "started"
        self._loop.call_soon_threadsafe(call)

    def stop(self) -> None:
        """End the loop and its thread. Harmless when stopped."""
        thread, loop = self._thread, self._loop
        if thread is None or loop is None:
            return
        self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        self._loop = None

    def abandon(self) -> None:
        """End loop and thread soon, without waiting: for whoever may be that thread itself."""
        thread, loop = self._thread, self._loop
        self._thread = self._loop = None
        if thread is not None and loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
