"""Which dispatch serves a connection's frames, and the limits before the client is authenticated.

Owns the dispatch of one connection, which may be replaced once. A listener that authenticates its
clients begins with a dispatch that can do nothing else, within narrow limits of size and time
(``confine``). When the client has proved its identity, that dispatch puts the router's in its place
(``let_in``). Other clients cannot reach the router: there is no flag that could be forgotten.
"""

from __future__ import annotations  # else those of inner functions are made at each call

from collections.abc import Callable

from ottla.network.frame import FrameReader
from ottla.network.outgoing import Answer
from ottla.network.patience import Patience
from ottla.pending import Pending
from ottla.request_memory import LetGo

Dispatch = Callable[[memoryview], Answer | Pending[Answer | None] | None]
"""Serves one frame, which is valid only during the call. None: this request has no answer.
Raises MalformedMessage or CloseConnection to have the connection closed."""


class Entrance:
    """The dispatch of one connection, and the limits before it is let in."""

    __slots__ = ("_patience", "_reader", "ask_wire", "dispatch")

    def __init__(self, reader: FrameReader, patience: Patience) -> None:
        self._reader = reader
        self._patience = patience
        self.dispatch: Dispatch = _nobody
        """Use: serves each frame."""
        self.ask_wire: Callable[[str], object] = _nothing
        """Use: the transport's ``get_extra_info``."""

    @property
    def certificate(self) -> bytes | None:
        """The client's certificate as DER, checked by the listener; None: it has shown none."""
        found = self.ask_wire("certificate")
        return found if isinstance(found, bytes) else None

    def keep(self, frame: memoryview) -> tuple[memoryview, LetGo]:
        """Make a frame outlive its call, for a Dispatch that needs it longer; once per frame.

        Returns lasting bytes, and the function to call when they are no longer needed.
        """
        return self._reader.keep(frame)

    def confine(self, *, frame_bytes_min: int, frame_bytes_max: int, seconds: float) -> None:
        """Limit the size of frames, the time from the connect to ``let_in``, and the memory.

        Clients that are not let in share a small part of the receive memory, so that they cannot
        use up that of the others.

        A second call does not restart the time.
        """
        self._reader.confine(frame_bytes_min, frame_bytes_max)
        self._patience.confine(seconds)

    def let_in(self, dispatch: Dispatch) -> None:
        """Have ``dispatch`` serve all further frames, within the connection's own limits."""
        self._reader.let_in()
        self._patience.let_in_by = None
        self.dispatch = dispatch

    def end(self) -> None:
        """Forget the dispatch: the connection is lost."""
        self.dispatch = _nobody
        self.ask_wire = _nothing


def _nobody(frame: memoryview) -> None:
    """Stand for a dispatch before the connection is made and after it is lost."""


def _nothing(name: str) -> None:
    """Stand for a transport that knows nothing."""
