"""One end of a connection in memory: asyncio's transport, with the peer as its wire.

Owns the bytes on their way, flow control both ways, and the order of a connection's end. Follows
the contract of asyncio's transports: ``write`` never delivers at once, ``pause_writing`` above the
high mark, ``connection_lost`` exactly once and last. Used by ``memory_net``.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from ottla.env.rng import Rng

DEFAULT_SOCKET_BUFFER_BYTES = 64 * 1024
_DELIVERY_BYTES_MAX = 256 * 1024
_HIGH_WATER_BYTES = 64 * 1024


class Link:
    """The way between two hosts, shared by their connections."""

    def __init__(self) -> None:
        self.is_cut = False
        self.connections: list[MemoryTransport] = []

    def cut(self) -> None:
        """Stop delivery."""
        self.is_cut = True

    def mend(self) -> None:
        """Deliver again, beginning with what was kept."""
        self.is_cut = False
        for transport in self.connections:
            transport.wake()

    def reset(self) -> None:
        """Break every connection on the way."""
        for transport in list(self.connections):
            transport.break_off(_reset_error())


class MemoryTransport(asyncio.Transport):
    """A stream to ``peer``. What is written waits here until the peer takes it.

    The first ``socket_buffer_bytes`` of the waiting bytes count as the kernel's, the rest as this
    transport's: so ``get_write_buffer_size`` grows only once a kernel would take no more.
    """

    def __init__(
        self,
        link: Link,
        *,
        local: tuple[str, int],
        remote: tuple[str, int],
        fragments: Rng | None,
        socket_buffer_bytes: int,
    ) -> None:
        super().__init__(extra={"sockname": local, "peername": remote, "socket": None})
        self._loop = asyncio.get_running_loop()
        self._link = link
        self._fragments = fragments
        self._socket_buffer_bytes = socket_buffer_bytes
        self._peer: MemoryTransport | None = None
        self._protocol: asyncio.BaseProtocol | None = None
        self._outgoing = bytearray()
        self._high_bytes = _HIGH_WATER_BYTES
        self._low_bytes = _HIGH_WATER_BYTES // 4
        self._writing_paused = False
        self._reading_paused = False
        self._closing = False
        self._lost = False  # The protocol was told (or will be on the next turn).
        self._broken = False  # Nothing is delivered any more, not even what a kernel would hold.
        self._end_written = False
        self._end_delivered = False
        self._woken = False

    def join(self, peer: "MemoryTransport") -> None:
        """Become one connection with ``peer``."""
        self._peer, peer._peer = peer, self  # noqa: SLF001
        self._link.connections += (self, peer)

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        """Give this end its protocol; from now on bytes are delivered to it."""
        self._protocol = protocol
        protocol.connection_made(self)
        if self._peer is not None:
            self._peer.wake()

    # -- what a protocol may call ------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue ``data`` (copied) for the peer. Ignored once this end is closing, as in asyncio."""
        if self._closing or not data:
            return
        if self._end_written:
            raise RuntimeError("cannot write after write_eof")
        self._outgoing += data
        self.wake()
        self._pause_writing_if_full()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Queue all of ``list_of_data`` in order."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """Half-close: the peer reads the end after what is queued; reading goes on."""
        if not self._closing:
            self._end_written = True
            self.wake()

    def can_write_eof(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Deliver what is queued, then end; nothing more is read."""
        if self._closing:
            return
        self._closing = True
        self._end_written = True
        self.wake()

    def abort(self) -> None:
        """End now: what is queued is lost and the peer sees a reset."""
        if not self._broken:
            self.break_off(None)
            if self._peer is not None:
                self._peer.break_off(_reset_error())

    def is_closing(self) -> bool:
        """Tell whether this end is closing or closed."""
        return self._closing

    def get_write_buffer_size(self) -> int:
        """Return the bytes a kernel would not have taken yet."""
        return max(0, len(self._outgoing) - self._socket_buffer_bytes)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return (low, high) in bytes."""
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks, with asyncio's defaults."""
        if high is None:
            high = _HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be >= low ({low}) must be >= 0")
        self._high_bytes, self._low_bytes = high, low
        self._pause_writing_if_full()

    def pause_reading(self) -> None:
        """Take no more bytes from the peer."""
        self._reading_paused = True

    def resume_reading(self) -> None:
        """Take bytes again."""
        self._reading_paused = False
        if self._peer is not None:
            self._peer.wake()

    def is_reading(self) -> bool:
        """Tell whether bytes are taken."""
        return not self._reading_paused and not self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand this end to another protocol."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol. An end in the backlog has none yet."""
        assert self._protocol is not None
        return self._protocol

    # -- the wire ----------------------------------------------------------------------------------

    def wake(self) -> None:
        """See soon whether something can be delivered to the peer."""
        if not self._woken and not self._broken:
            self._woken = True
            self._loop.call_soon(self._deliver)

    def break_off(self, error: Exception | None) -> None:
        """End this side now, whatever is queued, and tell its protocol if it was not told."""
        if self._broken:
            return
        self._broken = self._closing = True
        self._outgoing.clear()
        self._link.connections.remove(self)
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            if self._protocol is not None:
                self._loop.call_soon(self._protocol.connection_lost, error)

    def _deliver(self) -> None:
        self._woken = False
        peer = self._peer
        if self._broken or peer is None:
            return
        if self._outgoing and peer._lost and (peer._end_delivered or self._closing):  # noqa: SLF001
            # A kernel answers bytes for a closed socket with a reset.
            self.break_off(_reset_error())
            return
        if not self._link.is_cut and peer._takes_bytes():  # noqa: SLF001
            if self._outgoing:
                self._pass_on(peer)
            elif self._end_written and not self._end_delivered:
                self._end_delivered = True
                peer._read_end()  # noqa: SLF001
            if self._outgoing or (self._end_written and not self._end_delivered):
                self.wake()
        if self._closing and self.get_write_buffer_size() == 0:
            self._lose(None)
            if self._end_delivered or peer._closing:  # noqa: SLF001
                self.break_off(None)
            peer.wake()

    def _takes_bytes(self) -> bool:
        return self._protocol is not None and not self._reading_paused and not self._closing

    def _pass_on(self, peer: "MemoryTransport") -> None:
        length = min(len(self._outgoing), _DELIVERY_BYTES_MAX)
        if self._fragments is not None:
            scale = 1 << self._fragments.random_below(14)
            length = min(length, 1 + self._fragments.random_below(scale))
        piece = bytes(self._outgoing[:length])
        taken = peer._receive(piece)  # noqa: SLF001
        del self._outgoing[:taken]
        if self._writing_paused and self.get_write_buffer_size() <= self._low_bytes:
            self._writing_paused = False
            self.get_protocol().resume_writing()

    def _receive(self, piece: bytes) -> int:
        """Give ``piece`` to the protocol; return how much of it was taken."""
        protocol = self._protocol
        try:
            if isinstance(protocol, asyncio.BufferedProtocol):
                buffer = memoryview(protocol.get_buffer(len(piece))).cast("B")
                taken = min(len(buffer), len(piece))
                buffer[:taken] = piece[:taken]
                protocol.buffer_updated(taken)
                return taken
            cast(asyncio.Protocol, protocol).data_received(piece)
        # As asyncio's transports do: a protocol's fault ends its own connection and is reported.
        except Exception as error:  # noqa: BLE001
            self._fail(error)
        return len(piece)

    def _read_end(self) -> None:
        protocol = cast(asyncio.Protocol, self._protocol)
        try:
            keep_open = protocol.eof_received()
        except Exception as error:  # noqa: BLE001 - as in _receive.
            self._fail(error)
            return
        if not keep_open:
            self.close()

    def _fail(self, error: Exception) -> None:
        context: dict[str, Any] = {
            "message": "a protocol failed while it was given bytes",
            "exception": error,
            "transport": self,
            "protocol": self._protocol,
        }
        self._loop.call_exception_handler(context)
        self.break_off(error)
        if self._peer is not None:
            self._peer.break_off(_reset_error())

    def _pause_writing_if_full(self) -> None:
        if not self._writing_paused and self.get_write_buffer_size() > self._high_bytes:
            self._writing_paused = True
            self.get_protocol().pause_writing()


def _reset_error() -> ConnectionResetError:
    return ConnectionResetError("connection reset by peer")
