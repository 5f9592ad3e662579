"""An HTTP answer whose lines before and between its body are bounded, all of them together.

``http.client`` bounds each line of a header and their number, which makes 6 MiB an answer, and any
number of answers before the real one (100 Continue). For ``ottla.env.web``, which imports it with
``http.client``, when it asks.
"""

import io
from http.client import HTTPException, HTTPResponse
from socket import socket

LINES_BYTES_MAX = 64 * 1024
"""Of status lines, headers and the lengths of chunks. Honest ones have some thousand."""


class LinesTooLong(HTTPException):
    """The answer says more than ``LINES_BYTES_MAX`` before it comes to its end."""


class _Reader(io.BufferedReader):
    """Reads an answer; counts its lines, not its body."""

    _left = LINES_BYTES_MAX

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        self._left -= len(line)
        if self._left < 0:
            raise LinesTooLong
        return line


class BoundedAnswer(HTTPResponse):
    """What ``HTTPConnection.response_class`` may be. Raises LinesTooLong when it is read."""

    def __init__(
        self,
        connected: socket,
        debuglevel: int = 0,
        method: str | None = None,
        url: str | None = None,
    ) -> None:
        super().__init__(connected, debuglevel, method, url)
        self.fp = _Reader(self.fp.detach())
