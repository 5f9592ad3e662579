"""The memory that requests may take altogether: who has how much of ``queued.max.request.bytes``.

Owns the count. Buffers that connections receive into, frames that long work still reads, and copies
of batches that wait for a thread are all paid for here. Knows none of them, and allocates nothing.
"""

from collections.abc import Callable

LetGo = Callable[[], None]
"""Gives back what was held; called again it does nothing."""


class RequestMemory:
    """One count for all connections of a loop."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        """Use: bytes that are held. Invariant: >= 0; above the limit only by what is there already
        and has to be kept (``hold``)."""

    def take(self, size_bytes: int) -> bool:
        """Reserve ``size_bytes``; False (and nothing reserved) when that exceeds the limit."""
        if self.used_bytes + size_bytes > self.limit_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Return a reservation."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "request memory given back twice"

    def hold(self, size_bytes: int) -> LetGo:
        """Count bytes of a request that was received already, whatever the limit says.

        Everybody stops receiving meanwhile if it is exceeded. Returns what gives them back.
        """
        self.used_bytes += size_bytes
        return self.letting_go(size_bytes)

    def letting_go(self, size_bytes: int) -> LetGo:
        """Return what gives back a reservation made before."""
        left = size_bytes

        def let_go() -> None:
            nonlocal left
            self.give_back(left)
            left = 0

        return let_go

    @property
    def is_scarce(self) -> bool:
        """Tell whether buffers should rather be given up than kept for reuse."""
        return self.used_bytes * 2 > self.limit_bytes
