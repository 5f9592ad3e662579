"""Ctrl-C, SIGTERM and SIGHUP: a command ends at once, at any moment, and says so by its exit code.

Owns the handlers of these signals. A command that waits on a loop is cancelled, to say what was
done, to commit and to leave its group; it has ``PATIENCE_SECONDS`` for that, and a second signal
takes them away. Everything else is left where it stands. A signal that whoever started us ignores
(``nohup``, ``&`` in a script) stays ignored. ``ottla serve`` has handlers of its own.
"""

import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE_SECONDS = 2.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Handler = Callable[[int, FrameType | None], None]


class Told(KeyboardInterrupt):
    """The process was told to end, by signal ``number``."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)

    @property
    def exit_code(self) -> int:
        """128 and the signal, as shells have it: 130 for Ctrl-C."""
        return 128 + self.number


def leave_on_ctrl_c() -> None:
    """End the process at Ctrl-C from now on, whatever it does. The other signals do already."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def is_ignored(number: int) -> bool:
    """Whether a signal is to stay without effect."""
    return signal.getsignal(number) is signal.SIG_IGN


def run(main: Coroutine[None, None, None]) -> None:
    """Run ``main`` on a loop to its end; a signal cancels it. Raises Told, and what it raises."""
    import asyncio

    told: list[int] = []

    async def cancellable() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def on_signal(number: int, _: FrameType | None) -> None:
            if told:
                _leave(number, None)
            told.append(number)
            # Also when the loop stands still, in a write to a pipe that nobody reads.
            signal.signal(signal.SIGALRM, lambda *_: _leave(number, None))
            signal.setitimer(signal.ITIMER_REAL, PATIENCE_SECONDS)
            loop.call_soon_threadsafe(task.cancel)

        with _handled(on_signal), _waking(loop):
            await main

    try:
        asyncio.run(cancellable())
    except asyncio.CancelledError:
        if not told:
            raise
    finally:
        if told:
            signal.setitimer(signal.ITIMER_REAL, 0)
    if told:
        raise Told(told[0])


@contextmanager
def leaving() -> Iterator[None]:
    """End the process at once at a signal, while it waits where no loop runs: for an answer."""
    with _handled(_leave):
        yield


@contextmanager
def raising() -> Iterator[None]:
    """Raise Told at a signal, for commands that clean up without a loop."""

    def on_signal(number: int, _: FrameType | None) -> None:
        raise Told(number)

    with _handled(on_signal):
        yield


@contextmanager
def _handled(handler: Handler) -> Iterator[None]:
    """Handle the signals that are not ignored. Without effect outside of the main thread."""
    before = {}
    try:
        for number in SIGNALS:
            if not is_ignored(number):
                before[number] = signal.signal(number, handler)
    except ValueError:
        pass  # Another thread: signals are not ours.
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)


@contextmanager
def _waking(loop: "AbstractEventLoop") -> Iterator[None]:
    """Wake the loop at any signal.

    Else one that comes between the loop's last step and its wait is seen when that wait ends: a
    request that nobody answers may keep it for half a minute.
    """
    read_end, write_end = os.pipe()
    try:
        os.set_blocking(write_end, False)
        before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    except ValueError:
        before = None  # Another thread: signals are not ours.
    loop.add_reader(read_end, os.read, read_end, 4096)
    try:
        yield
    finally:
        loop.remove_reader(read_end)
        if before is not None:
            signal.set_wakeup_fd(before)
        os.close(read_end)
        os.close(write_end)


def _leave(number: int, _: FrameType | None) -> None:
    # Nothing is flushed: the signal may have come amid a write.
    os._exit(128 + number)
