"""What a handler knows of a request besides its body, and what a handler is.

Source: design D2: a handler is a plain function ``(request, call) -> response | Pending``.
"""

from typing import Any, NamedTuple, Protocol, TypeVar

from ottla.pending import Pending
from ottla.protocol.schema import Message

Request_contra = TypeVar("Request_contra", bound=Message, contravariant=True)


class Client(NamedTuple):
    """Who asks, and by which of our addresses it reached us."""

    host: str
    port: int
    local_host: str
    local_port: int


class Call(NamedTuple):
    """One request's circumstances."""

    api_version: int
    client_id: str | None
    client: Client


Response = Message | Pending[Any] | None
"""A Pending resolves to a Message or None. None: there is no answer (a produce with acks=0)."""


class Handler(Protocol[Request_contra]):
    """Serves one API."""

    def handle(self, request: Request_contra, call: Call) -> Response:
        """Answer, or promise to. Never blocks. Raises CloseConnection to hang up."""
