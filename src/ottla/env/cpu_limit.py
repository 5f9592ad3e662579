"""Ends work that takes more of the processor than it may: the kernel's timer, where there is one.

For work that holds the interpreter and gives nobody a turn, as a regular expression does: it looks
for signals, which come to the main thread only. On other threads nothing is limited.
"""

import signal
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class TooLong(Exception):
    """The work took more than its time, and has been ended."""


class CpuLimit:
    """Runs work, one at a time, for so many seconds of the process's time at most."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_on = False

    def run(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns. Raises TooLong."""
        if threading.current_thread() is not threading.main_thread():
            return work()
        signal.signal(signal.SIGVTALRM, self._end)  # It stays: a late signal would end the process.
        self._is_on = True
        signal.setitimer(signal.ITIMER_VIRTUAL, self._seconds)
        try:
            return work()
        finally:
            self._is_on = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _end(self, *_: object) -> None:
        if self._is_on:
            self._is_on = False
            raise TooLong
