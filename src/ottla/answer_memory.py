"""Counts the memory of answers that peers have not read yet, per connection and altogether.

Owns the count that ``ottla.queued.max.answer.bytes`` limits. Bytes that stay in a file (a Region)
are not counted. An answer exists before it is noted here, so the count may exceed the limit. Code
that makes large answers therefore checks ``is_full`` first, and so does a connection whose peer has
not read its last answer. Knows neither connections nor answers, and allocates nothing.
"""

from collections.abc import Callable
from typing import Protocol

SMALL_BYTES = 16 * 1024
"""A connection with at most this many unread bytes is not counted: that keeps rounds cheap."""


class Holder(Protocol):
    """One connection."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers in memory that the peer has not read."""


class AnswerMemory:
    """One count for all connections of a loop."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        """Use: bytes held now. Invariant: the sum over all holders."""
        self.is_full = False
        """Use: while True, begin no large answer. Invariant: ``used_bytes >= limit_bytes``."""
        self._held: dict[Holder, int] = {}
        """Invariant: each has more than ``SMALL_BYTES``."""
        self._listeners: list[Callable[[], None]] = []

    def on_room(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` each time the count falls below the limit again."""
        self._listeners.append(listener)

    def note(self, holder: Holder) -> bool:
        """Count what ``holder`` has now. Returns False when it has too little to be counted.

        An answer leaves in pieces and stays in memory until the last piece has left. So the count
        of a holder may grow, and falls only when its unread bytes are down to ``SMALL_BYTES``.
        """
        unread_bytes = holder.unread_bytes
        counted_bytes = self._held.get(holder, 0)
        if unread_bytes <= SMALL_BYTES:
            self.forget(holder)
            return False
        if unread_bytes > counted_bytes:
            self._held[holder] = unread_bytes
            self.used_bytes += unread_bytes - counted_bytes
            self.is_full = self.used_bytes >= self.limit_bytes
        return True

    def forget(self, holder: Holder) -> None:
        """Stop counting ``holder``. Harmless when it is not counted."""
        was_full = self.is_full
        self.used_bytes -= self._held.pop(holder, 0)
        self.is_full = self.used_bytes >= self.limit_bytes
        if was_full and not self.is_full:
            for listener in self._listeners:
                listener()

    def recount(self) -> None:
        """Note every counted holder again: nothing reports when a short answer's last bytes go."""
        for holder in list(self._held):
            self.note(holder)

    def held_by(self, holder: Holder) -> int:
        """Return the bytes that are counted for ``holder``; 0 when it is not counted."""
        return self._held.get(holder, 0)
