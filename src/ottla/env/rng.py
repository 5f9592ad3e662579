"""The randomness port: ids, jitter, tie-breaks. A seeded double makes a run repeatable."""

import os
from typing import Protocol


class Rng(Protocol):
    """A source of random values."""

    def random_bytes(self, count: int) -> bytes:
        """Return ``count`` random bytes, unpredictable in production."""

    def random_below(self, limit: int) -> int:
        """Return an integer in ``[0, limit)``; ``limit`` >= 1."""


class SystemRng:
    """The kernel's randomness. Safe from every thread."""

    def random_bytes(self, count: int) -> bytes:
        """Return ``count`` bytes nobody can predict."""
        return os.urandom(count)

    def random_below(self, limit: int) -> int:
        """Return an integer in ``[0, limit)``, each equally likely. Raises ValueError below 1."""
        if limit < 1:
            raise ValueError(f"limit must be at least 1: {limit}")
        bits = (limit - 1).bit_length()
        size_bytes = (bits + 7) // 8
        # Values outside the range are thrown away rather than folded in, which would favour some.
        while True:
            value = int.from_bytes(os.urandom(size_bytes), "big") >> (size_bytes * 8 - bits)
            if value < limit:
                return value


class SeededRng:
    """A repeatable sequence: the same seed and the same calls give the same values."""

    def __init__(self, seed: int) -> None:
        from random import Random  # noqa: PLC0415 - only this double needs it, not a broker's start

        self._random = Random(seed)  # noqa: S311 - repeatable on purpose, never for secrets.

    def random_bytes(self, count: int) -> bytes:
        """Return the next ``count`` bytes of the sequence."""
        return self._random.randbytes(count)

    def random_below(self, limit: int) -> int:
        """Return the next integer in ``[0, limit)``. Raises ValueError below 1."""
        return self._random.randrange(limit)
