"""SCRAM, the broker's half: a client proves its password without sending it.

    client  n,[a=USER],n=USER,r=NONCE[,NAME=VALUE]...
    server  r=NONCE+MORE,s=SALT,i=ITERATIONS
    client  c=BASE64 OF THE FIRST TWO FIELDS,r=NONCE+MORE,p=PROOF
    server  v=SIGNATURE

Only keys made of the password are known here, so no password is ever hashed during an exchange. Who
names an unknown user is served the same steps with a made-up salt, and fails where a wrong password
does: answers do not tell which users there are. Channel binding is not offered.
Source: RFC 5802, RFC 7677; Kafka takes names and passwords as plain UTF-8, without SASLprep.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable

from ottla.ids import Principal
from ottla.security.credentials import HASHES, ScramCredential
from ottla.security.exchange import NAME_LENGTH_MAX, AuthenticationRefused, Proved

NONCE_BYTES = 24
TOKEN_BYTES_MAX = 4_096
"""The longest token that is looked at: names have at most 255 characters, nonces about 50."""

_FIRST = re.compile(
    rb"(?P<header>n,(?:a=(?P<authorization_id>[^,\x00]+))?,)"
    rb"(?P<bare>n=(?P<name>[^,\x00]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    rb"(?P<more>(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*))",
)
_FINAL = re.compile(
    rb"(?P<without_proof>c=(?P<binding>[A-Za-z0-9/+=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    rb"(?:,[^,]*)*?),p=(?P<proof>[A-Za-z0-9/+=]+)",
    re.DOTALL,
)
_ESCAPE = re.compile("=(2C|3D)?")
_ESCAPED = {"2C": ",", "3D": "="}


FindCredential = Callable[[str], ScramCredential]
"""Returns a user's credential, or one that nobody can prove for a name that has none."""


def credential_of(salted_password: bytes, salt: bytes, iterations: int, mechanism: str) -> (
    ScramCredential
):  # fmt: skip
    """Return what is kept of a password that was salted and hashed already."""
    hash_name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    return ScramCredential(
        salt,
        hashlib.new(hash_name, client_key).digest(),
        hmac.digest(salted_password, b"Server Key", hash_name),
        iterations,
    )


def salted(password: str, salt: bytes, iterations: int, mechanism: str) -> bytes:
    """Salt and hash a password. Takes about 0.5 ms for each 1,000 iterations."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


class Scram:
    """One exchange, of two steps."""

    def __init__(self, mechanism: str, find: FindCredential, nonce: bytes) -> None:
        """Begin. ``nonce`` is NONCE_BYTES unpredictable bytes."""
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._find = find
        self._more = base64.b64encode(nonce)
        self._name = ""
        self._credential: ScramCredential | None = None
        self._header = self._nonce = self._so_far = b""

    def step(self, token: bytes) -> bytes | Proved:
        """Take the client's first or final message. Raises AuthenticationRefused."""
        if len(token) > TOKEN_BYTES_MAX:
            raise self._wrong()
        if self._credential is None:
            return self._challenge(token)
        return self._check(token, self._credential)

    def _challenge(self, token: bytes) -> bytes:
        first = _FIRST.fullmatch(token)
        if first is None:
            raise self._wrong()
        name = _unescaped(first["name"])
        if name is None or len(name) > NAME_LENGTH_MAX:
            raise self._wrong()
        self._name = name
        if first["authorization_id"] and _unescaped(first["authorization_id"]) != name:
            raise AuthenticationRefused(
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
                name,
            )
        if b"tokenauth=true" in first["more"].lower().split(b","):
            raise self._wrong()  # Delegation tokens are off; this is no password of that name.
        credential = self._find(name)
        self._header, self._nonce = first["header"], first["nonce"] + self._more
        answer = b"r=%b,s=%b,i=%d" % (
            self._nonce, base64.b64encode(credential.salt), credential.iterations
        )  # fmt: skip
        self._so_far = first["bare"] + b"," + answer
        self._credential = credential
        return answer

    def _check(self, token: bytes, credential: ScramCredential) -> Proved:
        final = _FINAL.fullmatch(token)
        if final is None:
            raise self._wrong()
        is_ours = final["nonce"] == self._nonce
        is_bound = final["binding"] == base64.b64encode(self._header)
        message = self._so_far + b"," + final["without_proof"]
        try:
            proof = base64.b64decode(final["proof"], validate=True)
        except ValueError:
            raise self._wrong() from None
        signature = hmac.digest(credential.stored_key, message, self._hash)
        if len(proof) != len(signature):
            raise self._wrong()
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        shown = hashlib.new(self._hash, client_key).digest()
        is_proved = hmac.compare_digest(shown, credential.stored_key)
        # Its user may have been deleted, or got another password, since the first message.
        is_present = self._find(self._name) == credential
        if not (is_proved and is_present and is_ours and is_bound):
            raise self._wrong()
        server_signature = hmac.digest(credential.server_key, message, self._hash)
        return Proved(Principal("User", self._name), b"v=" + base64.b64encode(server_signature))

    def _wrong(self) -> AuthenticationRefused:
        """One text for all: it tells nobody how far a guess came."""
        return AuthenticationRefused(
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._mechanism}",
            self._name,
        )


def _unescaped(text: bytes) -> str | None:
    """Return a name as it is meant; None when it is not UTF-8, or an escape is none."""
    try:
        name = text.decode()
    except UnicodeDecodeError:
        return None
    if any(match[1] is None for match in _ESCAPE.finditer(name)):
        return None
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], name)
