"""A guard stands in front of a handler and asks, for what a request names, whether it is allowed.

Owns how guards and handlers are put together. A guard takes out of the request what is refused,
lets the handler serve the rest, and puts the refusals into the answer. So no handler knows of ACLs,
and a node without an authorizer has no guards. What a guard can only decide amid the handler's work
(fetch sessions, the direct ways) is asked there, by ``Client.access``.
"""

from __future__ import annotations  # else each call would build those of inner functions

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from ottla.handlers.call import Call, Direct, DirectHandler, Encode, Handler, LongHandler, Response
from ottla.ids import NodeId
from ottla.metadata.image import MetadataImage
from ottla.pending import Pending
from ottla.protocol.schema import Message
from ottla.security.access import Access
from ottla.security.acl import Operation
from ottla.sliced import Steps

Item = TypeVar("Item")

Serve = Callable[[Any], Response]
"""Has the handler serve a request."""
Guard = Callable[[Any, Call, Access, Serve], Response]
"""Answers a request, with the handler's help: the request, its call, what its client may do."""


class Node(NamedTuple):
    """What guards know of the node."""

    node_id: NodeId
    image: MetadataImage
    auto_create: bool
    """``auto.create.topics.enable``."""
    may_delete: bool
    """``delete.topic.enable``."""


class Guarded:
    """A handler behind a guard."""

    def __init__(self, handler: Handler[Any], guard: Guard) -> None:
        self._handler = handler
        self._guard = guard
        self.is_stand_in: bool = getattr(handler, "is_stand_in", False)
        """Use: as the handler's; see ``router``."""
        self._handle_long = handler.handle_long if isinstance(handler, LongHandler) else None

    def handle(self, request: Message, call: Call) -> Response:
        """Have the guard answer."""
        handle = self._handler.handle
        return _flat(self._guard(request, call, _access(call), lambda asked: handle(asked, call)))

    def handle_long(self, request: Message, call: Call) -> Response:
        """Have the guard answer a long request; the handler serves it in its own way for these."""
        handle = self._handle_long or self._handler.handle
        return _flat(self._guard(request, call, _access(call), lambda asked: handle(asked, call)))


class GuardedDirect(Guarded):
    """A handler with a direct way, which asks by itself and leaves refusals to the guard."""

    def direct(self, version: int, encode: Encode) -> Direct | None:
        """Return the handler's direct way."""
        assert isinstance(self._handler, DirectHandler), "it was chosen for that"
        return self._handler.direct(version, encode)


def guarded(handler: Handler[Any], guard: Guard) -> Guarded:
    """Return the handler behind the guard."""
    if isinstance(handler, DirectHandler):
        return GuardedDirect(handler, guard)
    return Guarded(handler, guard)


def _flat(response: Response) -> Response:
    """Return what a guard returned; its steps may return the handler's steps."""
    return _in_a_row(response) if isinstance(response, Generator) else response


def _in_a_row(steps: Steps[Response]) -> Steps[Response]:
    found = yield from steps
    while isinstance(found, Generator):
        found = yield from found
    return found


def _access(call: Call) -> Access:
    access = call.client.access
    assert access is not None, "every client is known when there is an authorizer"
    return access


def then(response: Response, change: Callable[[Any], None]) -> Steps[Response]:
    """Return a handler's response, after ``change`` was made to its message.

    ``change`` gets None for a request without an answer.
    """
    if isinstance(response, Generator):
        response = yield from response
    if isinstance(response, Pending):
        return response.then(lambda done: _changed(done, change))
    change(response)
    return response


def then_in_steps(response: Response, change: Callable[[Any], Steps[None]]) -> Steps[Response]:
    """Do as ``then`` with a change that takes several slices."""
    if isinstance(response, Generator):
        response = yield from response
    if isinstance(response, Pending):
        return response.then(lambda done: then_in_steps(done, change))
    yield from change(response)
    return response


def _changed(done: Any, change: Callable[[Any], None]) -> Any:  # noqa: ANN401 - any response
    if isinstance(done, Generator):
        return then(done, change)
    change(done)
    return done


def why_not_of_cluster(api: str, operation: Operation) -> str:
    """Return the text of a refusal. Kafka prints its request's object here."""
    return f"{api} needs {operation.name} on the cluster"
