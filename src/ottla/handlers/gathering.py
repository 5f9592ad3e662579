"""Makes one Pending of many, for requests that name many groups of which each answers by itself."""

from collections.abc import Sequence
from typing import TypeVar, cast

from ottla.pending import Pending

Value = TypeVar("Value")


def gathered(pendings: Sequence[Pending[Value]]) -> Pending[list[Value]]:
    """Return a Pending of all values, in order; it fails with the first error."""
    together: Pending[list[Value]] = Pending()
    undone = [one for one in pendings if not one.is_done or one.error is not None]
    left = len(undone)

    def done(one: Pending[Value]) -> None:
        nonlocal left
        left -= 1
        if one.error is not None and not together.is_done:
            together.fail(one.error)
        elif not left and not together.is_done:
            together.resolve([cast("Value", pending.value) for pending in pendings])

    for pending in undone:
        pending.on_done(done)
    if not undone:
        together.resolve([cast("Value", pending.value) for pending in pendings])
    return together
