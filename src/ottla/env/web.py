"""One request over HTTP or HTTPS, or one file, by its URL: blocking, and bounded in time and size.

For what an identity provider publishes (keys, and tokens for a secret), and for schema registries.
Owns the use of ``http.client``, which is imported where it is needed. Follows no redirection, uses
no proxy. No error's text contains what was sent or received.
"""

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from ottla.env.tls import TlsFiles, client_context, why_refused

if TYPE_CHECKING:
    import socket
    from http.client import HTTPResponse

PIECE_BYTES = 65_536
OK = 200


class WebFailed(OSError):
    """There is no good answer; the text says why, and names the host, nothing secret.

    ``status``: the answer's, when there was one; else 0. ``body``: the first bytes of an answer
    that was not good.
    """

    def __init__(self, why: str, *, status: int = 0, body: bytes = b"") -> None:
        super().__init__(why)
        self.status = status
        self.body = body


def fetch(
    url: str,
    *,
    seconds: float,
    bytes_max: int,
    tls: TlsFiles | None = None,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    method: str | None = None,
) -> bytes:
    """Return what is at ``url`` (http, https, file). ``body``: post it. Raises WebFailed.

    ``seconds`` bounds all of it, but for the look-up of the host's name; ``bytes_max`` the answer.
    ``tls`` None: what the system trusts. ``method`` None: POST with a body, else GET.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return _read_file(unquote(parts.path), bytes_max)
    where = parts.hostname or ""
    try:
        said = (method or ("GET" if body is None else "POST"), body, dict(headers or {}))
        return _ask(parts, seconds, bytes_max, tls or TlsFiles(), said)
    except WebFailed:
        raise
    except TimeoutError:
        raise WebFailed(f"{where}: no answer within {seconds:g} s") from None
    except OSError as error:
        why = why_refused(error) or error.strerror or str(error)
        why = why.replace("the broker's", "its").replace("the broker", "it")
        raise WebFailed(f"{where}: {why}") from None


def _read_file(path: str, bytes_max: int) -> bytes:
    try:
        with open(path, "rb") as file:
            found = file.read(bytes_max + 1)
    except OSError as error:
        raise WebFailed(f"{path}: {error.strerror}") from None
    if len(found) > bytes_max:
        raise WebFailed(f"{path}: more than {bytes_max} bytes")
    return found


def _ask(
    parts: SplitResult,
    seconds: float,
    bytes_max: int,
    tls: TlsFiles,
    said: tuple[str, bytes | None, dict[str, str]],
) -> bytes:
    import http.client  # noqa: PLC0415 - see above
    import socket  # noqa: PLC0415 - see above

    from ottla.env.bounded_answer import BoundedAnswer  # noqa: PLC0415 - see above

    method, body, headers = said
    is_secure = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if is_secure else 80)
    ends = time.monotonic() + seconds
    connected = socket.create_connection((host, port), seconds)
    held = [connected]  # The socket at the end of it, which TLS replaces.
    cut = threading.Timer(max(ends - time.monotonic(), 0), _cut_off, (held,))
    cut.daemon = True
    cut.start()
    try:
        if is_secure:
            shaking = client_context(tls).wrap_socket(
                connected, server_hostname=host, do_handshake_on_connect=False
            )
            held[0] = connected = shaking
            shaking.do_handshake()
        connection = http.client.HTTPConnection(host, port, timeout=seconds)
        connection.response_class = BoundedAnswer
        connection.sock = connected
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host_named = parts.netloc.rpartition("@")[2]
        headers |= {"Host": host_named, "Accept": "application/json", "Connection": "close"}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        found = answer.read(bytes_max + 1)
    except http.client.HTTPException as error:
        _raise_if_late(ends, host, seconds)
        raise WebFailed(f"{host}: no HTTP answer ({type(error).__name__})") from None
    except OSError:
        _raise_if_late(ends, host, seconds)
        raise
    finally:
        cut.cancel()
        connected.close()
    _raise_if_late(ends, host, seconds)
    _check(answer, found, host, bytes_max)
    return found


def _check(answer: "HTTPResponse", found: bytes, host: str, bytes_max: int) -> None:
    """Raise WebFailed unless ``found`` is all of a good answer."""
    if answer.length and len(found) <= bytes_max:
        raise WebFailed(f"{host}: the answer breaks off")
    if answer.status != OK:
        raise WebFailed(f"{host} answers {answer.status}", status=answer.status, body=found[:4096])
    if len(found) > bytes_max:
        raise WebFailed(f"{host}: more than {bytes_max} bytes")


def _cut_off(held: "list[socket.socket]") -> None:
    """End a request whose time is over, whatever it waits for."""
    import contextlib  # noqa: PLC0415 - see above
    import socket  # noqa: PLC0415 - see above

    with contextlib.suppress(OSError):
        socket.socket.shutdown(held[0], socket.SHUT_RDWR)  # TLS's own method is for its thread.


def _raise_if_late(ends: float, host: str, seconds: float) -> None:
    if time.monotonic() >= ends:
        raise WebFailed(f"{host}: no answer within {seconds:g} s") from None
