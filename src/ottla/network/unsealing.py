"""Decrypts what comes from the wire: the half of TLS towards a connection.

Owns the bytes of the wire that are not decrypted yet. The library gets one whole record after the
other: then each call of it yields contents, where a call too many is an exception of some us, and
its buffer never holds more than a record. Stands between the socket and ``Connection``, see
``network.tls``.

    record := kind: uint8, version: uint16, length: uint16, bytes[length]

Source: RFC 8446, 5.1 and 5.2.
"""

from ottla.env.server_tls import Engine, TlsBroken

HEADER_BYTES = 5
RECORD_BYTES_MAX = HEADER_BYTES + 16 * 1024 + 2048
"""Header included. A longer one is refused by the library, which sees it at once."""
_NOTHING = memoryview(b"")


class Unsealing:
    """What one connection reads."""

    __slots__ = (
        "_at", "_engine", "_has_more", "_kept", "_missing_bytes", "_source", "broken", "is_settled"
    )  # fmt: skip

    def __init__(self, engine: Engine) -> None:
        """``engine`` has shaken hands, and perhaps holds whole records already."""
        self._engine = engine
        self._kept = b""  # Use: bytes that are not fed, since the last ``keep``.
        self._source = _NOTHING
        self._at = 0  # Use: how much of ``_source`` is fed.
        self._missing_bytes = 0
        """Use: how much of the record that is being fed is still to come; 0: none is begun."""
        self._has_more = True  # Use: the engine may have contents without being fed.
        self.broken: TlsBroken | None = None
        """Use: what is wrong with the bytes behind those that were given out."""
        self.is_settled = False
        """Use: after ``fill`` there was nothing but contents, and all of it is given out. Else
        there may be an answer for the wire, an end, a break, or bytes to ``keep``."""

    def fill(self, buffer: memoryview, received: memoryview | None = None) -> int:
        """Decrypt into ``buffer``; return how many bytes were put there.

        ``received`` came from the wire, and must stay until it is used up or kept; None: go on with
        what was received before. Fewer bytes than ``buffer`` has room for: there is no more now,
        the stream has ended, or it is ``broken``.
        """
        if received is not None:
            self.take(received)
        is_settled = not self._has_more
        filled = 0 if is_settled else self._drain(buffer)
        engine, source, at, missing = self._engine, self._source, self._at, self._missing_bytes
        room, end = len(buffer), len(source)
        try:
            while at < end and filled < room and not engine.has_ended:
                if not missing:
                    if at + HEADER_BYTES > end:
                        break
                    missing = HEADER_BYTES + (source[at + 3] << 8 | source[at + 4])
                if at + missing > end and missing <= RECORD_BYTES_MAX:
                    engine.feed(source[at:])
                    missing -= end - at
                    at = end
                    break
                engine.feed(source[at : at + missing])
                at += missing
                missing = 0
                count = engine.read_into(buffer[filled:])
                filled += count
                if not count:
                    is_settled = False
        except TlsBroken as broken:
            self.broken = broken
            is_settled = False
        self._missing_bytes = missing
        if at == end:
            self._source, self._at = _NOTHING, 0
        else:
            self._at = at
            is_settled = False
        self._has_more = filled == room
        self.is_settled = is_settled and filled < room
        return filled

    def _drain(self, buffer: memoryview) -> int:
        """Put into ``buffer`` what the engine has without being fed; return how much."""
        filled, room = 0, len(buffer)
        try:
            while filled < room and (count := self._engine.read_into(buffer[filled:])):
                filled += count
        except TlsBroken as broken:
            self.broken = broken
            self._source, self._at = _NOTHING, 0
        return filled

    def take(self, received: memoryview) -> None:
        """Take bytes of the wire behind those that were kept."""
        if self._kept:
            received = memoryview(b"".join((self._kept, received)))
            self._kept = b""
        self._source, self._at = received, 0

    def keep(self) -> None:
        """Copy what is not used up: it may change."""
        if self._at < len(self._source):
            self._kept = bytes(self._source[self._at :])
        self._source, self._at = _NOTHING, 0

    @property
    def kept_bytes(self) -> int:
        """How many bytes of the wire it keeps."""
        return len(self._kept)
