"""A handler that is made when the coordinators are.

For what clients ask every broker, also one whose coordinators nobody has needed so far: the loop
does not stand still while they are imported. What clients ask a coordinator comes after
FindCoordinator, which waits by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.handlers.call import Call, Handler, Response
from ottla.pending import Pending
from ottla.protocol.schema import Message
from ottla.sliced import Steps

if TYPE_CHECKING:
    from ottla.coordinator.on_demand import CoordinatorsOnDemand


class WhenReady:
    """Stands in for the handler of one API until its first request is served."""

    def __init__(
        self, coordinators: CoordinatorsOnDemand, make: Callable[[], Handler[Any]]
    ) -> None:
        """``make`` imports and makes the handler; called once, when the coordinators are made."""
        self._coordinators = coordinators
        self._make = make
        self._handler: Handler[Any] | None = None

    def handle(self, request: Any, call: Call) -> Response:  # noqa: ANN401 - of any API
        """Serve a request; the first ones wait."""
        if self._handler is None:
            return self._serve_first(request, call)
        return self._handler.handle(request, call)

    def _serve_first(self, request: Any, call: Call) -> Steps[Any]:  # noqa: ANN401 - as above
        yield self._coordinators.ready()
        if self._handler is None:
            self._handler = self._make()
        response = self._handler.handle(request, call)
        if response is None or isinstance(response, Message | Pending):
            return response
        return (yield from response)
