"""SASL, step by step: the requests of an authentication and what their answers mean. No I/O.

A transport (``connection``, ``blocking``) sends each step's request and gives the answer back,
after ApiVersions and before all else. Source: Kafka's protocol guide, SASL; KIP-152.
"""

from collections.abc import Generator
from typing import Protocol, cast

from ottla.client.wire.errors import error_code
from ottla.client.wire.exchange import Exchange, Step
from ottla.client.wire.security import PLAIN, Credentials
from ottla.env.rng import Rng
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.schema import Message

RENEWAL_SHARE = 0.85
"""A session is renewed when it has had this share of its life (Kafka's clients: 0.85 to 0.95)."""


def renewal_seconds(lifetime_ms: int) -> float:
    """Return how long after its beginning a session is to be renewed."""
    return lifetime_ms / 1000 * RENEWAL_SHARE


class Mechanism(Protocol):
    """The client's half of a SASL mechanism."""

    def first(self) -> bytes:
        """Return what opens the exchange."""

    def next(self, answer: bytes) -> bytes | None:
        """Return what follows; None at the end. Raises KafkaError."""


class Plain:
    """Name and password as they are. Source: RFC 4616."""

    def __init__(self, username: str, password: str) -> None:
        self._token = b"\0" + username.encode() + b"\0" + password.encode()

    def first(self) -> bytes:
        """Return the whole exchange: one message."""
        return self._token

    def next(self, answer: bytes) -> None:
        """Return None: an error would have come as an error code."""


def authenticate(
    credentials: Credentials, exchange: Exchange, rng: Rng, token: str = ""
) -> Generator[Step, Message, int]:
    """Yield the steps; each is sent the answer to the one before. Ends when the broker is content.

    ``token``: for OAUTHBEARER. Returns how long the session lasts, in ms; 0: it does not end.
    Raises KafkaError: UNSUPPORTED_SASL_MECHANISM, SASL_AUTHENTICATION_FAILED, UNSUPPORTED_VERSION.
    """
    if exchange.version(SaslHandshakeRequest) < 1:
        why = "SaslHandshake 1 or newer wanted: the broker is older than Kafka 1.0"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, why)
    answer = yield Step(
        SaslHandshakeRequest(mechanism=credentials.mechanism), SaslHandshakeResponse
    )
    _check_handshake(cast("SaslHandshakeResponse", answer), credentials.mechanism)
    mechanism = _mechanism(credentials, rng, token)
    said: bytes | None = mechanism.first()
    lifetime_ms = 0
    while said is not None:
        answer = yield Step(SaslAuthenticateRequest(auth_bytes=said), SaslAuthenticateResponse)
        told = cast("SaslAuthenticateResponse", answer)
        if told.error_code != ErrorCode.NONE:
            why = told.error_message or f"{credentials.username!r} was refused"
            raise KafkaError(error_code(told.error_code), why)
        lifetime_ms = told.session_lifetime_ms
        said = mechanism.next(bytes(told.auth_bytes))
    return max(lifetime_ms, 0)


def refuse_if_login_is_wanted(exchange: Exchange) -> Generator[Step, Message, None]:
    """Yield the step that finds out whether a listener that answers nothing wants a login.

    Raises KafkaError SASL_AUTHENTICATION_FAILED if it does. Without SASL the answer is another.
    """
    answer = yield Step(SaslHandshakeRequest(mechanism=""), SaslHandshakeResponse)
    told = cast("SaslHandshakeResponse", answer)
    if told.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM and told.mechanisms:
        offered = ", ".join(told.mechanisms)
        why = (
            f"the listener wants a login by SASL ({offered}): set security.protocol to SASL_SSL or "
            "SASL_PLAINTEXT, and sasl.mechanism"
        )
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, why)


def _mechanism(credentials: Credentials, rng: Rng, token: str) -> Mechanism:
    if credentials.tokens is not None:
        from ottla.client.wire.oauth import Bearer  # noqa: PLC0415 - few have tokens

        return Bearer(token, credentials.tokens.extensions)
    if credentials.mechanism == PLAIN:
        return Plain(credentials.username, credentials.password)
    # Hashes cost a start some milliseconds.
    from ottla.client.wire.scram import NONCE_BYTES, Scram  # noqa: PLC0415

    return Scram(credentials, rng.random_bytes(NONCE_BYTES))


def _check_handshake(answer: SaslHandshakeResponse, mechanism: str) -> None:
    if answer.error_code != ErrorCode.NONE:
        offered = ", ".join(answer.mechanisms) or "none"
        why = f"{mechanism} is not enabled at the broker; it offers {offered}"
        raise KafkaError(error_code(answer.error_code), why)
