"""How much of some work is under way, and the wait for its end.

Counts; knows nothing of what is done. Used by everything that keeps house: its work takes many
turns of the loop and must end before logs are closed.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class InProgress:
    """Pieces of work between their beginning and their end."""

    def __init__(self) -> None:
        self._count = 0
        self._settled: asyncio.Future[None] | None = None

    @property
    def is_any(self) -> bool:
        """Tell whether something is under way."""
        return self._count > 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count the work of a ``with`` block, however it ends."""
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            if self._settled is not None and not self._settled.done():
                self._settled.set_result(None)

    async def settle(self) -> None:
        """Wait until nothing is under way. For one caller at a time."""
        while self._count:
            self._settled = asyncio.get_running_loop().create_future()
            await self._settled
