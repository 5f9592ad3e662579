"""What a client says to log in, right or wrong, for tests on the wire."""

import base64
import hashlib
import hmac

import pytest

from tools.wire_client import Closed

MODULES = "org.apache.kafka.common.security"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
OPTIONS = {
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{MODULES}.plain.PlainLoginModule required user_alice="wonder land";'
    ),
    **{
        f"listener.name.sasl_plaintext.scram-sha-{size}.sasl.jaas.config": (
            f"{MODULES}.scram.ScramLoginModule required;"
        )
        for size in (256, 512)
    },
}
USERS = [f"SCRAM-SHA-{size}=[name=bob,password=builder]" for size in (256, 512)]
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
WRONG = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"
)

OTHER_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


def shake_hands(wire, mechanism, version=1):
    return wire.call("sasl_handshake", version, mechanism=mechanism)


def token(wire, text, version=2):
    data = text if isinstance(text, bytes) else text.encode()
    return wire.call("sasl_authenticate", version, auth_bytes=data)


def hang_up(wire):
    """The connection is closed, and nothing is answered."""
    with pytest.raises(Closed):
        wire.receive_frame()
    return True


def may_ask(wire):
    """Whoever is let in may ask anything."""
    return wire.call("metadata", 12, topics=[])["brokers"] != []


class Scram:
    """A client's half, which can go wrong at each place."""

    def __init__(self, mechanism, name="bob", password="builder", nonce="rOprNGfwEbeRWgbNEkqO"):
        self.hash, self.name, self.password, self.nonce = HASHES[mechanism], name, password, nonce

    def first(self, header="n,,", more=""):
        self.header = header
        self.bare = f"n={self.name},r={self.nonce}{more}"
        return header + self.bare

    def final(self, answer, *, header=None, nonce=None, proof=None):
        fields = dict(part.split("=", 1) for part in answer.decode().split(","))
        salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(self.hash, self.password.encode(), salt, iterations)
        binding = base64.b64encode((header or self.header).encode()).decode()
        without_proof = f"c={binding},r={nonce or fields['r']}"
        message = f"{self.bare},{answer.decode()},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self.hash)
        stored_key = hashlib.new(self.hash, client_key).digest()
        signature = hmac.digest(stored_key, message, self.hash)
        mine = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self.hash)
        self.expected = b"v=" + base64.b64encode(hmac.digest(server_key, message, self.hash))
        return f"{without_proof},p={base64.b64encode(proof or mine).decode()}"
