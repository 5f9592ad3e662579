"""Things that a request names more than once: Kafka serves none of them, and answers each once."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

Thing = TypeVar("Thing")


def without_repeated(
    things: Sequence[Thing], name_of: Callable[[Thing], str]
) -> tuple[list[Thing], list[str]]:
    """Return the things that are named once, in their order, and the names of all the others."""
    times = Counter(map(name_of, things))
    once = [thing for thing in things if times[name_of(thing)] == 1]
    return once, [name for name, count in times.items() if count > 1]
