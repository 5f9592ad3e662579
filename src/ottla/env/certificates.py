"""Makes a broker's certificates by the ``openssl`` program, and tries them as a client would.

Owns what the certificates have in them. Keys are made anew, on the curve P-256, and come back as
texts: whoever calls keeps them. Blocks, some 10 ms a certificate.
Source: RFC 5280; what OpenSSL's strict mode (Python 3.13) and Java want of a certificate.
"""

import contextlib
import os
import socket
import subprocess
import tempfile
from typing import TYPE_CHECKING, NamedTuple, cast

from ottla.env.server_tls import ServerTls, ServerTlsFiles
from ottla.env.tls import TlsFiles, client_context, why_refused

if TYPE_CHECKING:
    import ssl

AUTHORITY_DAYS = 3_650
SERVER_DAYS = 825
"""The longest that Apple's systems take."""
STEPS = 4
"""How often each side must be asked to go on until a handshake is complete, and once more."""
SECONDS_MAX = 60
"""How long the program may take. Only to make a key it needs more than milliseconds."""

_REQUEST = """\
[req]
prompt = no
distinguished_name = subject
x509_extensions = authority
[subject]
CN = {name}
[authority]
basicConstraints = critical,CA:TRUE,pathlen:0
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""


class NoProgram(OSError):
    """There is no ``openssl`` to make certificates."""


class NotMade(OSError):
    """``openssl`` failed; the text is what it said."""


class Refused(OSError):
    """A client would refuse the certificate; the text says why."""


class Examined(NamedTuple):
    """What a client learns of a certificate that it takes."""

    names: tuple[str, ...]
    """The hosts it is for: DNS names (perhaps ``*.example.org``) and IP addresses."""
    ends: str
    """When it is of no use any more: ``Nov 23 12:00:00 2028 GMT``."""
    ends_at: int
    """The same as seconds since 1970."""


def make_key() -> str:
    """Return a new private key. Raises NoProgram, NotMade."""
    curve = ("-pkeyopt", "ec_paramgen_curve:prime256v1", "-pkeyopt", "ec_param_enc:named_curve")
    return _openssl("genpkey", "-algorithm", "EC", *curve)


def make_authority(key: str, name: str) -> str:
    """Return the certificate of an authority that signs for itself. Raises NoProgram, NotMade."""
    with tempfile.TemporaryDirectory() as directory:
        asked = _put(directory, "asked.cnf", _REQUEST.format(name=name, names="DNS:localhost"))
        with_key = _put(directory, "key.pem", key)
        how = ("-sha256", "-days", str(AUTHORITY_DAYS), "-config", asked)
        return _openssl("req", "-new", "-x509", "-key", with_key, *how)


def make_server(
    key: str, *, names: tuple[str, ...], authority: str, authority_key: str, serial: int, name: str
) -> str:
    """Return a server's certificate for these hosts. Raises NoProgram, NotMade."""
    of_hosts = ",".join(f"{'IP' if is_ip(each) else 'DNS'}:{each}" for each in names)
    with tempfile.TemporaryDirectory() as directory:
        asked = _put(directory, "asked.cnf", _REQUEST.format(name=name, names=of_hosts))
        with_key = _put(directory, "key.pem", key)
        request = _openssl("req", "-new", "-sha256", "-key", with_key, "-config", asked)
        signed_by = ("-CA", _put(directory, "ca.pem", authority))
        signed_with = ("-CAkey", _put(directory, "ca.key", authority_key))
        return _openssl(
            *("x509", "-req", "-in", _put(directory, "server.csr", request)),
            *(*signed_by, *signed_with, "-set_serial", str(serial), "-sha256"),
            *("-days", str(SERVER_DAYS), "-extfile", asked, "-extensions", "server"),
        )


def _put(directory: str, name: str, text: str) -> str:
    path = os.path.join(directory, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    return path


def _openssl(*arguments: str) -> str:
    environment = {**os.environ, "OPENSSL_CONF": os.devnull, "LC_ALL": "C"}
    try:
        done = subprocess.run(  # noqa: S603 - of this module's own words
            ["openssl", *arguments],  # noqa: S607 - the one that the person has
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except FileNotFoundError as error:
        raise NoProgram("there is no program openssl") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotMade(f"openssl {arguments[0]}: {error}") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason"]
        raise NotMade(f"openssl {arguments[0]}: {said[-1]}")
    return done.stdout


def is_ip(host: str) -> bool:
    """Return whether ``host`` is an IP address, not a name."""
    return ":" in host or _is_ipv4(host)


def _is_ipv4(host: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET, host)
    except OSError:
        return False
    return True


def examine(server: str, authority: str) -> Examined:
    """Return what a client that trusts ``authority`` sees of ``server``; paths of PEM files.

    A handshake without a wire tells it: what clients will refuse is refused here, for their reason.
    Raises Refused, ServerTlsUnusable, TlsUnusable.
    """
    import ssl  # noqa: PLC0415 - only env.tls, env.server_tls and this may

    shown = ServerTls.load(ServerTlsFiles(keystore_file=server)).context
    trust = TlsFiles(ca_file=authority, verify_host=False)
    trusting = client_context.__wrapped__(trust)  # The file as it is now, not as it was.
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    broker = shown.wrap_bio(there, back, server_side=True)
    client = trusting.wrap_bio(back, there)
    try:
        for _ in range(STEPS):
            _shake(client)
            _shake(broker)
    except ssl.SSLError as error:
        raise Refused(getattr(error, "verify_message", "") or why_refused(error)) from None
    found = client.getpeercert() or {}
    ends = str(found["notAfter"])
    names = cast("tuple[tuple[str, str], ...]", found.get("subjectAltName", ()))
    return Examined(
        tuple(value for _, value in names),
        ends,
        int(ssl.cert_time_to_seconds(ends)),
    )


def _shake(side: "ssl.SSLObject") -> None:
    import ssl  # noqa: PLC0415 - as above

    with contextlib.suppress(ssl.SSLWantReadError):
        side.do_handshake()


def covers(names: tuple[str, ...], host: str) -> bool:
    """Return whether a certificate for ``names`` is one for ``host``, as clients judge it."""
    if is_ip(host):
        return _packed(host) in [_packed(name) for name in names if is_ip(name)]
    wanted = host.rstrip(".").lower()
    _, dot, rest = wanted.partition(".")
    known = {name.rstrip(".").lower() for name in names}
    return wanted in known or (bool(dot) and f"*.{rest}" in known)


def _packed(address: str) -> bytes:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.inet_pton(family, address.partition("%")[0])


def names_of_this_machine() -> tuple[str, ...]:
    """Return the names and addresses by which programs reach it, as far as it knows. Asks no DNS.

    ``localhost`` and the addresses of the loopback come first.
    """
    names = ["localhost", "127.0.0.1", "::1", socket.gethostname().lower()]
    for family, elsewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as one:
                one.connect((elsewhere, 9))  # Chooses a route. A datagram socket sends nothing yet.
                names.append(one.getsockname()[0].partition("%")[0])
        except OSError:
            continue  # There is no such network.
    return tuple(dict.fromkeys(name for name in names if name))
