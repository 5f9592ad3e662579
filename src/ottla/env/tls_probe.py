"""Looks at what a TLS listener shows: its certificate, and whether it still speaks old versions.

Owns sockets of its own, for ``ottla doctor``. Blocks, as long as it is told at most.
"""

import socket
import warnings
from typing import TYPE_CHECKING, NamedTuple

from ottla.env.tls import TlsFiles, client_context, why_refused

if TYPE_CHECKING:
    import ssl


class TlsSeen(NamedTuple):
    """What a listener showed."""

    trouble: str
    """Why a client would not go on; "": it would."""
    ends_at: float | None = None
    """When the certificate ends, in seconds since 1970; None: it could not be read."""
    speaks_old: bool | None = None
    """Whether it speaks TLS 1.0 or 1.1; None: this machine cannot tell."""


def look(host: str, port: int, files: TlsFiles, seconds: float) -> TlsSeen:
    """Shake hands with a listener twice, the second time with old versions only.

    Raises OSError when nobody listens there.
    """
    try:
        context = client_context(files)
        with (
            socket.create_connection((host, port), timeout=seconds) as plain,
            context.wrap_socket(plain, server_hostname=host) as line,
        ):
            shown = line.getpeercert()
    except OSError as error:
        why = why_refused(error)
        if why is None:
            raise
        return TlsSeen(why)
    return TlsSeen("", _end_of(shown), _speaks_old(host, port, seconds))


def _end_of(shown: object) -> float | None:
    import ssl  # noqa: PLC0415 - see env.tls

    until = shown.get("notAfter") if isinstance(shown, dict) else None
    return ssl.cert_time_to_seconds(until) if isinstance(until, str) else None


def _speaks_old(host: str, port: int, seconds: float) -> bool | None:
    context = _old_context()
    if context is None:
        return None
    try:
        with (
            socket.create_connection((host, port), timeout=seconds) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return True
    except OSError:
        return False


def _old_context() -> "ssl.SSLContext | None":
    """Return a context of TLS 1.0 and 1.1; None when the library has neither."""
    import ssl  # noqa: PLC0415 - see env.tls

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # Nothing is sent; only the version counts.
    try:
        with warnings.catch_warnings(action="ignore"):
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
    except (ValueError, ssl.SSLError):
        return None
    return context
