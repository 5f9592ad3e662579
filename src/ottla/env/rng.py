"""The randomness port: ids, jitter, tie-breaks. A seeded double makes a run repeatable."""

from typing import Protocol


class Rng(Protocol):
    """A source of random values."""

    def random_bytes(self, count: int) -> bytes:
        """Return ``count`` random bytes, unpredictable in production."""

    def random_below(self, limit: int) -> int:
        """Return an integer in ``[0, limit)``; ``limit`` >= 1."""
