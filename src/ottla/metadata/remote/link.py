"""One end of the connection between a store and its remote user: frames out of bytes.

Owns the transport, the frames' bounds and the wait for room in the transport's buffer. Knows no
kind of frame. Grammar: ``messages``. Works on every stream transport of asyncio's shape.
"""

import asyncio
import logging
from collections.abc import Callable
from struct import Struct
from typing import cast

from ottla.errors import MalformedMessage
from ottla.metadata.store import OPS_MAX, VALUE_BYTES_MAX
from ottla.protocol.schema import Message

logger = logging.getLogger(__name__)

FRAME_BYTES_MAX = (OPS_MAX + 1) * (VALUE_BYTES_MAX + 64 * 1024)
"""More than the largest commit takes, with as many guards as any part of Ottla uses."""
_HEAD = Struct(">ibi")
_LENGTH_BYTES = 4

OnFrame = Callable[[int, int, memoryview], None]
"""Takes kind, correlation and body; the body is valid only during the call. May raise
MalformedMessage: that ends the link."""


class Link(asyncio.Protocol):
    """Reads frames and hands them on; writes frames."""

    def __init__(self, on_frame: OnFrame, on_lost: Callable[[], None]) -> None:
        """``on_lost`` is called once, when the other end is gone or this one closed."""
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._room: asyncio.Event = asyncio.Event()
        self.is_open = False
        """Use: whether what is sent may arrive."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass.
        self.is_open = True
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """End: nothing arrives any more, in either direction."""
        self.is_open = False
        self._room.set()
        self._on_lost()

    def data_received(self, data: bytes) -> None:
        """Hand on the frames that are whole."""
        self._received += data
        taken = 0
        with memoryview(self._received) as received:
            while self.is_open and len(received) - taken >= _HEAD.size:
                length_bytes, kind, correlation = _HEAD.unpack_from(received, taken)
                end = taken + _LENGTH_BYTES + length_bytes
                if not _HEAD.size - _LENGTH_BYTES <= length_bytes <= FRAME_BYTES_MAX:
                    self._refuse(f"a frame of {length_bytes} bytes")
                    break
                if end > len(received):
                    break
                with received[taken + _HEAD.size : end] as body:
                    try:
                        self._on_frame(kind, correlation, body)
                    except MalformedMessage as error:
                        self._refuse(f"kind {kind}: {error}")
                        break
                taken = end
        del self._received[:taken]

    def pause_writing(self) -> None:
        """Note that the other end does not read."""
        self._room.clear()

    def resume_writing(self) -> None:
        """Let those go on who wait for room."""
        self._room.set()

    def pause_reading(self) -> None:
        """Read no more for now: the other end waits. Harmless when paused."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on. Harmless when reading."""
        if self._transport is not None and self.is_open and not self._transport.is_reading():
            self._transport.resume_reading()

    async def room(self) -> None:
        """Wait until the other end has read most of what was sent, or the link has ended."""
        await self._room.wait()

    def send(self, kind: int, correlation: int, message: Message) -> None:
        """Send a frame; without effect when the link has ended."""
        if self._transport is None or not self.is_open:
            return
        body = message.encode(0)
        head = _HEAD.pack(_HEAD.size - _LENGTH_BYTES + len(body), kind, correlation)
        self._transport.write(head + body)

    def close(self) -> None:
        """Send what was written, then end the link. Harmless when it has ended."""
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    def _refuse(self, what: str) -> None:
        logger.error(
            "the link to the metadata ends: its other end sent what no end sends: %s", what
        )
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
