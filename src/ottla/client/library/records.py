"""What callers of the client library give and get: records, and where they were written."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ottla.client.library.failures import BadArgument, bytes_of
from ottla.records.rows import Headers

GivenHeaders = Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]


class Record(NamedTuple):
    """A record as a consumer gets it.

    ``timestamp_ms``: since 1970-01-01 UTC. ``key`` and ``value`` are bytes or None unless the
    consumer has deserializers. ``headers``: in their order; a name may occur more than once.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Headers


class Written(NamedTuple):
    """Where a record was written. ``offset`` is -1 with ``acks=0``: nobody told."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Hooks(Protocol):
    """Told of each record that leaves and comes: for tracing. Called where the caller waits."""

    def on_send(self, topic: str, headers: Headers) -> Headers:
        """Return the headers that the record gets instead of ``headers``."""

    def on_receive(self, record: Record) -> None:
        """Hear of a record before the caller of the consumer gets it."""


def headers_of(given: GivenHeaders) -> Headers:
    """Return headers as they are sent; texts become UTF-8. Raises BadArgument."""
    pairs = given.items() if isinstance(given, Mapping) else given
    found: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        try:
            name, data = pair
        except (TypeError, ValueError):
            raise BadArgument(
                "headers", f"expected pairs of a name and bytes, found {pair!r}"
            ) from None
        if isinstance(data, str):
            data = bytes_of("headers", data)
        if type(name) is not str or type(data) not in (bytes, type(None)):
            why = f"expected a text and bytes, found {type(name).__name__}, {type(data).__name__}"
            raise BadArgument("headers", why)
        if not name.isascii():
            bytes_of("headers", name)
        found.append((name, data))
    return tuple(found)
