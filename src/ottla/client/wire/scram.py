"""SCRAM, the client's half: a password proved without being sent. Pure.

    client  n,,n=USER,r=NONCE
    server  r=NONCE+MORE,s=SALT,i=ITERATIONS
    client  c=biws,r=NONCE+MORE,p=PROOF
    server  v=SIGNATURE            or e=REASON

Source: RFC 5802 (no channel binding), RFC 7677; Kafka takes names and passwords as plain UTF-8.
"""

import base64
import hashlib
import hmac

from ottla.client.wire.security import SCRAM_SHA_256, SCRAM_SHA_512, Credentials
from ottla.errors import ErrorCode, KafkaError

HASHES = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
"""The hash of each mechanism there is."""
NONCE_BYTES = 24
ITERATIONS_MIN = 4_096
"""Fewer make the password easy to guess from what went over the wire: Kafka refuses them too."""
ITERATIONS_MAX = 10_000_000
"""More would keep a client busy for seconds because an unknown server said so."""


class Scram:
    """One exchange: ``first``, then ``next`` for each answer until it returns None."""

    def __init__(self, credentials: Credentials, nonce: bytes) -> None:
        """Begin; the mechanism is a key of HASHES, ``nonce`` is NONCE_BYTES unpredictable bytes."""
        self._hash = HASHES[credentials.mechanism]
        self._password = credentials.password.encode()
        self._nonce = base64.b64encode(nonce)
        name = credentials.username.replace("=", "=3D").replace(",", "=2C").encode()
        self._first_bare = b"n=" + name + b",r=" + self._nonce
        self._signature: bytes | None = None

    def first(self) -> bytes:
        """Return what opens the exchange."""
        return b"n,," + self._first_bare

    def next(self, answer: bytes) -> bytes | None:
        """Return what follows ``answer``; None when both sides are sure of each other.

        Raises KafkaError SASL_AUTHENTICATION_FAILED for a malformed answer, and for a server that
        does not know the password.
        """
        fields = _fields(answer)
        if b"e" in fields:
            raise _failed(fields[b"e"].decode(errors="replace"))
        if self._signature is None:
            return self._prove(answer, fields)
        if not hmac.compare_digest(_decoded(fields, b"v"), self._signature):
            raise _failed("the broker does not know the password itself: is it the right one?")
        return None

    def _prove(self, server_first: bytes, fields: dict[bytes, bytes]) -> bytes:
        nonce = fields.get(b"r", b"")
        iterations = _iterations(fields)
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise _failed("the broker's answer does not belong to this exchange")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, _decoded(fields, b"s"), iterations)
        without_proof = b"c=biws,r=" + nonce
        message = b",".join((self._first_bare, server_first, without_proof))
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._hmac(stored_key, message)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return without_proof + b",p=" + base64.b64encode(proof)

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _fields(message: bytes) -> dict[bytes, bytes]:
    pairs = (part.partition(b"=") for part in message.split(b","))
    return {name: value for name, _, value in pairs}


def _iterations(fields: dict[bytes, bytes]) -> int:
    text = fields.get(b"i", b"")
    iterations = int(text) if text.isdigit() and len(text) < 10 else 0
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise _failed(
            f"the broker asks for {text[:20].decode(errors='replace')!r} iterations; "
            f"expected {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    return iterations


def _decoded(fields: dict[bytes, bytes], name: bytes) -> bytes:
    try:
        return base64.b64decode(fields[name], validate=True)
    except (KeyError, ValueError) as error:
        raise _failed("the broker's answer is no SCRAM message") from error


def _failed(why: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, why)
