"""Counts names that are being added to a limited set, from the moment when that begins.

A new group or transactional id exists when its first record is durable. If a limit counted only
those that exist, any number of simultaneous requests could pass it. Knows neither groups nor
transactions.
"""

from collections.abc import Callable


class Arriving:
    """The names whose first record is being written."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def begin(self, name: str) -> Callable[[], None]:
        """Count ``name`` until the returned function is called.

        If ``name`` is counted already, its first caller ends the count; this call changes nothing.
        """
        if name in self._names:
            return _nothing
        self._names.add(name)
        return lambda: self._names.discard(name)

    def clear(self) -> None:
        """Count nothing any more."""
        self._names.clear()


def _nothing() -> None:
    """Do nothing: the first caller ends the count."""
