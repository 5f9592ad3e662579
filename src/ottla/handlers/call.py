"""What a handler is, and what it knows of a request besides its body.

Source: design D2: a handler is a plain function ``(request, call) -> response | Pending``.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from ottla.handlers.client import Client
from ottla.handlers.gate import Passage
from ottla.ids import Principal
from ottla.pending import Pending
from ottla.protocol.primitives import RecordBytes
from ottla.protocol.schema import Message
from ottla.records.region import Region
from ottla.request_memory import LetGo, RequestMemory
from ottla.sliced import Steps

Request_contra = TypeVar("Request_contra", bound=Message, contravariant=True)


class Call(NamedTuple):
    """What is known of one request besides its body."""

    api_version: int
    client_id: str | None
    client: Client
    passage: Passage | None = None
    """For the router, which tells it that the request is answered. None: nobody counts it."""

    @property
    def principal(self) -> Principal:
        """The identity of the client."""
        return self.client.principal

    def take(self, *, strict_since: int | None) -> Callable[[int], None]:
        """Return what counts partitions that this request creates or deletes.

        From version ``strict_since`` (None: never) on it raises KafkaError when the client has used
        up its quota: older clients do not know that error, and only have to wait.
        """
        passage = self.passage
        if passage is None:
            return _take_any
        is_strict = strict_since is not None and self.api_version >= strict_since
        return partial(passage.take_partitions, is_strict=is_strict)


def _take_any(count: int) -> None:
    """Count nothing."""


Response = Message | Pending[Any] | Steps[Any] | None
"""What ``handle`` returns: a Message; or a generator that works in slices (``ottla.sliced``) and
returns a Message or a Pending; or a Pending that resolves to a Message or to such a generator.
None: this request has no answer (a Produce with acks=0)."""


class Handler(Protocol[Request_contra]):
    """Serves one API."""

    def handle(self, request: Request_contra, call: Call) -> Response:
        """Return the response, now or as a Pending. Never blocks.

        Raises CloseConnection to have the connection closed.
        """


Chunk = RecordBytes | Region
Answer = list[Chunk]
"""A whole framed response, in pieces."""

Keep = Callable[[memoryview], tuple[memoryview, LetGo]]
"""Makes the bytes of the current frame last, for work that goes on after ``dispatch`` returns.
Returns lasting bytes, and the function that gives their memory back."""


def copied(frame: memoryview) -> tuple[memoryview, LetGo]:
    """Keep a frame as a copy that counts in no budget: for callers without a connection."""
    return memoryview(bytearray(frame)), RequestMemory(len(frame)).hold(len(frame))


Encode = Callable[[Message, int], Answer]
"""Frames a response of one (API, version): the message, and its request's correlation id."""


class NotDirect(Enum):
    """The direct way does not serve this request, and nothing has happened yet."""

    NOT_DIRECT = "not direct"


NOT_DIRECT = NotDirect.NOT_DIRECT

Direct = Callable[[memoryview, int, int, Client], Answer | Pending[Answer | None] | NotDirect]
"""Serves requests of one (API, version) from their bytes, without decoding them into objects. Takes
the frame, the position where the header's client id ends, the correlation id, and the client. It
serves the form that most clients send, if all of it is allowed. It answers any other request with
NOT_DIRECT, and that request goes the ordinary way, through its decoder and ``Handler.handle``."""


@runtime_checkable
class LongHandler(Handler[Request_contra], Protocol[Request_contra]):
    """A handler that serves long requests by a method of their own."""

    def handle_long(self, request: Request_contra, call: Call) -> Steps[Any]:
        """Do as ``handle`` for a long request, in steps.

        The request's record bytes stay valid until the generator ends; those of ``handle`` are
        valid only during the call. Handlers that need no record bytes serve long requests by
        ``handle``.
        """


@runtime_checkable
class DirectHandler(Handler[Request_contra], Protocol[Request_contra]):
    """A handler with a direct way for the form of request that most clients send."""

    def direct(self, version: int, encode: Encode) -> Direct | None:
        """Return the direct way of one version; None: it has none. Called once per version."""
