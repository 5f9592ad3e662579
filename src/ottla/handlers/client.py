"""The client at the other end of a connection, as handlers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.ids import ANONYMOUS, Principal

if TYPE_CHECKING:
    from ottla.security.access import Access


class Line(Protocol):
    """What a quota may do with a client's connection."""

    def mute(self, seconds: float) -> None:
        """Serve none of its further requests for so long; what was asked before is answered."""


class Client(NamedTuple):
    """A client's address and identity, and the address of ours that it has connected to."""

    host: str
    port: int
    local_host: str
    local_port: int
    principal: Principal = ANONYMOUS
    listener: str = ""
    """The name of the listener that it came by."""
    line: Line | None = None
    """None: it has no connection of its own (a test's)."""
    access: Access | None = None
    """What it may do; None: everything, because there is no authorizer."""
