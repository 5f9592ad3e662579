"""The CPU of each thing that an event loop runs, for tests and benchmarks of the loop's turns.

The broker's own stall meter reads the CPU at its beats only, so that up to 100 ms of other work
count into a turn; this one measures each callback by itself, which costs too much for a broker.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterator


class LoopMeter:
    """The longest callback of the loop on whose thread ``measuring`` was entered."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        """Of CPU."""
        self.what = "nothing"

    def reset(self) -> None:
        """Forget the longest."""
        self.longest_seconds, self.what = 0.0, "nothing"

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Measure what loops run meanwhile."""
        run = asyncio.events.Handle._run  # noqa: SLF001 - the one place that everything passes

        def measured(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            took = time.thread_time() - began
            if took > self.longest_seconds:
                self.longest_seconds, self.what = took, repr(handle)

        asyncio.events.Handle._run = measured  # type: ignore[method-assign, assignment]  # noqa: SLF001
        try:
            yield
        finally:
            asyncio.events.Handle._run = run  # type: ignore[method-assign]  # noqa: SLF001
