"""The executor port: the one way work that may block leaves the event loop's thread.

fdatasync, cold reads, SQLite, decompression of large batches. The result comes back on the loop's
thread by callback, so the callers need neither locks nor tasks (design D1).
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Executor(Protocol):
    """Runs blocking functions elsewhere and brings their outcome back to the loop."""

    def submit(
        self,
        work: Callable[[], Result],
        done: Callable[[Result | None, BaseException | None], None],
    ) -> None:
        """Run ``work`` off the loop; then ``done(result, None)`` or ``done(None, error)`` on it.

        Never runs ``done`` before ``submit`` has returned. Does not block.
        """

    def close(self) -> None:
        """Finish what was submitted and end the threads. May block until the running work is done."""
