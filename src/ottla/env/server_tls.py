"""TLS of a listener: the context made of a broker's certificates, and one connection's engine.

Owns, with ``env.tls``, every use of ``ssl``, which is imported where it is needed. An engine does
no I/O: it turns bytes of the wire into bytes of the client, and back. Renegotiation and compression
are off. Texts of keys reach the library by a file in memory without a name,
never by one in a directory. Source: Kafka's ssl.* broker options; the documentation of ssl.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from ottla.env.pem import CERTIFICATE_MARK, certificates_of

if TYPE_CHECKING:
    import ssl

_KEY_MARK = "PRIVATE KEY-----"
STORE_BYTES_MAX = 1024 * 1024
"""The largest file of keys or certificates that is read."""
_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER = b"\x30"
_TO_PEM = "openssl pkcs12 -in STORE.p12 -nodes -out FILE.pem"
_HOW = {
    "JKS": (
        "'keytool -importkeystore -srckeystore STORE.jks -destkeystore STORE.p12 "
        f"-deststoretype PKCS12', then '{_TO_PEM}', makes PEM of it"
    ),
    "PKCS12": f"'{_TO_PEM}' makes PEM of it",
}
"""How to make PEM of the two kinds of stores that Java has."""
_PLAIN_TEXT = ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "HTTPS_PROXY_REQUEST")


class ServerTlsUnusable(OSError):
    """A certificate or key cannot be used; the text says which, and why, without its contents."""


class TlsBroken(Exception):
    """The peer does not speak TLS as it must; the text says how. The connection is over."""


class ServerTlsFiles(NamedTuple):
    """What a listener shows its clients, and what it asks of them. Texts are PEM; None: not given.

    ``repr`` shows no key and no password.
    """

    keystore_file: str | None = None
    """One file with the key, the certificate and what signed it."""
    chain_text: str | None = None
    key_text: str | None = None
    key_password: str | None = None
    trust_file: str | None = None
    """Certificates that clients' certificates must be signed by."""
    trust_text: str | None = None
    client_auth: str = "none"
    """none, requested or required: whether clients show a certificate."""
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: tuple[str, ...] = ()
    """OpenSSL's names of the cipher suites of TLS 1.2; none: the library's."""

    def __repr__(self) -> str:
        return f"ServerTlsFiles(keystore_file={self.keystore_file!r})"


class StoreTexts(NamedTuple):
    """The contents of the files, or the inline texts, at one moment; equal ones need no reload."""

    chain_and_key: str
    """The certificates and, if it has no text of its own, the key."""
    key: str | None
    trust: str | None

    def __repr__(self) -> str:
        return "StoreTexts(...)"


def how_to_convert(kind: str) -> str:
    """Return the words that tell how a JKS or PKCS12 store becomes PEM; "" for another kind."""
    return _HOW.get(kind.upper(), "")


def read_stores(files: ServerTlsFiles) -> StoreTexts:
    """Read the files. Blocks. Raises ServerTlsUnusable for one that is missing or no PEM."""
    keystore = files.chain_text
    if keystore is None:
        keystore = _read("ssl.keystore.location", files.keystore_file or "")
    if CERTIFICATE_MARK not in keystore:
        what = files.keystore_file or "ssl.keystore.certificate.chain"
        raise ServerTlsUnusable(f"{what} has no certificate (no '{CERTIFICATE_MARK}')")
    if files.key_text is None and _KEY_MARK not in keystore:
        where = files.keystore_file or "ssl.keystore.key"
        raise ServerTlsUnusable(f"{where} has no private key (no 'BEGIN PRIVATE KEY')")
    trust = files.trust_text
    if trust is None and files.trust_file is not None:
        trust = _read("ssl.truststore.location", files.trust_file)
    if trust is not None and CERTIFICATE_MARK not in trust:
        what = files.trust_file or "ssl.truststore.certificates"
        raise ServerTlsUnusable(f"{what} has no certificate (no '{CERTIFICATE_MARK}')")
    return StoreTexts(keystore, files.key_text, trust)


def _read(option: str, path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise ServerTlsUnusable(f"cannot read {option}={path}: {error.strerror}") from error
    if len(content) > STORE_BYTES_MAX:
        raise ServerTlsUnusable(f"{option}={path} is larger than {STORE_BYTES_MAX} bytes")
    kind = "JKS" if content[:4] in _JKS else "PKCS12" if content[:1] == _DER else ""
    if kind:
        raise ServerTlsUnusable(f"{option}={path} is a {kind} store, expected PEM; {_HOW[kind]}")
    return content.decode("utf-8", "replace")


class Engine(Protocol):
    """TLS of one connection, without I/O. After TlsBroken or ``end`` it is of no further use."""

    def feed(self, data: memoryview, /) -> int:
        """Take bytes that came from the wire."""

    def take(self) -> bytes:
        """Return the bytes that must go to the wire now; perhaps none."""

    def shake(self) -> bool:
        """Go on with the handshake; True: it is complete. Takes up to some ms. Raises TlsBroken."""

    has_ended: bool
    """Whether the client has said that it sends nothing more."""

    def read_into(self, buffer: memoryview) -> int:
        """Return how many bytes of the client were put into ``buffer``, one record's at most.

        0: more must be fed first, or the client's stream ``has_ended``; costs more than bytes do.
        Raises TlsBroken.
        """

    def seal(self, data: bytes | bytearray | memoryview) -> bytes:
        """Encrypt all of ``data``; return what must go to the wire. Raises TlsBroken."""

    def end(self) -> None:
        """Say that nothing more will be written (close_notify)."""

    @property
    def certificate(self) -> bytes | None:
        """The client's certificate as DER, checked; None: it has shown none.

        Ask when the handshake is complete, and before anything is broken.
        """


OpenEngine = Callable[[], Engine]


class ServerTls:
    """What engines are made by. Immutable: a reload makes another one."""

    def __init__(self, files: ServerTlsFiles, texts: StoreTexts) -> None:
        """Build the context. Takes some ms. Raises ServerTlsUnusable."""
        self.texts = texts
        self.context = _context(files, texts)

    @classmethod
    def load(cls, files: ServerTlsFiles) -> "ServerTls":
        """Read the files and build the context. Blocks. Raises ServerTlsUnusable."""
        return cls(files, read_stores(files))

    def reloaded(self, files: ServerTlsFiles) -> "ServerTls | None":
        """Return what the files make now; None: they have not changed.

        Blocks. Raises ServerTlsUnusable.
        """
        texts = read_stores(files)
        return None if texts == self.texts else ServerTls(files, texts)

    def open(self) -> Engine:
        """Return the engine of a new connection."""
        return _SslEngine(self.context)


def _context(files: ServerTlsFiles, texts: StoreTexts) -> "ssl.SSLContext":
    import ssl  # noqa: PLC0415 - see above

    versions = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    chosen = sorted(versions[name] for name in files.versions)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = chosen[0], chosen[-1]
    context.options |= (
        ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    )
    context.num_tickets = 0  # Of TLS 1.3. Those of 1.2 stay: else sessions are kept in memory.
    where = f" in {files.keystore_file}" if files.keystore_file else ""
    try:
        if files.ciphers:
            context.set_ciphers(":".join(files.ciphers))
        with _as_path(texts.chain_and_key) as chain, _as_path(texts.key) as key:
            # An empty password fails; without one the library asks at the terminal.
            context.load_cert_chain(chain or "", key, files.key_password or "")
    except (ssl.SSLError, OSError, ValueError) as error:
        why = _words(error)
        if "ENCRYPTED" in (texts.key or texts.chain_and_key) and why == _NO_PEM:
            why = "ssl.key.password does not open the key"  # The library gives no reason.
        raise ServerTlsUnusable(f"cannot use the certificate or its key{where}: {why}") from None
    context.verify_mode = {
        "none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED
    }[files.client_auth]  # fmt: skip
    if texts.trust is not None:
        try:
            # By a path: only so the library lets other threads work, for 100 ms of a large store.
            with _as_path(certificates_of(texts.trust)) as trust:
                context.load_verify_locations(cafile=trust)
        except (ssl.SSLError, OSError, ValueError) as error:
            where = f" in {files.trust_file}" if files.trust_file else ""
            why = _words(error)
            raise ServerTlsUnusable(f"cannot use the trusted certificates{where}: {why}") from None
    return context


_NO_PEM = "no PEM that the TLS library can read"


def _words(error: Exception) -> str:
    """Return the library's reason in words; never a text that it was given."""
    reason = getattr(error, "reason", None)
    if isinstance(reason, str):
        return _HINTS.get(reason) or reason.replace("_", " ").lower()
    return _NO_PEM


_HINTS = {"KEY_VALUES_MISMATCH": "the key is not that of the certificate"}


@contextmanager
def _as_path(text: str | None) -> Iterator[str | None]:
    """Give ``text`` a path for a library that takes only paths, without a file in a directory."""
    if text is None:
        yield None
        return
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


class _SslEngine:
    """An Engine on ``ssl.SSLObject``."""

    __slots__ = ("_object", "_read", "_ssl", "_write", "feed", "has_ended", "take")

    def __init__(self, context: "ssl.SSLContext") -> None:
        import ssl  # noqa: PLC0415 - see above

        self._ssl = ssl
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(incoming, outgoing, server_side=True)
        self.has_ended = False
        self.feed, self.take = incoming.write, outgoing.read  # Without a hop.
        self._read = cast("Callable[[int, memoryview], int]", self._object.read)
        self._write = self._object.write

    def shake(self) -> bool:
        try:
            self._object.do_handshake()
        except self._ssl.SSLWantReadError:
            return False
        except (self._ssl.SSLError, OSError) as error:
            raise TlsBroken(_why_not_shaken(error)) from None
        return True

    def read_into(self, buffer: memoryview) -> int:
        try:
            count = self._read(len(buffer), buffer)
        except self._ssl.SSLWantReadError:
            return 0
        except self._ssl.SSLZeroReturnError:
            count = 0
        except (self._ssl.SSLError, OSError) as error:
            raise TlsBroken(_words(error)) from None
        if not count:
            self.has_ended = True
        return count

    def seal(self, data: bytes | bytearray | memoryview) -> bytes:
        try:
            self._write(data)
        except (self._ssl.SSLError, OSError) as error:
            raise TlsBroken(_words(error)) from None
        return self.take()

    def end(self) -> None:
        try:
            self._object.unwrap()
        except (self._ssl.SSLError, OSError, ValueError):
            return  # It wants to hear the peer's, for which nobody waits.

    @property
    def certificate(self) -> bytes | None:
        return self._object.getpeercert(binary_form=True)


def _why_not_shaken(error: Exception) -> str:
    """Return what a failed handshake means, in words."""
    reason = getattr(error, "reason", None)
    if reason in _PLAIN_TEXT:
        return "it does not speak TLS, which this listener wants"
    verification = getattr(error, "verify_message", None)
    if verification:
        return f"its certificate was refused: {verification}"
    if isinstance(reason, str) and "_ALERT_" in reason:
        return f"it ended the handshake: {reason.replace('_', ' ').lower()}"
    return _words(error) if isinstance(reason, str) else "its handshake ended early"
