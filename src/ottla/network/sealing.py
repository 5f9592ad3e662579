"""Encrypts what a connection writes, and sends it: the half of TLS towards the wire.

Owns what is not encrypted yet. Nothing is encrypted ahead of what the socket takes, and a large
answer takes several turns of the loop. Stands between ``Connection`` and the socket, see
``network.tls``.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.env.server_tls import Engine, TlsBroken

PIECE_BYTES = 16 * 1024
"""What is encrypted at a time: a record's contents. More would stay allocated."""
WIRE_BYTES = 256 * 1024
"""While the socket has not taken this much, nothing more is encrypted."""
TURN_BYTES = 256 * 1024
"""How much is encrypted in one turn of the loop: less than 1 ms."""


class Writer(Protocol):
    """Who writes: hears when it should stop, and when it may go on."""

    def pause_writing(self) -> None:
        """Write no more: what was written waits."""

    def resume_writing(self) -> None:
        """Go on: nothing waits."""


class Told(NamedTuple):
    """Who hears how the sending goes."""

    sent: Callable[[], None]
    """All that was written is with the socket."""
    broken: Callable[[TlsBroken], None]


class Sealing:
    """What one connection writes."""

    def __init__(self, wire: asyncio.Transport, writer: Writer, told: Told) -> None:
        self._wire = wire
        self._writer = writer
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._engine: Engine | None = None
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0  # Invariant: the sum of the lengths of ``_waiting``.
        self._is_wire_full = False
        self._is_told_full = False
        self._is_due = False  # ``_go_on_due`` was asked for.

    def open(self, engine: Engine) -> None:
        """Encrypt by ``engine`` from now on; before, writing does nothing."""
        self._engine = engine

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the socket has not taken, encrypted or not."""
        return self._waiting_bytes + self._wire.get_write_buffer_size()

    @property
    def is_waiting(self) -> bool:
        """Whether something is not encrypted yet."""
        return bool(self._waiting)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send; what the socket does not take now waits. It must not change."""
        if self._engine is not None and data:
            self._waiting.append(memoryview(data))
            self._waiting_bytes += len(data)
            self._go_on()

    def wire_is_full(self) -> None:
        """Note that the socket takes no more."""
        self._is_wire_full = True
        self._tell_room()

    def wire_has_room(self) -> None:
        """Go on."""
        self._is_wire_full = False
        self._go_on()

    def end(self) -> None:
        """Drop everything, and tell nothing any more."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self._engine = None

    def _go_on(self) -> None:
        """Encrypt what the socket takes, a turn's worth at most."""
        engine, waiting = self._engine, self._waiting
        if engine is None:
            return
        left = 0 if self._is_wire_full else TURN_BYTES
        try:
            while waiting and left > 0 and self._wire.get_write_buffer_size() <= WIRE_BYTES:
                left -= self._send_piece(engine, waiting)
        except TlsBroken as broken:
            self._told.broken(broken)
            return
        if not waiting:
            self._told.sent()
        else:
            self._go_on_soon()
        self._tell_room()

    def _go_on_soon(self) -> None:
        """Go on in the next turn: the socket may have taken all by then, and does not tell."""
        if not self._is_wire_full and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._go_on_due)

    def _go_on_due(self) -> None:
        self._is_due = False
        self._go_on()

    def _send_piece(self, engine: Engine, waiting: deque[memoryview]) -> int:
        piece = waiting[0]
        if len(piece) > PIECE_BYTES:
            waiting[0], piece = piece[PIECE_BYTES:], piece[:PIECE_BYTES]
        else:
            waiting.popleft()
        self._waiting_bytes -= len(piece)
        engine.write(piece)
        self._wire.write(engine.take())
        return len(piece)

    def _tell_room(self) -> None:
        is_full = self._is_wire_full or self._waiting_bytes > 0
        if is_full != self._is_told_full:
            self._is_told_full = is_full
            if is_full:
                self._writer.pause_writing()
            else:
                self._writer.resume_writing()
