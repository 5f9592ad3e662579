"""A small HTTP server on this machine, for doubles of services in tests. Not for anything else.

Owns the use of ``http.server``, which is imported where it is needed: a thread for each connection,
each of which ends with the server. Bodies are bounded; nothing is logged. Web pages are refused: a
browser says where a request comes from, and by which name it knows this machine.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

BODY_BYTES_MAX = 16 << 20
IDLE_SECONDS = 30.0


class WebRequest(NamedTuple):
    """What was asked. ``path``: its parts, decoded; ``query``: each name's last value."""

    method: str
    path: tuple[str, ...]
    query: dict[str, str]
    body: bytes


Answer = Callable[[WebRequest], tuple[int, bytes]]


class WebServer:
    """Serves ``answer``, which returns a status and JSON, from ``start`` to ``stop``."""

    def __init__(self, answer: Answer) -> None:
        """``answer`` is called from several threads."""
        self._answer = answer
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Start on 127.0.0.1; return the port, which the system gives."""
        from http.server import ThreadingHTTPServer  # noqa: PLC0415 - see above

        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self._answer))
        self._server = server
        self._thread = threading.Thread(
            target=lambda: server.serve_forever(0.02), name="ottla-web-server", daemon=True
        )
        self._thread.start()
        return int(server.server_address[1])

    def stop(self) -> None:
        """Take no more questions. Harmless when stopped."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def _handler_of(answer: Answer) -> type:
    from http.server import BaseHTTPRequestHandler  # noqa: PLC0415 - see above

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = IDLE_SECONDS

        def serve(self) -> None:
            host = (self.headers.get("Host") or "").rpartition(":")[0]
            if "Origin" in self.headers or host not in ("127.0.0.1", "localhost"):
                self.close_connection = True
                self.send_error(403)
                return
            length = self.headers.get("Content-Length") or "0"
            if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
                self.close_connection = True
                self.send_error(413)
                return
            parts = urlsplit(self.path)
            path = tuple(unquote(each) for each in parts.path.split("/") if each)
            body = self.rfile.read(int(length))
            query = dict(parse_qsl(parts.query))
            status, said = answer(WebRequest(self.command, path, query, body))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = do_DELETE = serve  # noqa: N815 - http.server's names

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler
