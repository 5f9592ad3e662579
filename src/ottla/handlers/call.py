"""What a handler knows of a request besides its body, and what a handler is.

Source: design D2: a handler is a plain function ``(request, call) -> response | Pending``.
"""

from collections.abc import Callable
from enum import Enum
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
    """One request's circumstances."""

    api_version: int
    client_id: str | None
    client: Client
    passage: Passage | None = None
    """The router's: whom it tells that the request is answered. None: nobody counts it."""

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return self.client.principal


Response = Message | Pending[Any] | Steps[Any] | None
"""A generator does the work in slices (``ottla.sliced``) and returns a Message or a Pending; a
Pending resolves to a Message, or to such a generator, which then makes the answer. While a Pending
is waited for no slices are in the way of others'. None: no answer (a produce with acks=0)."""


class Handler(Protocol[Request_contra]):
    """Serves one API."""

    def handle(self, request: Request_contra, call: Call) -> Response:
        """Answer, or promise to. Never blocks. Raises CloseConnection to hang up."""


Chunk = RecordBytes | Region
Answer = list[Chunk]
"""A whole framed response, in pieces."""

Keep = Callable[[memoryview], tuple[memoryview, LetGo]]
"""Makes the bytes of the frame at hand last, for work that goes on behind the call it is given to;
returns them, and what gives their memory back."""


def copied(frame: memoryview) -> tuple[memoryview, LetGo]:
    """Keep a frame without a bound: for those who have no connection."""
    return memoryview(bytearray(frame)), RequestMemory(len(frame)).hold(len(frame))


Encode = Callable[[Message, int], Answer]
"""Frames a response of one (API, version): the message, and its request's correlation id."""


class NotDirect(Enum):
    """Says that the direct way does not serve this request, and has done nothing."""

    NOT_DIRECT = "not direct"


NOT_DIRECT = NotDirect.NOT_DIRECT

Direct = Callable[[memoryview, int, int], Answer | Pending[Answer | None] | NotDirect]
"""Serves requests of one (API, version) from their bytes, without objects made of them: the frame,
where the client id in its header ends, the correlation id. It serves the form in which most clients
send them. Any other request is NOT_DIRECT and goes the ordinary way, through its decoder and
``Handler.handle``."""


@runtime_checkable
class LongHandler(Handler[Request_contra], Protocol[Request_contra]):
    """A handler that reads the request's records after ``handle`` would have returned."""

    def handle_long(self, request: Request_contra, call: Call) -> Steps[Any]:
        """Do as ``handle`` for a request that names very much; its bytes stay until that is over.

        Without it ``handle`` serves long requests, too: nothing of theirs but records is bytes.
        """


@runtime_checkable
class DirectHandler(Handler[Request_contra], Protocol[Request_contra]):
    """A handler that has a direct way for the requests it gets most."""

    def direct(self, version: int, encode: Encode) -> Direct | None:
        """Return the direct way of one version; None: it has none. Called once per version."""
