"""SASL, the broker's half: serves a client until it has proved its identity.

Owns the order of requests on one connection: perhaps ApiVersions, then SaslHandshake, then tokens,
which travel in SaslAuthenticate (after a handshake of v1) or bare (v0). Anything out of order
closes the connection. A refusal is sent after a delay, so that guessing takes time, and then the
connection is closed. Knows no mechanism.
Source: Kafka's protocol guide, SASL; KIP-43, KIP-152; the answers of a live Kafka 4.3.

    state          what may come; anything else
    at first       ApiVersions once; SaslHandshake; else close
    handshake done SaslAuthenticate (v1) or a bare token (v0); else ILLEGAL_SASL_STATE, or close
    proved         the router's dispatch takes the place of this one

A session may have an end (KIP-368). Then the client logs in again on the same connection, with the
same mechanism and as the same user, from the handshake on.
"""

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol, cast

from ottla.env.clock import Clock
from ottla.errors import CloseConnection, ErrorCode
from ottla.handlers.call import Answer
from ottla.handlers.client import Client
from ottla.handlers.refusals import Refusals
from ottla.handlers.session import Dispatch, Session, dispatch_until_end, lifetime_ms
from ottla.ids import Principal
from ottla.pending import Pending
from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.header import (
    LENGTH_BYTES,
    RequestHeader,
    decode_request_header,
    encode_response_header,
)
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.primitives import Splices
from ottla.protocol.schema import Message
from ottla.security.exchange import AuthenticationRefused, Exchange, OpenExchange, Proved

FRAMES_MAX = 10
"""The most frames before the identity is proved: no mechanism needs more."""
FRAME_BYTES_MIN = 8
TOKEN_BYTES_MIN = 2
"""The shortest bare token."""
_BARE_TOKENS = 0
"""The version of SaslHandshake after which tokens travel bare."""
_LENGTH = struct.Struct(">i")


class Entrance(Protocol):
    """What an authentication needs of its connection."""

    def confine(self, *, frame_bytes_min: int, frame_bytes_max: int, seconds: float) -> None:
        """Limit the size of frames, and the time until ``let_in``."""

    def let_in(self, dispatch: Dispatch) -> None:
        """Have ``dispatch`` serve all further frames, without these limits."""


class Terms(NamedTuple):
    """How a listener authenticates its clients."""

    mechanisms: Mapping[str, OpenExchange]
    """By name, in the order in which clients see them."""
    frame_bytes_max: int
    """``sasl.server.max.receive.size``."""
    delay_seconds: float
    """``connection.failed.authentication.delay.ms``: the delay of a refusal."""
    seconds: float
    """``ottla.authentication.timeout.ms``: the time from the connect to the proof."""
    clock: Clock
    refusals: Refusals
    reauth_ms: Mapping[str, int] = MappingProxyType({})
    """``connections.max.reauth.ms`` by mechanism; 0, or none: no limit."""


class Authentication:
    """The authentication of one connection; ``dispatch`` serves its frames until then."""

    def __init__(
        self,
        terms: Terms,
        client: Client,
        entrance: Entrance,
        *,
        serve_versions: Callable[[memoryview, Client], object],
        let_in: Callable[[Client], Dispatch],
        session: Session | None = None,
    ) -> None:
        """Build it; ``serve_versions`` serves ApiVersions; ``let_in`` returns the next dispatch.

        ``session``: the one that ends, of a client that logs in again; None: it does so first.
        """
        self._terms = terms
        self._client = client
        self._entrance = entrance
        self._serve_versions = serve_versions
        self._let_in = let_in
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._takes_bare_tokens = False
        self._knows_versions = False
        self._frames = 0
        self._session = session
        self._lifetime_ms = 0  # What the client is told of its new session.
        self._confine(FRAME_BYTES_MIN)

    def _confine(self, frame_bytes_min: int) -> None:
        if self._session is None:  # Who logs in again is known: it keeps its connection's limits.
            self._entrance.confine(
                frame_bytes_min=frame_bytes_min,
                frame_bytes_max=self._terms.frame_bytes_max,
                seconds=self._terms.seconds,
            )

    def dispatch(self, frame: memoryview) -> Answer | Pending[Answer | None] | None:
        """Serve one frame. Raises CloseConnection or MalformedMessage to close the connection."""
        self._frames += 1
        if self._frames > FRAMES_MAX:
            raise CloseConnection(f"{FRAMES_MAX} requests, and no authentication")
        if self._takes_bare_tokens:
            return self._take_bare_token(bytes(frame))
        header = decode_request_header(frame, 0, len(frame))
        if self._exchange is not None:
            return self._take_token(header, frame, self._exchange)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            return self._shake_hands(header, frame)
        if header.api_key == ApiKey.API_VERSIONS and not self._knows_versions:
            # A client that asks in an unknown version is told the known ones, and may ask again.
            self._knows_versions = _is_known(header)
            return cast(Answer, self._serve_versions(frame, self._client))
        raise CloseConnection(f"API {header.api_key} before authentication")

    def shake_hands(self, frame: memoryview) -> Answer | Pending[Answer | None]:
        """Serve the SaslHandshake that begins a re-authentication. Raises as ``dispatch``."""
        self._frames += 1
        return self._shake_hands(decode_request_header(frame, 0, len(frame)), frame)

    def _shake_hands(
        self, header: RequestHeader, frame: memoryview
    ) -> Answer | Pending[Answer | None]:
        request = cast("SaslHandshakeRequest", _decoded(header, frame))
        offered = list(self._terms.mechanisms)
        open_exchange = self._terms.mechanisms.get(request.mechanism)
        if open_exchange is None:
            shown = request.mechanism[:64]
            self._terms.refusals.note(self._client.host, "", f"mechanism {shown!r} is not enabled")
            if self._session is not None:
                raise CloseConnection("a re-authentication with another mechanism")
            response = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered
            )
            return self._refuse(_encoded(header, response))
        self._mechanism, self._exchange = request.mechanism, open_exchange()
        if header.api_version == _BARE_TOKENS:
            self._takes_bare_tokens = True
            self._confine(TOKEN_BYTES_MIN)
        return [_encoded(header, SaslHandshakeResponse(mechanisms=offered))]

    def _take_token(
        self, header: RequestHeader, frame: memoryview, exchange: Exchange
    ) -> Answer | Pending[Answer | None]:
        if header.api_key != ApiKey.SASL_AUTHENTICATE:
            return self._refuse_out_of_turn(header)
        request = cast("SaslAuthenticateRequest", _decoded(header, frame))
        try:
            token = self._take(exchange, bytes(request.auth_bytes))
        except AuthenticationRefused as refused:
            self._note(refused)
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=str(refused),
                auth_bytes=b"",
            )
            return self._refuse(_encoded(header, response))
        response = SaslAuthenticateResponse(
            error_message="", auth_bytes=token, session_lifetime_ms=self._lifetime_ms
        )
        return [_encoded(header, response)]

    def _take_bare_token(self, token: bytes) -> Answer | Pending[Answer | None]:
        assert self._exchange is not None, "a handshake came before"
        try:
            answer = self._take(self._exchange, token)
        except AuthenticationRefused as refused:
            self._note(refused)
            return self._refuse(b"")
        return [_LENGTH.pack(len(answer)) + answer]

    def _take(self, exchange: Exchange, token: bytes) -> bytes:
        """Return the token for the client; let it in if it has proved its identity.

        Raises AuthenticationRefused, CloseConnection.
        """
        before = self._session
        if before is not None and before.mechanism != self._mechanism:
            raise CloseConnection("a re-authentication with another mechanism")
        outcome = exchange.step(token)
        if not isinstance(outcome, Proved):
            return outcome
        if before is not None and before.principal != outcome.principal:
            raise AuthenticationRefused(
                "Cannot change principals during re-authentication from "
                f"{_named(before.principal)}: {_named(outcome.principal)}",
                outcome.principal.name,
            )
        self._enter(outcome)
        return outcome.token

    def _enter(self, proved: Proved) -> None:
        """Have the router serve the client, until its session ends if it does."""
        client = self._client._replace(principal=proved.principal)
        before, clock = self._session, self._terms.clock
        serve = self._let_in(client) if before is None else before.serve
        left_ms = lifetime_ms(
            clock.wall_ms(),
            reauth_ms=self._terms.reauth_ms.get(self._mechanism, 0),
            expires_ms=proved.expires_ms,
        )
        if left_ms is None:
            self._entrance.let_in(serve)
            return
        self._lifetime_ms = left_ms
        began_again = None if before is None else before.began_again
        ends = clock.monotonic() + left_ms / 1000
        session = Session(proved.principal, self._mechanism, serve, ends, began_again)
        self._entrance.let_in(dispatch_until_end(session, clock, self._begin_again))

    def _begin_again(self, session: Session, frame: memoryview) -> Answer | Pending[Answer | None]:
        """Serve the handshake of a client that logs in again."""
        again = Authentication(
            self._terms,
            self._client,
            self._entrance,
            serve_versions=self._serve_versions,
            let_in=self._let_in,
            session=session,
        )
        self._entrance.let_in(again.dispatch)
        return again.shake_hands(frame)

    def _refuse_out_of_turn(self, header: RequestHeader) -> Pending[Answer | None]:
        """Refuse a request that comes instead of a token, by its response if that has a code."""
        key, code = header.api_key, ErrorCode.ILLEGAL_SASL_STATE
        response: Message | None = None
        if key == ApiKey.SASL_HANDSHAKE:
            offered = list(self._terms.mechanisms)
            response = SaslHandshakeResponse(error_code=code, mechanisms=offered)
        elif key == ApiKey.API_VERSIONS:
            response = API_TABLE[ApiKey.API_VERSIONS].response(error_code=code, api_keys=[])
        is_told = response is not None and _is_known(header)
        return self._refuse(_encoded(header, cast(Message, response)) if is_told else b"")

    def _refuse(self, answer: bytes) -> Pending[Answer | None]:
        """Send ``answer`` (empty: nothing) after the delay, and close the connection."""
        pending: Pending[Answer | None] = Pending()
        last = (answer,) if answer else ()

        def tell() -> None:
            if not pending.is_done:
                pending.fail(CloseConnection("authentication failed", last))

        timer = self._terms.clock.call_later(self._terms.delay_seconds, tell)
        pending.on_cancel(timer.cancel)
        return pending

    def _note(self, refused: AuthenticationRefused) -> None:
        self._terms.refusals.note(self._client.host, refused.name, refused.noted)


def _named(principal: Principal) -> str:
    """Return a principal as Kafka writes it in a refusal."""
    return f"{principal.kind}.{principal.name}"


def _is_known(header: RequestHeader) -> bool:
    return header.api_version in API_TABLE[ApiKey(header.api_key)].versions


def _decoded(header: RequestHeader, frame: memoryview) -> Message:
    if not _is_known(header):
        raise CloseConnection(f"API {header.api_key} has no version {header.api_version}")
    decode = API_TABLE[ApiKey(header.api_key)].request.decoder(header.api_version)
    message, _ = decode(frame, header.position, len(frame))
    return message


def _encoded(header: RequestHeader, response: Message) -> bytes:
    key, version = header.api_key, header.api_version
    out = bytearray(LENGTH_BYTES) + encode_response_header(key, version, header.correlation_id)
    splices: Splices = []
    API_TABLE[ApiKey(key)].response.encoder(version)(response, out, splices)
    assert not splices, "no answer here carries records"
    _LENGTH.pack_into(out, 0, len(out) - LENGTH_BYTES)
    return bytes(out)
