"""The gate that every request passes, whichever way it then goes (ordinary, long or direct).

Owns the interface between the router and whatever counts or limits requests (quotas, metrics). Such
a thing is an ``Admit``, or None while nothing counts. Whether a principal may use
a topic or a group is decided in the handlers, because each API answers a denial in its own form.
Source: ADR 30.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.handlers.client import Client
from ottla.pending import Pending

if TYPE_CHECKING:
    from ottla.replication.fetch import FetchedPartition

Value = TypeVar("Value")


class Asked(Protocol):
    """What is known of a request besides its body: a ``call.Call``."""

    @property
    def api_version(self) -> int:
        """The version of the request."""

    @property
    def client(self) -> Client:
        """Who asks."""


class Passage:
    """One request that was let in and is counted, until its answer is ready.

    Nothing is counted here; whoever counts overrides. No method may block, and only
    ``take_partitions`` may raise. None is called for a request that fails or is abandoned after
    that: its connection is closed.
    """

    __slots__ = ()

    fetch_bytes_max: int | None = None
    """The most bytes that a Fetch may read; None: any number."""
    counts_answer = True
    """False: ``answered`` and ``left`` count nothing for it, so the router need not call them."""

    def answered(self, *, has_answer: bool = True) -> int:
        """Note that the answer is ready; return its throttle time in ms, 0 for none.

        Called once, before the answer is encoded, also for a request without an answer (acks=0).
        An implementation that returns a throttle time must also mute the connection.
        """
        del has_answer
        return 0

    def left(self) -> None:
        """Note that the answer is encoded: the last that is heard of the request."""

    def waits(self) -> None:
        """Note that the loop does something else until ``goes_on``. Harmless when it waits."""

    def goes_on(self) -> None:
        """Note that the loop works on this request again. Harmless when it does already."""

    def fetch_wait_ms(self, call: Asked, fetched: Sequence[FetchedPartition]) -> int:
        """Return 0 if a Fetch may be answered with ``fetched``.

        Else it must be answered without records, and this is the throttle time to tell, in ms; the
        connection is muted for it. Asked once.
        """
        del call, fetched
        return 0

    def news_wait_ms(self, call: Asked, news: Sequence[tuple[object, FetchedPartition]]) -> int:
        """Do as ``fetch_wait_ms`` for a Fetch that is answered with the second of each pair."""
        return self.fetch_wait_ms(call, [fetched for _, fetched in news])

    def take_partitions(self, count: int, *, is_strict: bool) -> None:
        """Count partitions that are created or deleted.

        Raises KafkaError THROTTLING_QUOTA_EXCEEDED if they must not be; only if ``is_strict``.
        """


Admit = Callable[[int, memoryview, Client, int], Passage | None]
"""Lets one request in. Takes its API key, its frame (valid only during the call), its client, and
the length of the client id in its header, negative for null; not believed to fit into the frame.
Called once per request, when only the start of its header is decoded. Returns None when nothing
more is to be counted of the request. Raises CloseConnection to have the connection closed."""


class Timed(Generator[Pending[Any] | None, Any, Value]):
    """Steps of a request whose passage is told when they run."""

    def __init__(self, steps: Generator[Pending[Any] | None, Any, Value], passage: Passage) -> None:
        self._steps = steps
        self._passage = passage

    def send(self, value: object) -> Pending[Any] | None:
        """Do the next step."""
        self._passage.goes_on()
        try:
            return self._steps.send(value)
        finally:
            self._passage.waits()

    def throw(self, raised: BaseException) -> Pending[Any] | None:  # type: ignore[override]
        """Raise in the steps."""
        return self._steps.throw(raised)

    def close(self) -> None:
        """End the steps."""
        self._steps.close()
