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
BURST_BYTES = 64 * 1024
"""How much is encrypted before the socket gets it, in one call."""
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
        """Invariant: while it is not empty the socket is full, or a turn is asked for."""
        self._waiting_bytes = 0  # Invariant: the sum of the lengths of ``_waiting``.
        self._is_wire_full = False
        self._is_shut = False
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
        engine = self._engine
        if engine is None or self._is_shut or not data:
            return
        has_to_wait = self._waiting or self._is_wire_full
        if has_to_wait or len(data) > PIECE_BYTES:
            self._waiting.append(memoryview(data))
            self._waiting_bytes += len(data)
            if not has_to_wait:
                self._go_on()
            return
        try:
            self._wire.write(engine.seal(data))
        except TlsBroken as broken:
            self._told.broken(broken)

    def shut(self) -> None:
        """Take nothing more; what waits is still sent."""
        self._is_shut = True

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
        left = TURN_BYTES
        try:
            while waiting and left > 0 and not self._is_wire_full:
                left -= self._send_burst(engine, waiting)
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

    def _send_burst(self, engine: Engine, waiting: deque[memoryview]) -> int:
        """Encrypt some records and write them; return how many bytes they hold."""
        sealed: list[bytes] = []
        left = BURST_BYTES
        while waiting and left > 0:
            data = waiting[0]
            if len(data) > left:
                waiting[0], data = data[left:], data[:left]
            else:
                waiting.popleft()
            left -= len(data)
            sealed += [
                engine.seal(data[at : at + PIECE_BYTES]) for at in range(0, len(data), PIECE_BYTES)
            ]
        sent = BURST_BYTES - left
        self._waiting_bytes -= sent
        self._wire.writelines(sealed)
        return sent

    def _tell_room(self) -> None:
        is_full = self._is_wire_full or self._waiting_bytes > 0
        if is_full != self._is_told_full:
            self._is_told_full = is_full
            if is_full:
                self._writer.pause_writing()
            else:
                self._writer.resume_writing()
