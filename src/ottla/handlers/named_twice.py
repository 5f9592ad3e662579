"""Finds what a request names more than once. Kafka refuses that, with one answer for each name."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla.sliced import STRIDE, Steps

Thing = TypeVar("Thing")


def without_repeated(
    things: Sequence[Thing], name_of: Callable[[Thing], str]
) -> Steps[tuple[list[Thing], list[str]]]:
    """Return the things that are named once, in order, and the names that occur more often."""
    times: dict[str, int] = {}
    for count, thing in enumerate(things):
        name = name_of(thing)
        times[name] = times.get(name, 0) + 1
        if not count % STRIDE:
            yield None
    once: list[Thing] = []
    for count, thing in enumerate(things):
        if times[name_of(thing)] == 1:
            once.append(thing)
        if not count % STRIDE:
            yield None
    return once, [name for name, count in times.items() if count > 1]
