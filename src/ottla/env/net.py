"""The net port: stream connections in asyncio's transport/protocol shape.

Only the common asyncio API is used, so that uvloop, stock asyncio, an in-memory net and a simulated
loop are interchangeable (design D1, D11).
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from ottla.env.disk import File
from ottla.env.tls import TlsFiles

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


class FileSender(Protocol):
    """Moves bytes of a file into a connection's socket inside the kernel."""

    def send_file(self, file: File, position: int, length_bytes: int) -> int:
        """Send what the socket takes at once and return how much that was; 0 when it is full.

        Only when the transport has nothing buffered, else the order is lost, and only for a file
        with a descriptor. Raises OSError of the file; a broken connection counts as full.
        """


class Net(Protocol):
    """Opens and accepts stream connections."""

    async def listen(
        self, factory: ProtocolFactory, *, host: str, port: int, backlog: int, paused: bool = False
    ) -> Listening:
        """Bind and listen; port 0 takes a free one. Raises OSError (EADDRINUSE, EACCES, ...).

        With ``paused`` connections wait in the backlog until ``resume_accepting``.
        """

    def file_sender(self, transport: asyncio.BaseTransport) -> FileSender | None:
        """Return what sends files over this connection, or None: read and write them instead."""

    async def connect(
        self, factory: ProtocolFactory, *, host: str, port: int, tls: TlsFiles | None = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect, and shake hands when ``tls`` is given.

        Raises OSError: ConnectionRefusedError, and what ``tls.why_refused`` explains, among them.
        """
