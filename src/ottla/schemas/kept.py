"""What was learned of a registry and is kept: so many, the oldest go first.

Written and read from several threads: single steps of a dict, no lock.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Kept(Generic[Key, Value]):
    """A bounded dict. *Invariant:* of one thread's use it never has more than ``most``."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._found: dict[Key, Value] = {}

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: Key) -> Value | None:
        """Return what is kept; None: nothing."""
        return self._found.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Keep ``value``; the oldest goes, if there are too many."""
        self._found.pop(key, None)
        while len(self._found) >= self.most:
            oldest = next(iter(list(self._found)), None)
            if oldest is None:
                break
            self._found.pop(oldest, None)
        self._found[key] = value

    def drop(self, key: Key) -> None:
        """Forget one, if it is there."""
        self._found.pop(key, None)

    def clear(self) -> None:
        """Forget all."""
        self._found.clear()
