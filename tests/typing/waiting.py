"""A value that is not there yet knows what it will be, through every way of waiting for it."""

from typing import assert_type

from ottla.pending import Pending, outcome_of, pending_of
from ottla.sliced import Steps, each


def a_pending_takes_its_own_kind_only(count: Pending[int]) -> None:
    count.resolve(3)
    count.resolve("three")  # type: ignore[arg-type]
    count.fail(ValueError("three"))
    count.fail("three")  # type: ignore[arg-type]


def what_is_made_of_it_has_its_own_kind(count: Pending[int]) -> None:
    assert_type(count.then(str), Pending[str])
    assert_type(count.value, int | None)


async def a_coroutine_gets_the_value(count: Pending[int]) -> None:
    assert_type(await outcome_of(count), int)


async def work() -> bytes:
    """Stand for whatever is awaited."""
    return b""


def a_coroutine_becomes_one() -> None:
    assert_type(pending_of(work()), Pending[bytes])


def slices_return_what_came_of_each(names: list[str]) -> Steps[int]:
    lengths = yield from each(names, len)
    assert_type(lengths, list[int])
    return sum(lengths)
