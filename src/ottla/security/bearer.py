"""OAUTHBEARER, the broker's half: a token that somebody else has signed says who the client is.

    message := "n," ["a=" name] "," ^A {key "=" value ^A} ^A        one key is auth: Bearer TOKEN

A token that is not good is answered with a JSON text; the client sends ^A, and is refused (Kafka
also takes another token then). Owns this format; ``tokens`` judges what is in it. Other keys are
SASL extensions: they are checked for their form and ignored, as Kafka does by default.
Source: RFC 7628; RFC 5801 (the beginning); the answers of a live Kafka 4.3.
"""

import re
from collections.abc import Callable

from ottla.ids import Principal
from ottla.security.exchange import AuthenticationRefused, Proved
from ottla.security.tokens import TOKEN_LENGTH_MAX, BearerToken, TokenRefused

MESSAGE_BYTES_MAX = 2 * TOKEN_LENGTH_MAX
_MESSAGE = re.compile(
    rb"n,(?:a=(?P<name>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,"
    rb"\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[A-Za-z0-9._+/=-]+)")
_INVALID = '{"status":"invalid_token"}'
_END = b"\x01"


class Bearer:
    """One exchange: of one step when the token is good, of two or more when it is not."""

    def __init__(self, judge: Callable[[str], BearerToken]) -> None:
        """Take what judges tokens; it raises TokenRefused."""
        self._judge = judge
        self._refusal: AuthenticationRefused | None = None

    def step(self, token: bytes) -> bytes | Proved:
        """Take the client's message, or its answer to a refusal. Raises AuthenticationRefused."""
        refusal, self._refusal = self._refusal, None
        if refusal is not None and token == _END:
            raise refusal
        name, text = _read(token)
        try:
            good = self._judge(text)
        except TokenRefused as refused:
            self._refusal = AuthenticationRefused(_INVALID, noted=str(refused))
            return _INVALID.encode()
        if name and name != good.name:
            raise AuthenticationRefused(
                f"Authentication failed: Client requested an authorization id ({name}) that is "
                f"different from the token's principal name ({good.name})",
                good.name,
                noted="the authorization id is not the token's user",
            )
        return Proved(Principal("User", good.name), expires_ms=good.expires_ms)


def _read(message: bytes) -> tuple[str, str]:
    """Return the authorization id (perhaps empty) and the token. Raises AuthenticationRefused."""
    found = _MESSAGE.fullmatch(message) if len(message) <= MESSAGE_BYTES_MAX else None
    if found is None:
        raise _malformed("the message is none of OAUTHBEARER")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].decode().split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise _malformed("the message has no bearer token")
    name = (found["name"] or b"").decode()
    return name.replace("=2C", ",").replace("=3D", "="), auth["token"]


def _malformed(why: str) -> AuthenticationRefused:
    return AuthenticationRefused(
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism OAUTHBEARER",
        noted=why,
    )
