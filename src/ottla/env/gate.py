"""A gate that threads pass together, one passes alone, and that is shut for good at the end.

Owns one lock and a count. For what several jobs may use side by side and one act must find unused:
a directory that is renamed. Knows nothing of what lies behind it. Every call may come from any
thread.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Open for all, held by one, or shut. A thread may be inside more than once."""

    __slots__ = ("_changed", "_holder", "_inside", "_is_shut")

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside: Counter[int] = Counter()
        """How often each thread is inside. Invariant: no entry is 0."""
        self._holder: int | None = None
        """The thread that is alone inside, or waits to be: no other thread enters."""
        self._is_shut = False

    @property
    def is_shut(self) -> bool:
        """Tell whether nobody may enter any more."""
        return self._is_shut

    def enter(self) -> bool:
        """Go inside and return True; False when the gate is shut. ``leave`` must follow a True.

        Blocks while another thread is inside alone.
        """
        thread = threading.get_ident()
        with self._changed:
            while self._holder not in {None, thread} and not self._is_shut:
                self._changed.wait()
            if self._is_shut:
                return False
            self._inside[thread] += 1
            return True

    def leave(self) -> None:
        """Go out again, on the thread that entered."""
        thread = threading.get_ident()
        with self._changed:
            self._inside[thread] -= 1
            if not self._inside[thread]:
                del self._inside[thread]
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be inside with no other thread during a ``with`` block. Blocks until the others left.

        Whoever comes meanwhile waits for the end of the block. Also possible when it is shut.
        """
        thread = threading.get_ident()
        with self._changed:
            while self._holder is not None:
                self._changed.wait()
            self._holder = thread
            self._wait_for_others(thread)
        try:
            yield
        finally:
            with self._changed:
                self._holder = None
                self._changed.notify_all()

    def shut(self) -> None:
        """Let nobody in any more. Does not block: who is inside stays as long as it likes."""
        with self._changed:
            self._is_shut = True
            self._changed.notify_all()

    def wait_until_left(self) -> None:
        """Return when no other thread is inside. Blocks; the gate should be shut."""
        with self._changed:
            self._wait_for_others(threading.get_ident())

    def _wait_for_others(self, thread: int) -> None:
        # Its own presence does not count: a thread cannot wait for itself.
        while self._holder not in {None, thread} or any(other != thread for other in self._inside):
            self._changed.wait()
