"""Cuts a byte stream into frames: ``frame := length: int32, bytes[length]``.

Owns a connection's receive buffer, and knows where frames start and end in it. Does no I/O and does
not look inside a frame. Between requests a connection owns no memory: bytes are received into one
scratch buffer that all connections of the loop share, and only a partial frame is kept. The
declared length is never allocated: the buffer doubles as bytes arrive, within the budget that all
connections share (reliability rows 1 and 2). A frame that is needed for longer than the call it is
passed to takes its buffer along (``keep``).
"""

import struct

from ottla.errors import MalformedMessage
from ottla.request_memory import LetGo, RequestMemory

SCRATCH_BYTES = 256 * 1024
SCARCE_READ_BYTES = 4096
"""The most that one read receives while the budget is scarce, so that leftovers stay small."""
LENGTH_BYTES = 4
HEADER_BYTES_MIN = 8
"""The shortest request header: API key, version, correlation id. A shorter frame is no request."""

_LENGTH = struct.Struct(">i")


STRANGERS_SHARE = 16
"""Clients that are not let in yet have one part of so many of the memory, and no more."""


_TLS_RECORDS = range(0x160300, 0x160305)
"""The first three bytes of a TLS handshake: its kind, and the version of its records."""


class SpeaksTls(MalformedMessage):
    """The peer begins a TLS handshake where none is expected."""


class ReceiveBudget(RequestMemory):
    """The receive memory of all connections together, and the scratch buffer they share."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.strangers = RequestMemory(limit_bytes // STRANGERS_SHARE)
        """Use: the memory, besides the other, of all connections whose clients are not let in."""


class FrameReader:
    """Receives bytes by ``writable``/``received`` and yields frames by ``next_frame``.

    The views that ``next_frame`` returns are valid until the next call of ``writable``.
    """

    __slots__ = ("_all", "_bounds", "_budget", "_buffer", "_end", "_is_owned", "_start", "_usual")

    def __init__(self, budget: ReceiveBudget, frame_bytes_max: int) -> None:
        self._all = budget
        self._budget: RequestMemory = budget
        """Use: counts what this connection takes. Invariant: ``_all``, or that of the strangers."""
        self._usual = self._bounds = (HEADER_BYTES_MIN, frame_bytes_max)
        """The bytes of the shortest and of the longest frame that is taken, both included."""
        self._buffer = budget.scratch
        self._is_owned = False
        self._start = 0  # Use: first byte not yet handed out. Invariant: 0 <= _start <= _end.
        self._end = 0  # Use: end of the received bytes. Invariant: _end <= len(_buffer).

    def confine(self, frame_bytes_min: int, frame_bytes_max: int) -> None:
        """Take frames of these sizes only, and memory only of what strangers share."""
        self._bounds = (frame_bytes_min, frame_bytes_max)
        self._count_in(self._all.strangers)

    def let_in(self) -> None:
        """Take frames and memory as usual."""
        self._bounds = self._usual
        self._count_in(self._all)

    def _count_in(self, budget: RequestMemory) -> None:
        if self._is_owned:
            size_bytes = len(self._buffer)
            budget.hold(size_bytes)
            self._budget.give_back(size_bytes)
        self._budget = budget

    @property
    def held_bytes(self) -> int:
        """Bytes received but not yet handed out as a frame."""
        return self._end - self._start

    def writable(self) -> memoryview | None:
        """Return where to receive the next bytes; never empty.

        None: the shared budget is used up. The caller must stop reading and try again later.
        """
        if self._end == len(self._buffer):
            if self._start and self._is_owned:
                self._move_to_front()
            elif not self._grow():
                return None
        elif not self._is_owned and self._end < SCARCE_READ_BYTES and self._budget.is_scarce:
            return self._buffer[self._end : SCARCE_READ_BYTES]
        return self._buffer[self._end :]

    def received(self, count: int) -> None:
        """Note that ``count`` bytes were written into the last ``writable`` view."""
        self._end += count

    def next_frame(self) -> memoryview | None:
        """Return the next complete frame without its length; None when more bytes are needed.

        Raises MalformedMessage as soon as the four length bytes announce an impossible size.
        """
        available = self._end - self._start
        if available < LENGTH_BYTES:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, self._start)
        lowest, highest = self._bounds
        if not lowest <= length <= highest:
            if length >> 8 in _TLS_RECORDS:
                raise SpeaksTls("it speaks TLS, and this listener does not")
            raise MalformedMessage(f"frame of {length} bytes; allowed are {lowest} to {highest}")
        if available < LENGTH_BYTES + length:
            return None
        begin = self._start + LENGTH_BYTES
        self._start = begin + length
        return self._buffer[begin : self._start]

    def keep(self, frame: memoryview) -> tuple[memoryview, LetGo]:
        """Make the frame returned last outlive its call.

        Returns its bytes, and a function that gives their memory back; until then they count in the
        budget. A large frame takes the buffer along, and the connection continues with another
        one. A small frame, and one in the scratch buffer, is copied.
        """
        buffer = self._buffer
        if not self._is_owned or len(frame) * 2 < len(buffer):
            return memoryview(bytearray(frame)), self._budget.hold(len(frame))
        held = self._end - self._start
        rest = buffer[self._start : self._end]
        self._buffer, self._is_owned = self._all.scratch, False
        if held > len(self._buffer):
            self._budget.hold(held)
            self._buffer, self._is_owned = memoryview(bytearray(held)), True
        self._buffer[:held] = rest
        self._start, self._end = 0, held
        return frame, self._budget.letting_go(len(buffer))

    @property
    def has_frame(self) -> bool:
        """Whether ``next_frame`` would return a frame, or refuse one, without more bytes."""
        available = self._end - self._start
        if available < LENGTH_BYTES:
            return False
        (length,) = _LENGTH.unpack_from(self._buffer, self._start)
        is_possible = self._bounds[0] <= length <= self._bounds[1]
        return not is_possible or available >= LENGTH_BYTES + length

    def peek_key(self) -> int | None:
        """Return the API key (first int16) of the next frame; None while that is incomplete."""
        available = self._end - self._start
        if available < LENGTH_BYTES + HEADER_BYTES_MIN:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, self._start)
        if HEADER_BYTES_MIN <= length <= available - LENGTH_BYTES:
            high, low = self._buffer[self._start + 4], self._buffer[self._start + 5]
            return high << 8 | low
        return None

    def settle(self) -> int:
        """Move a partial frame out of the scratch buffer, which serves another connection next.

        Call it at the end of each round. Returns how many bytes are left over. They are kept even
        when the budget is used up: they are already in memory, and fewer than ``SCRATCH_BYTES``.
        """
        held = self._end - self._start
        if held == 0:
            self._start = self._end = 0
            if self._is_owned and self._budget.is_scarce:
                self.release()
        elif not self._is_owned:
            size = max(held * 2, SCARCE_READ_BYTES)
            if not self._budget.take(size):
                size = max(held, SCARCE_READ_BYTES)
                self._budget.hold(size)
            self._own(size)
        elif self._start >= held:  # Else moving would cost more than the frames served so far.
            self._move_to_front()
        return held

    def release(self) -> None:
        """Give up the connection's own buffer and the bytes in it."""
        if self._is_owned:
            self._budget.give_back(len(self._buffer))
            self._buffer = self._all.scratch
            self._is_owned = False
        self._start = self._end = 0

    def _move_to_front(self) -> None:
        held = self._end - self._start
        self._buffer[:held] = self._buffer[self._start : self._end]
        self._start, self._end = 0, held

    def _own(self, size_bytes: int) -> None:
        """Move the held bytes into a new buffer of this size, which is already reserved."""
        held = self._end - self._start
        buffer = memoryview(bytearray(size_bytes))
        buffer[:held] = self._buffer[self._start : self._end]
        if self._is_owned:
            self._budget.give_back(len(self._buffer))
        self._buffer, self._is_owned = buffer, True
        self._start, self._end = 0, held

    def _grow(self) -> bool:
        frame_end = self._bounds[1] + LENGTH_BYTES
        size = min(len(self._buffer) * 2, max(frame_end, self.held_bytes + 1))
        if not self._budget.take(size):
            return False
        self._own(size)
        return True
