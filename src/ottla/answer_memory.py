"""The memory of answers that peers have not taken yet, and who has how much of it.

Owns the count of ``ottla.queued.max.answer.bytes``. A stretch of a file (a Region) is no memory,
and not counted. An answer is there already when it is noted, so that the count may pass the limit:
whoever makes large answers, or serves one who has not taken the last one, asks before. Knows
neither connections nor answers, and allocates nothing.
"""

from collections.abc import Callable
from typing import Protocol

SMALL_BYTES = 16 * 1024
"""Fewer unread bytes of one connection are not counted: a round would cost more."""


class Holder(Protocol):
    """One connection."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers in memory that the peer has not taken."""


class AnswerMemory:
    """One count for all connections of a loop."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        """Use: what is held. Invariant: the sum of what the holders hold."""
        self.is_full = False
        """Use: no large answer should be begun now. Invariant: the limit is reached."""
        self._held: dict[Holder, int] = {}
        """Invariant: each has more than ``SMALL_BYTES``."""
        self._listeners: list[Callable[[], None]] = []

    def on_room(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever there is room again after there was none."""
        self._listeners.append(listener)

    def note(self, holder: Holder) -> bool:
        """Count what ``holder`` has now; tell whether it is counted at all.

        An answer leaves in pieces and stays in memory until the last one has left, so that what a
        holder has counts until it has (nearly) nothing.
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
        """Count nothing of ``holder`` any more. Harmless when nothing is counted."""
        was_full = self.is_full
        self.used_bytes -= self._held.pop(holder, 0)
        self.is_full = self.used_bytes >= self.limit_bytes
        if was_full and not self.is_full:
            for listener in self._listeners:
                listener()

    def recount(self) -> None:
        """Look at every holder anew: nobody tells when the last bytes of a short answer leave."""
        for holder in list(self._held):
            self.note(holder)

    def held_by(self, holder: Holder) -> int:
        """Return what is counted of ``holder``."""
        return self._held.get(holder, 0)
