"""The net port on TCP, over the common API of asyncio and uvloop.

Owns listening sockets; transports are the loop's own. Knows no frames.
Source: reliability 3, row 15 (pausing of accepts).
"""

import asyncio
import errno
import logging
import os
import socket
from typing import NamedTuple

from ottla.env.disk import File
from ottla.env.net import ProtocolFactory
from ottla.env.socket_options import set_options
from ottla.env.tasks import begin_task
from ottla.env.tls import TlsFiles, client_context

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.1
"""Between tries to accept connections again."""
_SAME_PORT_TRIES = 20


class CannotListen(OSError):
    """Nobody can listen at ``host`` and ``port``; ``reason`` is the system's word for why."""

    def __init__(self, host: str, port: int, reason: str, number: int | None = None) -> None:
        """Note where. ``number``: the system's of the error; None: no name like ``host``."""
        super().__init__(number, f"cannot listen on {host}:{port}: {reason}")
        self.host = host
        self.port = port
        self.reason = reason


class _Address(NamedTuple):
    family: int
    sockaddr: tuple[str | int | bytes, ...]


class TcpListening:
    """One port on one or more addresses (a name may stand for an IPv4 and an IPv6 one).

    The bound sockets stay open for its whole life; what accepts on them is a loop's server on a
    duplicate. Closing that server is the only pause that both loops know: the kernel goes on
    queueing connections, because the socket itself still listens.
    """

    def __init__(
        self, factory: ProtocolFactory, sockets: list[socket.socket], host: str, backlog: int
    ) -> None:
        self._factory = factory
        self._sockets = sockets
        self._backlog = backlog
        self._servers: list[asyncio.AbstractServer] = []
        self._address = (host, int(sockets[0].getsockname()[1]))
        self._accepting = False
        self._closed = False
        self._turn: asyncio.Task[None] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """The host as asked for and the port really bound."""
        return self._address

    def pause_accepting(self) -> None:
        """Stop taking new connections at once; they wait in the backlog."""
        self._accepting = False
        self._close_servers()

    def resume_accepting(self) -> None:
        """Take new connections again, beginning with a later turn of the running loop."""
        if self._accepting or self._closed:
            return
        self._accepting = True
        if self._turn is None:
            self._begin_turn()

    async def close(self) -> None:
        """Stop listening. Connections accepted before live on."""
        self._closed = True
        self.pause_accepting()
        if self._turn is not None:
            await asyncio.gather(self._turn, return_exceptions=True)
        for bound in self._sockets:
            bound.close()
        # uvloop closes a handle on its next turn; afterwards the port is free.
        await asyncio.sleep(0)

    async def start(self) -> None:
        """Begin to accept. Raises OSError."""
        self._accepting = True
        await self._serve()

    async def _serve_in_turn(self) -> None:
        while self._accepting:
            try:
                await self._serve()
            except Exception as error:
                self._close_servers()
                # No descriptor, say: a broker that listens to nobody would be of no use.
                is_ours = not isinstance(error, OSError)
                logger.log(
                    logging.ERROR,
                    "no connection can be accepted yet: %s",
                    error,
                    exc_info=error if is_ours else None,
                )
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _begin_turn(self) -> None:
        self._turn = begin_task(self._serve_in_turn(), name="accept", ended=self._turn_over)

    def _turn_over(self, turn: asyncio.Task[None]) -> None:
        self._turn = None
        is_wanted = self._accepting and len(self._servers) < len(self._sockets)
        if is_wanted and not turn.cancelled():
            self._begin_turn()  # A pause and a resume came when it had all but ended.

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        # A pause and a resume may come while create_server is awaited: go by what is wanted last.
        while self._accepting and len(self._servers) < len(self._sockets):
            duplicate = self._sockets[len(self._servers)].dup()
            try:
                server = await loop.create_server(
                    self._factory, sock=duplicate, backlog=self._backlog
                )
            except BaseException:
                duplicate.close()
                raise
            self._servers.append(server)
        if not self._accepting:
            self._close_servers()

    def _close_servers(self) -> None:
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()


class SocketFileSender:
    """sendfile into a non-blocking socket; good as long as its transport is."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send_file(self, file: File, position: int, length_bytes: int) -> int:
        """See ``FileSender.send_file``."""
        source = file.fileno()
        if source is None:
            return 0
        try:
            return os.sendfile(self._descriptor, source, position, length_bytes)
        except (BlockingIOError, ConnectionError):
            return 0  # The transport will notice a broken connection by itself.


class AsyncioNet:
    """TCP through the running loop."""

    async def listen(
        self, factory: ProtocolFactory, *, host: str, port: int, backlog: int, paused: bool = False
    ) -> TcpListening:
        """Bind every address of ``host`` ("" = all interfaces) on one port and listen.

        Raises CannotListen, and OSError.
        """
        sockets = await self.sockets(host, port, backlog)
        listening = TcpListening(factory, sockets, host, backlog)
        if paused:
            return listening
        try:
            await listening.start()
        except BaseException:
            await listening.close()
            raise
        return listening

    async def sockets(self, host: str, port: int, backlog: int) -> list[socket.socket]:
        """Return what listens on ``port`` of every address of ``host``; port 0: a free one.

        Raises CannotListen.
        """
        try:
            addresses = await _resolve(host, port)
        except (socket.gaierror, UnicodeError) as error:  # The latter for a name with an empty part
            reason = error.strerror if isinstance(error, OSError) else None
            raise CannotListen(host, port, reason or str(error)) from error
        try:
            return _bind_all(addresses, backlog)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise CannotListen(host, port, reason, error.errno) from error

    def file_sender(self, transport: asyncio.BaseTransport) -> "SocketFileSender | None":
        """Return sendfile on the connection's socket, or None when it is encrypted."""
        stream = transport.get_extra_info("socket")
        if stream is None or transport.get_extra_info("sslcontext") is not None:
            return None
        return SocketFileSender(stream.fileno())

    async def connect(
        self, factory: ProtocolFactory, *, host: str, port: int, tls: TlsFiles | None = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to the first address of ``host`` that answers. Raises OSError."""
        loop = asyncio.get_running_loop()
        context = None if tls is None else client_context(tls)
        transport, protocol = await loop.create_connection(factory, host, port, ssl=context)
        stream = transport.get_extra_info("socket")
        set_options(stream)
        if stream.getsockname() == stream.getpeername():
            # A free port in the ephemeral range can be connected to itself.
            transport.abort()
            raise ConnectionRefusedError(
                errno.ECONNREFUSED, f"nobody listens on {host}:{port} (connected to itself)"
            )
        return transport, protocol


async def _resolve(host: str, port: int) -> list[_Address]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    addresses = [_Address(family, sockaddr) for family, _, _, _, sockaddr in found]
    return list(dict.fromkeys(addresses))


def _bind_all(addresses: list[_Address], backlog: int) -> list[socket.socket]:
    """Bind all addresses to one port; a free one that another address lacks is tried anew."""
    for _ in range(_SAME_PORT_TRIES - 1):
        try:
            return _bind_once(addresses, backlog)
        except OSError as error:
            if addresses[0].sockaddr[1] != 0 or error.errno != errno.EADDRINUSE:
                raise
    return _bind_once(addresses, backlog)


def _bind_once(addresses: list[_Address], backlog: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    port: int | None = None
    try:
        for address in addresses:
            bound = _bind(address, port)
            if bound is None:
                continue
            sockets.append(bound)
            bound.listen(backlog)
            port = bound.getsockname()[1]
    except BaseException:
        for bound in sockets:
            bound.close()
        raise
    if not sockets:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    return sockets


def _bind(address: _Address, port: int | None) -> socket.socket | None:
    """Return a bound socket; None when the system lacks this address family."""
    try:
        bound = socket.socket(address.family, socket.SOCK_STREAM)
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            return None
        raise
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address.family == socket.AF_INET6:
            # IPv4 has a socket of its own.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Accepted sockets inherit these, so that no call per connection is needed.
        set_options(bound)
        bound.setblocking(False)
        name, asked, *rest = address.sockaddr
        bound.bind((name, asked if port is None else port, *rest))
    except OSError as error:
        bound.close()
        # A system may know IPv6 and have no IPv6 address: the IPv4 one then has to do.
        if address.family == socket.AF_INET6 and error.errno == errno.EADDRNOTAVAIL:
            return None
        raise
    return bound
