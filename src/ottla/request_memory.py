"""Counts the memory that all requests take together; ``queued.max.request.bytes`` limits it.

Counted are the receive buffers of connections, frames that long work still reads, and copies of
record batches that wait for a thread. Knows none of these, and allocates nothing.
"""

from collections.abc import Callable

LetGo = Callable[[], None]
"""Gives a reservation back; a second call does nothing."""


class RequestMemory:
    """One count for all connections of a loop."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        """Use: bytes reserved now. Invariant: >= 0; only ``hold`` may lift it above the limit."""

    def take(self, size_bytes: int) -> bool:
        """Reserve ``size_bytes``. Returns False and reserves nothing if that exceeds the limit."""
        if self.used_bytes + size_bytes > self.limit_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Return a reservation."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "request memory given back twice"

    def hold(self, size_bytes: int) -> LetGo:
        """Count bytes of a request that is already in memory, even above the limit.

        Above the limit no connection receives. Returns a function that gives the bytes back.
        """
        self.used_bytes += size_bytes
        return self.letting_go(size_bytes)

    def letting_go(self, size_bytes: int) -> LetGo:
        """Return a function that gives back ``size_bytes`` that were reserved earlier."""
        left = size_bytes

        def let_go() -> None:
            nonlocal left
            self.give_back(left)
            left = 0

        return let_go

    @property
    def is_scarce(self) -> bool:
        """Whether more than half is used: buffers should be given up, not kept for reuse."""
        return self.used_bytes * 2 > self.limit_bytes
