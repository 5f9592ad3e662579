"""An issuer of tokens for tests: its keys, its key set (JWKS), and tokens right or wrong.

Signs by PyJWT; tests that hold the broker's judgement against another library's use joserfc.
"""

import base64
import functools
import json
import time

import pytest

jwt = pytest.importorskip("jwt", reason="the extra oauth is not installed")

ISSUER = "https://issuer.example"
AUDIENCE = "kafka"
CURVES = {"ES256": "SECP256R1", "ES384": "SECP384R1", "ES512": "SECP521R1"}


@functools.cache
def make_key(kid, kind, bits=2048):
    """Return the private key of this name: RSA, or of the curve of an ES algorithm."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if kind in CURVES:
        return ec.generate_private_key(getattr(ec, CURVES[kind])())
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def public_key(kid, algorithm, **more):
    """Return the public half of a key, as a key set has it."""
    from jwt.algorithms import ECAlgorithm, RSAAlgorithm

    writer = ECAlgorithm if algorithm in CURVES else RSAAlgorithm
    key = make_key(kid, _kind(algorithm)).public_key()
    return {**writer.to_jwk(key, as_dict=True), "kid": kid, "use": "sig", **more}


def _kind(algorithm):
    return algorithm if algorithm in CURVES else "RSA"


class Issuer:
    """Signs with one key, ``kid``, and publishes it, perhaps with some that it had before."""

    def __init__(self, kid="first", algorithm="RS256"):
        self.kid, self.algorithm = kid, algorithm
        self.published = [(kid, algorithm)]

    def rotate(self, kid, algorithm="RS256", *, keep=True):
        """Sign with another key from now on."""
        self.kid, self.algorithm = kid, algorithm
        self.published = [*(self.published if keep else []), (kid, algorithm)]

    def key_set(self):
        """Return the public keys, as JSON."""
        return json.dumps({"keys": [public_key(*each) for each in self.published]})

    def claims(self, *, now=None, **changes):
        """Return the claims of a good token; a change to None leaves one out."""
        now = int(time.time() if now is None else now)
        claims = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "scope": "read write"}
        claims |= {"iat": now, "exp": now + 3600} | changes
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, *, headers=None, kid=None, algorithm=None, now=None, **changes):
        """Return a token, good unless changed. ``kid``: of the key that really signs."""
        algorithm = algorithm or self.algorithm
        headers = {"kid": self.kid, **(headers or {})}
        headers = {name: value for name, value in headers.items() if value is not None}
        key = make_key(kid or self.kid, _kind(algorithm))
        return jwt.encode(self.claims(now=now, **changes), key, algorithm, headers)

    def by(self, header, claims, signature=b"x"):
        """Return a token of these parts, whatever they are."""
        parts = [
            part if isinstance(part, bytes) else json.dumps(part).encode()
            for part in (header, claims)
        ]
        return ".".join(base64url(part) for part in (*parts, signature))


def base64url(data):
    """Return unpadded base64url text."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def opening(token, *, header="n,,", extensions=()):
    """Return the client's first message of OAUTHBEARER. Source: RFC 7628."""
    pairs = "".join(f"{name}={value}\x01" for name, value in extensions)
    return f"{header}\x01auth=Bearer {token}\x01{pairs}\x01"
