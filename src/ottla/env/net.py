"""The net port: stream connections in asyncio's transport/protocol shape.

Only the common asyncio API is used, so that uvloop, stock asyncio, an in-memory net and a simulated
loop are interchangeable (design D1, D11).
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Listening(Protocol):
    """A bound and listening address."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and port really bound; the port is never 0."""

    def pause_accepting(self) -> None:
        """Stop taking new connections; they wait in the backlog. Harmless when paused."""

    def resume_accepting(self) -> None:
        """Take new connections again. Harmless when not paused."""

    async def close(self) -> None:
        """Stop listening. Connections accepted before live on."""


class Net(Protocol):
    """Opens and accepts stream connections."""

    async def listen(
        self, factory: ProtocolFactory, *, host: str, port: int, backlog: int
    ) -> Listening:
        """Bind and listen; port 0 takes a free one. Raises OSError (EADDRINUSE, EACCES, ...)."""

    async def connect(
        self, factory: ProtocolFactory, *, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect. Raises OSError, ConnectionRefusedError among them."""
