"""Lends what outlasts a task: Spark gives a Python worker one task after the other.

A task takes over what the one before it left, such as connections with versions agreed on and, with
SASL or TLS, handshakes done; a stream of small batches would spend more on these than on its rows.
A task that fails leaves nothing behind: answers may be under way. ``reading.kept`` and
``writing.kept`` say what they keep.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from ottla.client.wire.settings import ClientSettings


class Closable(Protocol):
    """Something that holds connections."""

    def close(self) -> None:
        """Close them."""


Thing = TypeVar("Thing", bound=Closable)
Key = tuple[int, ClientSettings]
"""A process, since a worker may be a fork of one that has connections; and what was asked for."""


@contextmanager
def lend(
    kept: dict[Key, Thing],
    settings: ClientSettings,
    make: Callable[[ClientSettings], Thing],
    *,
    count_max: int,
) -> Iterator[Thing]:
    """Lend what ``kept`` has for these settings, or a new one; it is kept unless the task fails.

    Of more than ``count_max`` the one that was not used for longest is closed. A worker has one
    task at a time; a second one at once gets another thing.
    """
    key = (os.getpid(), settings)
    thing = kept.pop(key, None) or make(settings)
    try:
        yield thing
    except BaseException:  # A task that is stopped may leave answers under way.
        thing.close()
        raise
    other = kept.pop(key, None)
    if other is not None:
        other.close()
    kept[key] = thing  # The newest, at the end.
    while len(kept) > count_max:
        kept.pop(next(iter(kept))).close()
