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
from ottla.network.handshakes import WIRE_READ_BYTES, Handshakes, Stepped, take_step
from ottla.network.sealing import WIRE_BYTES, Sealing, Told
from ottla.network.unsealing import HEADER_BYTES, RECORD_BYTES_MAX, Unsealing

READ_BYTES_MIN = 16 * 1024
"""How much of the wire is received at least, if the connection has room for less: a record. So much
may be kept when it pauses."""
HANDSHAKE_BYTES_MAX = 128 * 1024
"""A client that sends more before the handshake is complete is refused."""
WASTE_BYTES_MAX = 512 * 1024
"""The most bytes of records that carry (nearly) nothing, such as key updates."""
WASTE_RATIO = 16
"""Each byte for the connection makes up for so many bytes of the wire."""
_HANDSHAKE_RECORD = 0x16
_NOTHING = memoryview(b"")


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
        self.write = layer.sealing.write  # type: ignore[method-assign] # Without a hop.

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - asyncio's
        """Return what the wire knows; ``certificate`` is the client's, as DER, or None."""
        if name == "certificate":
            return self._layer.certificate
        if name == "sslcontext":
            return True  # So nobody sends files past the encryption.
        return self._layer.wire.get_extra_info(name, default)

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
        self._scratch = handshakes.scratch
        self._open_engine = open_engine
        self.host = ""
        """Use: the client's address; "" before the connection is made."""
        self.wire: asyncio.Transport
        self.sealing: Sealing
        """Use: takes what the connection writes."""
        self._loop: asyncio.AbstractEventLoop
        self._engine: Engine | None = None
        self._kept = b""
        """Use: bytes of the wire for the next step of the handshake."""
        self._unsealing: Unsealing | None = None
        """Use: takes what the wire brings. None: the handshake is not complete."""
        self.certificate: bytes | None = None
        """Use: the client's as DER; None: it has shown none. Kept, because an engine whose stream
        has broken behind the first frame tells it no more."""
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
        """Return where to receive: what the connection has room for, so that little is kept."""
        if self._unsealing is None or self._is_paused:
            return self._scratch[:READ_BYTES_MIN]
        size = len(self._connection.get_buffer(sizehint))
        if size >= WIRE_READ_BYTES:
            return self._scratch
        return self._scratch[: max(size, READ_BYTES_MIN)]

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes of the wire."""
        received = self._scratch[:nbytes]
        unsealing = self._unsealing
        if self.is_closing or self._has_ended:
            return
        if unsealing is None:
            self._take_for_handshake(received)
            return
        if self._is_paused:
            unsealing.take(received)
            unsealing.keep()
            return
        connection = self._connection
        # Asked again: a view that is held here would outlive a buffer that the connection gives up.
        filled = unsealing.fill(connection.get_buffer(-1), received)
        if filled:
            connection.buffer_updated(filled)
        if not unsealing.is_settled:
            filled += self._settle(unsealing)
        if self._waste_bytes or filled * WASTE_RATIO < nbytes:
            self._note_waste(nbytes, filled)

    def eof_received(self) -> bool:
        """Tell the connection; True keeps the wire open, which ``close`` then closes."""
        if self._unsealing is None:
            return False
        self._end_of_stream()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget everything."""
        self.is_closing = True
        self._handshakes.end(self)
        self.sealing.end()
        self._kept = b""
        self._unsealing = None
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
            self.sealing.open(result.engine)
            self._unsealing = Unsealing(result.engine)
            self.certificate = result.engine.certificate
            self._unsealing.take(memoryview(self._kept))
            self._kept = b""
            self._settle(self._unsealing)
            self._pace_wire()
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

    def _settle(self, unsealing: Unsealing) -> int:
        """Give the connection the rest, until it pauses, and do what the records ask for.

        Returns how many bytes that was. What the connection does not take now is kept.
        """
        connection = self._connection
        delivered = 0
        while not (self._is_paused or self.is_closing):
            buffer = connection.get_buffer(-1)
            filled = unsealing.fill(buffer)
            if filled:
                delivered += filled
                connection.buffer_updated(filled)
            if filled < len(buffer):
                break
        unsealing.keep()
        engine = self._engine
        if unsealing.broken is not None:
            self._refuse_broken(unsealing.broken)
        elif engine is not None:
            if engine.has_ended:
                self._end_of_stream()
                self._pace_wire()
            if answer := engine.take():
                self.wire.write(answer)  # An alert, or what a new key is answered with.
        return delivered

    def _note_waste(self, nbytes: int, delivered: int) -> None:
        """Count bytes of the wire that carry nothing, and refuse who sends many."""
        self._waste_bytes = max(self._waste_bytes + nbytes - WASTE_RATIO * delivered, 0)
        if self._waste_bytes > WASTE_BYTES_MAX:
            self.refuse("it sends records without contents")

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
        if self._unsealing is None:
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
        unsealing = self._unsealing
        if unsealing is None or self.is_closing or self._has_ended:
            return
        if not self._is_paused:
            unsealing.take(_NOTHING)
            self._settle(unsealing)
        self._pace_wire()

    def _pace_wire(self) -> None:
        """Read from the wire while somebody takes it."""
        if self.wire.is_closing():
            return
        must_pause = self._is_in_step or self._has_ended or self._is_paused or self._is_due
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
        self.sealing.shut()
        self._handshakes.end(self)
        if self._unsealing is None:
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
        self.sealing.shut()
        self._handshakes.end(self)
        self.wire.abort()


def _whole_records(data: bytes) -> int | None:
    """Return how many bytes at the start of ``data`` are whole records; None: one is too large."""
    position = 0
    while position + HEADER_BYTES <= len(data):
        length = HEADER_BYTES + int.from_bytes(data[position + 3 : position + 5], "big")
        if length > RECORD_BYTES_MAX:
            return None
        if position + length > len(data):
            break
        position += length
    return position
