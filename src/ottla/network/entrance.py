"""Which dispatch serves a connection's frames, when none does, and the limits before it is let in.

Owns the dispatch of one connection, which may be replaced once. A listener that authenticates its
clients begins with a dispatch that can do nothing else, within narrow limits of size and time
(``confine``). When the client has proved its identity, that dispatch puts the router's in its place
(``let_in``). Other clients cannot reach the router: there is no flag that could be forgotten.

A client that has used up its quota is muted: its further frames wait, in the kernel as far as they
have not been received, until the time is over.
"""

from __future__ import annotations  # else those of inner functions are made at each call

from collections.abc import Callable
from math import inf
from typing import Protocol

from ottla.env.clock import Clock, Timer
from ottla.network.frame import FrameReader
from ottla.network.outgoing import Answer
from ottla.network.patience import Patience
from ottla.pending import Pending
from ottla.request_memory import LetGo

Dispatch = Callable[[memoryview], Answer | Pending[Answer | None] | None]
"""Serves one frame, which is valid only during the call. None: this request has no answer.
Raises MalformedMessage or CloseConnection to have the connection closed."""


class Served(Protocol):
    """The connection, as its entrance knows it."""

    def have_turn(self) -> None:
        """Serve the frames that have waited."""


class Entrance:
    """The dispatch of one connection, and what limits it."""

    __slots__ = (
        *("_clock", "_connection", "_muted_until", "_patience", "_reader", "_timer"),
        *("ask_wire", "dispatch", "is_muted"),
    )

    def __init__(
        self, reader: FrameReader, patience: Patience, clock: Clock, connection: Served | None
    ) -> None:
        self._reader = reader
        self._patience = patience
        self._clock = clock
        self._connection = connection
        self._muted_until = 0.0
        self._timer: Timer | None = None
        self.is_muted = False
        """Use: whether frames have to wait."""
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

    def mute(self, seconds: float) -> None:
        """Serve no further frame for so long, or until an earlier call's time is over, if later.

        Infinite: until the connection is closed.
        """
        until = self._clock.monotonic() + seconds
        if self._connection is None or until <= self._muted_until:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.is_muted, self._muted_until = True, until
        self._timer = None if seconds == inf else self._clock.call_later(seconds, self._unmute)

    def unmute(self) -> None:
        """End a mute before its time; one without an end stays."""
        if self._timer is not None:
            self._timer.cancel()
            self._muted_until = 0.0
            self._unmute()

    def _unmute(self) -> None:
        self.is_muted, self._timer = False, None
        if self._connection is not None:
            self._connection.have_turn()

    def end(self) -> None:
        """Forget the dispatch and the connection: it is lost."""
        self.dispatch, self._connection = _nobody, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.ask_wire = _nothing


def _nobody(frame: memoryview) -> None:
    """Stand for a dispatch before the connection is made and after it is lost."""


def _nothing(name: str) -> None:
    """Stand for a transport that knows nothing."""
