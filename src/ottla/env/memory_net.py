"""The net port in memory: listeners and transports without sockets, on any asyncio loop.

The double behind tests of connections, clients and clusters. It behaves as TCP through a loop's
transports does, with the awkward sides on request: bytes in small pieces, links that go silent,
links that reset, peers that never read. Not for use from several loops at once.
Transports: ``memory_transport``.
"""

import asyncio
import errno
from collections import deque

from ottla.env.memory_transport import DEFAULT_SOCKET_BUFFER_BYTES, Link, MemoryTransport
from ottla.env.net import ProtocolFactory
from ottla.env.rng import Rng
from ottla.env.tls import TlsFiles

_ANY_HOST = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - names to compare with, nothing binds.
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_FIRST_FREE_PORT = 20_000


class MemoryListening:
    """A listening address of a MemoryNet."""

    def __init__(
        self,
        network: "MemoryNetwork",
        factory: ProtocolFactory,
        at: tuple[str, int],
        backlog: int,
        *,
        accepting: bool,
    ) -> None:
        self._network = network
        self._factory = factory
        self._at = at
        self._backlog = backlog
        self._waiting: deque[MemoryTransport] = deque()
        self._accepting = accepting

    @property
    def address(self) -> tuple[str, int]:
        """The host and port others connect to."""
        return self._at

    def pause_accepting(self) -> None:
        """Leave new connections in the backlog."""
        self._accepting = False

    def resume_accepting(self) -> None:
        """Take new connections again, beginning with those in the backlog."""
        self._accepting = True
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._accept)

    async def close(self) -> None:
        """Stop listening; what waits in the backlog is reset."""
        self._accepting = False
        self._network.forget(self._at)
        while self._waiting:
            self._waiting.popleft().abort()
        await asyncio.sleep(0)

    def enter(self, server_side: MemoryTransport) -> None:
        """Take a connection that a client has just made. Raises OSError when the backlog is full.

        A kernel would let the client's attempts time out; here it hears at once.
        """
        if len(self._waiting) > self._backlog:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"backlog of {self._at} is full")
        self._waiting.append(server_side)
        if self._accepting:
            asyncio.get_running_loop().call_soon(self._accept)

    def _accept(self) -> None:
        while self._accepting and self._waiting:
            server_side = self._waiting.popleft()
            if not server_side.is_closing():
                server_side.start(self._factory())


class MemoryNetwork:
    """What all hosts share: who listens where, and the links between pairs of hosts.

    ``fragments`` (None: bytes arrive in large pieces) cuts the stream into random pieces, some of
    one byte. ``socket_buffer_bytes`` is what a connection holds beside the transport's own buffer.
    """

    def __init__(
        self,
        *,
        fragments: Rng | None = None,
        socket_buffer_bytes: int = DEFAULT_SOCKET_BUFFER_BYTES,
    ) -> None:
        self._fragments = fragments
        self._socket_buffer_bytes = socket_buffer_bytes
        self._listeners: dict[tuple[str, int], MemoryListening] = {}
        self._links: dict[frozenset[str], Link] = {}
        self._next_port = _FIRST_FREE_PORT

    def host(self, name: str) -> "MemoryNet":
        """Return the net port as seen from the host ``name``."""
        return MemoryNet(self, name)

    def cut(self, one: str, other: str) -> None:
        """Silence the link between two hosts, both ways: nothing arrives, no connect succeeds.

        Bytes on their way are kept and arrive after ``mend``, as TCP would resend them.
        """
        self._link(one, other).cut()

    def mend(self, one: str, other: str) -> None:
        """End a cut."""
        self._link(one, other).mend()

    def reset(self, one: str, other: str) -> None:
        """Break all connections between two hosts: both ends see ConnectionResetError."""
        self._link(one, other).reset()

    def bind(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        backlog: int,
        *,
        accepting: bool = True,
    ) -> MemoryListening:
        """Listen at ``host``. Raises OSError EADDRINUSE."""
        if port == 0:
            while (host, self._next_port) in self._listeners:
                self._next_port += 1
            port = self._next_port
            self._next_port += 1
        at = (host, port)
        if at in self._listeners:
            raise OSError(errno.EADDRINUSE, f"cannot listen on {host}:{port}: address in use")
        listening = MemoryListening(self, factory, at, backlog, accepting=accepting)
        self._listeners[at] = listening
        return listening

    def forget(self, at: tuple[str, int]) -> None:
        """Free a listening address. Harmless when it is free."""
        self._listeners.pop(at, None)

    def join(self, factory: ProtocolFactory, here: str, there: tuple[str, int]) -> MemoryTransport:
        """Connect ``here`` to the listener ``there``; return the client's started transport."""
        link = self._link(here, there[0])
        listening = self._listeners.get(there)
        if link.is_cut:
            raise OSError(errno.EHOSTUNREACH, f"no way from {here} to {there[0]}")
        if listening is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {there}")
        local = (here, self._next_port)
        self._next_port += 1
        client, server = (
            MemoryTransport(
                link,
                local=mine,
                remote=yours,
                fragments=self._fragments,
                socket_buffer_bytes=self._socket_buffer_bytes,
            )
            for mine, yours in ((local, there), (there, local))
        )
        client.join(server)
        listening.enter(server)
        client.start(factory())
        return client

    def _link(self, one: str, other: str) -> Link:
        pair = frozenset({one, other})
        link = self._links.get(pair)
        if link is None:
            link = self._links[pair] = Link()
        return link


class MemoryNet:
    """The net port of one host. ``MemoryNet()`` alone is a host with a network of its own.

    The loopback names and the wildcards all mean this host.
    """

    def __init__(self, network: MemoryNetwork | None = None, host: str = "localhost") -> None:
        self.network = MemoryNetwork() if network is None else network
        self._host = host

    async def listen(
        self, factory: ProtocolFactory, *, host: str, port: int, backlog: int, paused: bool = False
    ) -> MemoryListening:
        """Listen as ``host`` (another name than this host's own is an alias of it)."""
        return self.network.bind(factory, self._name(host), port, backlog, accepting=not paused)

    def file_sender(self, transport: asyncio.BaseTransport) -> None:
        """Return None: there is no kernel here that could send files."""

    async def connect(
        self, factory: ProtocolFactory, *, host: str, port: int, tls: TlsFiles | None = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect. Raises ConnectionRefusedError, or OSError EHOSTUNREACH over a cut link."""
        if tls is not None:
            raise OSError(errno.EPROTONOSUPPORT, "no TLS in memory")
        await asyncio.sleep(0)
        transport = self.network.join(factory, self._host, (self._name(host), port))
        return transport, transport.get_protocol()

    def _name(self, host: str) -> str:
        return self._host if host in _ANY_HOST or host in _LOOPBACK else host
