"""A handler that is made when the coordinators are.

For the first request that needs the coordinators of a broker where nobody has needed them so far:
the loop does not stand still while they are imported. Usually that is FindCoordinator, which waits
by itself; but clients may ask anything first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.handlers.call import Call, Handler, LongHandler, Response
from ottla.pending import Pending
from ottla.protocol.schema import Message
from ottla.sliced import Steps

if TYPE_CHECKING:
    from ottla.coordinator.on_demand import CoordinatorsOnDemand


class WhenReady:
    """Stands in for the handler of one API until the coordinators are there."""

    is_stand_in = True
    """The router asks for the handler anew at the next request."""

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

    def handle_long(self, request: Any, call: Call) -> Response:  # noqa: ANN401 - of any API
        """Serve a long request; the handler serves it in its own way for these."""
        return self._serve_first(request, call, is_long=True)

    def _serve_first(
        self,
        request: Any,  # noqa: ANN401 - as above
        call: Call,
        *,
        is_long: bool = False,
    ) -> Steps[Any]:
        yield self._coordinators.ready()
        if self._handler is None:
            self._handler = self._make()
        handler = self._handler
        response: Response
        if is_long and isinstance(handler, LongHandler):
            response = handler.handle_long(request, call)
        else:
            response = handler.handle(request, call)
        if response is None or isinstance(response, Message | Pending):
            return response
        return (yield from response)
