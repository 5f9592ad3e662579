"""A plain blocking TCP stream, for code that runs in other people's processes (Spark's workers).

Owns the socket and its time limits. The loop's connections are in ``net``; nothing of
the broker uses this. Imports no asyncio, since a short-lived worker would pay for it at each start.
"""

import errno
import os
import select
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from ottla.env.socket_options import set_options
from ottla.env.tls import TlsFiles, client_context

GATHERED_MAX = 64
"""Pieces that go by one call; the system's limit is about 1,000. TLS takes them one by one."""


class BlockingStream:
    """One connection. Not for use from two threads at once."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._poll: select.poll | None = None

    @classmethod
    def connect(
        cls, host: str, port: int, *, timeout_seconds: float, tls: TlsFiles | None = None
    ) -> "BlockingStream":
        """Connect to the first address of ``host`` that answers, and shake hands with ``tls``.

        Raises OSError, which ``tls.why_refused`` explains when it is of TLS.
        """
        context = None if tls is None else client_context(tls)
        connected = socket.create_connection((host, port), timeout_seconds)
        if connected.getsockname() == connected.getpeername():
            # A free port in the ephemeral range can be connected to itself.
            connected.close()
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        set_options(connected)
        if context is not None:
            try:
                connected = context.wrap_socket(connected, server_hostname=host)
            except OSError:
                connected.close()
                raise
        return cls(connected)

    def set_timeout(self, timeout_seconds: float) -> None:
        """Let each further wait for the peer end after this long, with TimeoutError."""
        self._socket.settimeout(timeout_seconds)

    def send(self, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """Send all of the pieces, in order. Raises OSError."""
        sent = 0
        if 1 < len(pieces) <= GATHERED_MAX and not hasattr(self._socket, "pending"):
            sent = self._socket.sendmsg(pieces)  # small pieces one by one would wake the peer often
        for piece in pieces:
            if sent >= len(piece):
                sent -= len(piece)
            else:
                self._socket.sendall(memoryview(piece)[sent:])
                sent = 0

    def is_readable(self) -> bool:
        """Tell without waiting whether there is something to receive, if only the peer's end."""
        decrypted = getattr(self._socket, "pending", None)  # of TLS; ssl is slow to import
        if decrypted is not None and decrypted():
            return True
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
        return bool(self._poll.poll(0))

    def receive_into(self, buffer: memoryview) -> None:
        """Fill all of ``buffer``. Raises OSError; ConnectionResetError when the peer ends first."""
        position = 0
        while position < len(buffer):
            count = self._socket.recv_into(buffer[position:])
            if count == 0:
                raise ConnectionResetError(errno.ECONNRESET, "the peer closed the connection")
            position += count

    def close(self) -> None:
        """Close. Harmless when closed already."""
        self._socket.close()


class BlockingClock:
    """Time for code that may block: the pauses between its retries."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start. Never goes back."""
        return time.monotonic()

    def wall(self) -> float:
        """Return seconds since 1970-01-01 UTC. May jump in both directions."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Block for ``seconds``."""
        time.sleep(seconds)


def new_lock() -> AbstractContextManager[bool]:
    """Return a lock for what threads of other people's processes share."""
    return threading.Lock()
