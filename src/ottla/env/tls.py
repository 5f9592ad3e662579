"""TLS towards a broker: the files of a client, and the context that is made of them.

Owns every use of ``ssl``, which is imported where it is needed: it costs some milliseconds. Files
are read here, since the library takes paths. Source: Kafka's ssl.* client options.
"""

import os
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ottla.env.pem import certificates_of

if TYPE_CHECKING:
    import ssl


class TlsFiles(NamedTuple):
    """What a client trusts and shows. Texts and files are PEM; None: not given."""

    ca_file: str | None = None
    """Certificates to trust; with ``ca_text`` None too, those of the system."""
    ca_text: str | None = None
    certificate_file: str | None = None
    """This client's certificate and what it was signed by; perhaps with its key."""
    certificate_text: str | None = None
    key_file: str | None = None
    key_text: str | None = None
    key_password: str | None = None
    verify_host: bool = True
    """Whether the certificate must be for the host that was asked for."""
    verify_certificate: bool = True

    def __repr__(self) -> str:
        # Keys and passwords stay out of logs.
        return f"TlsFiles(ca_file={self.ca_file!r}, certificate_file={self.certificate_file!r})"


_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")


class TlsUnusable(OSError):
    """A file of certificates or keys cannot be read; the text says which, and why."""


@lru_cache(maxsize=8)
def client_context(files: TlsFiles) -> "ssl.SSLContext":
    """Return the context of these files (read once). TLS 1.2 at least. Raises TlsUnusable."""
    import ssl  # noqa: PLC0415 - see above

    trusts_system = files.ca_file is None and files.ca_text is None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if trusts_system:
        context.load_default_certs()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = files.verify_host and files.verify_certificate
    context.verify_mode = ssl.CERT_REQUIRED if files.verify_certificate else ssl.CERT_NONE
    if not trusts_system:
        _load("the trusted certificates", files.ca_file, lambda: _trust(context, files))
    if files.certificate_file or files.certificate_text:
        _load("the certificate or its key", files.certificate_file, lambda: _show(context, files))
    return context


def _trust(context: "ssl.SSLContext", files: TlsFiles) -> None:
    text = None if files.ca_text is None else certificates_of(files.ca_text)
    context.load_verify_locations(cafile=files.ca_file, cadata=text)


def _show(context: "ssl.SSLContext", files: TlsFiles) -> None:
    import tempfile  # noqa: PLC0415 - see above

    password = files.key_password or ""  # never asks at the terminal
    with tempfile.TemporaryDirectory() as directory:  # the library takes paths only
        chain = _path(directory, "chain.pem", files.certificate_file, files.certificate_text)
        key = _path(directory, "key.pem", files.key_file, files.key_text)
        context.load_cert_chain(chain or "", key, password)


def _path(directory: str, name: str, given: str | None, text: str | None) -> str | None:
    if text is None:
        return given
    path = os.path.join(directory, name)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _load(what: str, path: str | None, load: Callable[[], None]) -> None:
    where = f" in {path}" if path else ""
    try:
        load()
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            raise TlsUnusable(f"cannot read {what}{where}: {error.strerror}") from error
        raise TlsUnusable(
            f"cannot use {what}{where}: {getattr(error, 'reason', None) or 'no PEM'}; expected PEM "
            "('openssl pkcs12 -in STORE.p12 -nodes -out FILE.pem' makes it of a PKCS12 store)"
        ) from error


def why_refused(error: OSError) -> str | None:
    """Return what a failed handshake means, in words; None for an error that is not of TLS."""
    if isinstance(error, TlsUnusable):
        return str(error)
    verification = getattr(error, "verify_message", None)
    if verification:
        return f"the broker's certificate was refused: {verification}"
    library_reason = getattr(error, "reason", None)
    if not isinstance(library_reason, str):
        return None
    text = library_reason.replace("_", " ").lower()
    hint = "; does it speak TLS on this port?" if library_reason in _NO_TLS else ""
    return f"no TLS with the broker: {text}{hint}"
