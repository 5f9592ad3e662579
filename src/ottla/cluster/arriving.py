"""Names that are on their way into what is bounded: counted before they are there.

A new group or transactional id is there when its first record is durable. Whoever looks at a limit
earlier would let as many pass it as ask at once. Knows neither groups nor transactions.
"""

from collections.abc import Callable


class Arriving:
    """The names of which the first record is being written."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def begin(self, name: str) -> Callable[[], None]:
        """Count ``name`` until what is returned is called; nothing is done if it counts already."""
        if name in self._names:
            return _nothing
        self._names.add(name)
        return lambda: self._names.discard(name)

    def clear(self) -> None:
        """Forget all."""
        self._names.clear()


def _nothing() -> None:
    """Leave it to who began."""
