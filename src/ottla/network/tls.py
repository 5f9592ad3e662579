"""TLS between a socket and its connection: bytes of the wire in, bytes of the client out.

Owns one connection's handshake, the order of its encrypted bytes, and both ends of the stream
(close_notify). To the loop it is a protocol, to ``Connection`` a transport; neither knows of the
other side. Nothing is encrypted ahead of what the socket takes, and nothing is decrypted while the
connection has paused reading, so backpressure goes through as without TLS. The two halves:

    wire -> (handshake: whole records to ``Handshakes``) -> engine -> the connection's own buffer
    connection -> waiting pieces -> engine -> wire, at most ``WIRE_BYTES`` ahead

Source: RFC 8446 (records, alerts), asyncio's transports; attacks 45-47, 52 of the security design.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, cast

from ottla.env.server_tls import Engine, OpenEngine, TlsBroken
from ottla.network.handshakes import Handshakes, Stepped, take_step
from ottla.network.sealing import PIECE_BYTES, WIRE_BYTES, Sealing, Told

HANDSHAKE_BYTES_MAX = 128 * 1024
"""A client that sends more before the handshake is complete is refused."""
WASTE_BYTES_MAX = 512 * 1024
"""The most bytes of records that carry (nearly) nothing, such as key updates."""
WASTE_RATIO = 16
"""Each byte for the connection makes up for so many bytes of the wire."""
_RECORD_HEADER_BYTES = 5
_RECORD_BYTES_MAX = 16 * 1024 + 2048
_HANDSHAKE_RECORD = 0x16


class _Reader(Protocol):
    """The connection, as an asyncio.BufferedProtocol."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def eof_received(self) -> bool: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class TlsTransport(asyncio.Transport):
    """The transport of a connection: what it writes is encrypted, what it reads was."""

    def __init__(self, layer: "TlsLayer") -> None:
        super().__init__()
        self._layer = layer

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - asyncio's
        """Return what the wire knows; ``certificate`` is the client's, as DER, or None."""
        if name == "certificate":
            return self._layer.certificate
        if name == "sslcontext":
            return True  # So nobody sends files past the encryption.
        return self._layer.wire.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Have ``data`` encrypted and sent. It must not change afterwards."""
        if not self._layer.is_closing:
            self._layer.sealing.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write all of ``list_of_data`` in order."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Send what was written, say that it was all, and close."""
        self._layer.close()

    def abort(self) -> None:
        """Cut the connection off."""
        self._layer.abort()

    def is_closing(self) -> bool:
        """Tell whether it is closing or closed."""
        return self._layer.is_closing

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the socket has not taken, encrypted or not."""
        return self._layer.sealing.unsent_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when the wire is full, at most ``WIRE_BYTES``."""
        self._layer.wire.set_write_buffer_limits(
            high=WIRE_BYTES if high is None else min(high, WIRE_BYTES)
        )

    def pause_reading(self) -> None:
        """Deliver nothing until ``resume_reading``."""
        self._layer.pause_reading()

    def resume_reading(self) -> None:
        """Deliver again, from a later turn on."""
        self._layer.resume_reading()

    def is_reading(self) -> bool:
        """Tell whether bytes are delivered."""
        return self._layer.is_reading


class TlsLayer(asyncio.BufferedProtocol):
    """TLS of one connection, as the loop sees it."""

    def __init__(
        self, connection: asyncio.BufferedProtocol, handshakes: Handshakes, open_engine: OpenEngine
    ) -> None:
        """``open_engine`` is called when the client's first record has come."""
        self._connection = cast(_Reader, connection)
        self._handshakes = handshakes
        self._open_engine = open_engine
        self.host = ""
        """Use: the client's address; "" before the connection is made."""
        self.wire: asyncio.Transport
        self.sealing: Sealing
        """Use: takes what the connection writes."""
        self._loop: asyncio.AbstractEventLoop
        self._engine: Engine | None = None
        self._kept = b""
        """Use: bytes of the wire that are not fed yet. Invariant: the wire is paused while there
        are any after the handshake."""
        self._is_open = False  # The handshake is complete.
        self._is_in_step = False  # Another thread has the engine.
        self._is_paused = False  # By the connection.
        self._is_wire_paused = False
        self._has_ended = False  # The client's stream.
        self._is_due = False  # ``_go_on`` was asked for.
        self.is_closing = False
        """Use: the connection, or a refusal, has ended it."""
        self._handshake_bytes = 0
        self._waste_bytes = 0

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the wire; the connection gets its transport at once, and its bytes later."""
        self.wire = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        peer = transport.get_extra_info("peername") or ("", 0)
        self.host = str(peer[0])
        told = Told(self._all_is_sent, self._refuse_broken)
        self.sealing = Sealing(self.wire, self._connection, told)
        self._handshakes.begin(self)
        self._connection.connection_made(TlsTransport(self))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to receive."""
        return self._handshakes.scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes of the wire."""
        received = self._handshakes.scratch[:nbytes]
        if self.is_closing or self._has_ended:
            return
        if not self._is_open:
            self._take_for_handshake(received)
            return
        self._waste_bytes += nbytes
        self._decrypt(received)
        if self._waste_bytes > WASTE_BYTES_MAX:
            self.refuse("it sends records without contents")

    def eof_received(self) -> bool:
        """Tell the connection; True keeps the wire open, which ``close`` then closes."""
        if not self._is_open:
            return False
        self._end_of_stream()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget everything."""
        self.is_closing = True
        self._handshakes.end(self)
        self.sealing.end()
        self._kept = b""
        self._connection.connection_lost(exc)
        if not self._is_in_step:
            self._engine = None

    def pause_writing(self) -> None:
        """Note that the socket takes no more."""
        self.sealing.wire_is_full()

    def resume_writing(self) -> None:
        """Encrypt what waits."""
        self.sealing.wire_has_room()

    # The handshake.

    def _take_for_handshake(self, received: memoryview) -> None:
        """Have the next step done when a record is complete."""
        self._handshake_bytes += len(received)
        self._kept += bytes(received)
        whole = _whole_records(self._kept)
        if self._kept[0] != _HANDSHAKE_RECORD and self._engine is None:
            self.refuse("it does not speak TLS, which this listener wants")
        elif whole is None or self._handshake_bytes > HANDSHAKE_BYTES_MAX:
            self.refuse("its handshake is too large")
        elif whole and not self._is_paused:
            self._want_step()
        else:
            self._pace_wire()

    def _want_step(self) -> None:
        self._is_in_step = True
        self._pace_wire()
        self._handshakes.want_step(self)

    def work(self) -> Callable[[], Stepped]:
        """Return the next step, for another thread."""
        whole = _whole_records(self._kept) or 0
        data, self._kept = self._kept[:whole], self._kept[whole:]
        return partial(take_step, self._engine, self._open_engine, data)

    def stepped(self, result: Stepped) -> None:
        """Go on after a step."""
        self._is_in_step = False
        self._engine = result.engine
        if self.is_closing:
            return
        if result.answer:
            self.wire.write(result.answer)
        if result.why:
            self.refuse(result.why)
        elif result.is_complete:
            self._handshakes.end(self)
            self._is_open = True
            self.sealing.open(result.engine)
            self._go_on()
        else:
            self._pace_wire()

    def refuse(self, why: str) -> None:
        """Close the connection because of its client's TLS."""
        if self.is_closing:
            return
        self._handshakes.note(self.host, why)
        self.is_closing = True
        self.sealing.end()
        self._handshakes.end(self)
        self.wire.close()

    # From the wire.

    def _decrypt(self, received: memoryview) -> None:
        """Give the connection what is in ``received``; what it does not take now is kept."""
        source = memoryview(b"".join((self._kept, received))) if self._kept else received
        self._kept = b""
        try:
            fed = self._deliver(source)
        except TlsBroken as broken:
            self._refuse_broken(broken)
            return
        if fed < len(source) and not self.is_closing and not self._has_ended:
            self._kept = bytes(source[fed:])
        if answer := self._engine.take() if self._engine is not None else b"":
            self.wire.write(answer)  # An alert, or what a new key is answered with.
        self._pace_wire()

    def _deliver(self, source: memoryview) -> int:
        """Decrypt into the connection's buffer until it pauses; return how much was fed."""
        engine, connection = self._engine, self._connection
        assert engine is not None, "the handshake is complete"
        fed = 0
        while not self._is_paused and not self.is_closing:
            buffer = connection.get_buffer(-1)
            filled, fed, how = _fill(engine, buffer, source, fed)
            if filled:
                self._waste_bytes = max(self._waste_bytes - WASTE_RATIO * filled, 0)
                connection.buffer_updated(filled)
            if how is not None:
                raise how
            if engine.has_ended:
                self._end_of_stream()
            if filled < len(buffer):
                break
        return fed

    def _end_of_stream(self) -> None:
        """Tell the connection once that the client sends nothing more."""
        if self._has_ended or self.is_closing:
            return
        self._has_ended = True
        if not self._connection.eof_received():
            self.close()

    def _refuse_broken(self, broken: TlsBroken) -> None:
        if self._engine is not None and not self.wire.is_closing():
            self.wire.write(self._engine.take())  # The alert.
        self.refuse(f"its TLS is broken: {broken}")

    def pause_reading(self) -> None:
        """Deliver nothing until ``resume_reading``."""
        self._is_paused = True
        self._pace_wire()

    def resume_reading(self) -> None:
        """Deliver what was kept in a later turn, then read on."""
        self._is_paused = False
        if not self._is_open:
            if not (self._is_in_step or self.is_closing) and _whole_records(self._kept):
                self._want_step()
            else:
                self._pace_wire()
        elif not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._go_on_due)

    @property
    def is_reading(self) -> bool:
        """Whether bytes are delivered."""
        return not self._is_paused and not self.is_closing

    def _go_on_due(self) -> None:
        self._is_due = False
        self._go_on()

    def _go_on(self) -> None:
        if not self._is_paused and not self.is_closing and not self._has_ended:
            self._decrypt(memoryview(b""))

    def _pace_wire(self) -> None:
        """Read from the wire while somebody takes it."""
        if self.wire.is_closing():
            return
        must_pause = (
            self._is_in_step
            or self._has_ended
            or self._is_paused
            or (self._is_open and bool(self._kept))
        )
        if must_pause != self._is_wire_paused:
            self._is_wire_paused = must_pause
            if must_pause:
                self.wire.pause_reading()
            else:
                self.wire.resume_reading()

    # The end.

    def close(self) -> None:
        """Close when everything is sent, with a close_notify."""
        if self.is_closing:
            return
        self.is_closing = True
        self._handshakes.end(self)
        if not self._is_open:
            self.wire.close()
        elif not self.sealing.is_waiting:
            self._say_goodbye()
        elif not self._is_wire_paused and not self.wire.is_closing():
            self._is_wire_paused = True
            self.wire.pause_reading()

    def _all_is_sent(self) -> None:
        if self.is_closing and not self.wire.is_closing():
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        if self._engine is not None and not self.wire.is_closing():
            self._engine.end()
            self.wire.write(self._engine.take())
        self.wire.close()

    def abort(self) -> None:
        """Cut the connection off."""
        self.is_closing = True
        self._handshakes.end(self)
        self.wire.abort()

    @property
    def certificate(self) -> bytes | None:
        """The client's certificate as DER; None: it has shown none."""
        return self._engine.certificate if self._is_open and self._engine is not None else None


def _fill(
    engine: Engine, buffer: memoryview, source: memoryview, fed: int
) -> tuple[int, int, TlsBroken | None]:
    """Fill ``buffer``, feeding from ``source`` where ``fed`` says.

    Returns how much was filled, how much is fed now, and what is wrong with the bytes behind that.
    """
    filled, room = 0, len(buffer)
    while filled < room:
        try:
            count = engine.read_into(buffer[filled:])
        except TlsBroken as broken:
            return filled, fed, broken
        if count:
            filled += count
        elif engine.has_ended or fed == len(source):
            break
        else:
            fed += engine.feed(source[fed : fed + PIECE_BYTES])
    return filled, fed, None


def _whole_records(data: bytes) -> int | None:
    """Return how many bytes at the start of ``data`` are whole records; None: one is too large."""
    position = 0
    while position + _RECORD_HEADER_BYTES <= len(data):
        length = int.from_bytes(data[position + 3 : position + 5], "big")
        if length > _RECORD_BYTES_MAX:
            return None
        if position + _RECORD_HEADER_BYTES + length > len(data):
            break
        position += _RECORD_HEADER_BYTES + length
    return position
