"""A client's tokens: had from an endpoint, a file or a function, and kept until it is time.

Owns the one token of each source in this process, which all its connections share. Blocks; the
asyncio client calls it on a thread. ``wire.oauth`` knows what is asked and answered.
"""

import importlib
from functools import lru_cache

from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.oauth import (
    RENEW_SHARE,
    TOKEN_BYTES_MAX,
    Token,
    TokenSource,
    TokenUnusable,
    credentials_request,
    read_answer,
    read_refusal,
    read_token,
)
from ottla.client.wire.settings import Address
from ottla.env.blocking import BlockingClock, new_lock
from ottla.env.tls import TlsFiles
from ottla.env.web import WebFailed, fetch
from ottla.errors import ErrorCode, KafkaError

FETCH_SECONDS = 10.0
_REFUSALS = range(400, 500)
"""What an endpoint answers to a client that it does not want: there is no use in asking again."""


class Tokens:
    """The tokens of one source. For use from any thread."""

    def __init__(self, source: TokenSource, clock: BlockingClock | None = None) -> None:
        self._source = source
        self._clock = clock or BlockingClock()
        self._lock = new_lock()
        self._token: Token | None = None
        self._had = 0.0
        """When, by the monotonic clock."""

    def current(self, address: Address) -> str:
        """Return a token that is good for a while, renewed if it is time. Blocks.

        ``address``: the broker that it is for. Raises ConnectionFailed when there is none now,
        KafkaError SASL_AUTHENTICATION_FAILED when there never will be.
        """
        with self._lock:
            kept = self._token
            if kept is not None and self._lasts(kept, RENEW_SHARE):
                return kept.text
            asked = self._clock.monotonic()
            try:
                token = self._ask()
            except (WebFailed, TokenUnusable) as error:
                if kept is not None and self._lasts(kept, 1):
                    return kept.text
                raise _failure(address, error) from error
            self._token, self._had = token, asked
            return token.text

    def _lasts(self, token: Token, share: float) -> bool:
        if token.seconds is None:
            return False
        return self._clock.monotonic() - self._had < token.seconds * share

    def _ask(self) -> Token:
        source, now = self._source, self._clock.wall()
        if source.provider:
            return _read_provided(_called(source.provider), now)
        is_file = source.endpoint.startswith("file:")
        body, headers = (None, {}) if is_file else credentials_request(source)
        answer = fetch(
            source.endpoint,
            seconds=FETCH_SECONDS,
            bytes_max=TOKEN_BYTES_MAX,
            tls=TlsFiles(ca_file=source.ca_file),
            body=body,
            headers=headers,
        )
        if is_file:
            return read_token(answer.decode(errors="replace"), now)
        return read_answer(answer, now)


@lru_cache(maxsize=64)
def tokens_of(source: TokenSource) -> Tokens:
    """Return the tokens of a source: one object in a process."""
    return Tokens(source)


def _failure(address: Address, error: WebFailed | TokenUnusable) -> ConnectionFailed | KafkaError:
    if isinstance(error, WebFailed) and error.status in _REFUSALS:
        said = read_refusal(error.body)
        why = f"no token: {error}{f' ({said})' if said else ''}"
        return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, why)
    return ConnectionFailed(*address, f"no token: {error}")


def _called(provider: str) -> object:
    """Return what the function of ``MODULE:FUNCTION`` returns. Raises TokenUnusable."""
    module, _, path = provider.partition(":")
    try:
        found: object = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise TokenUnusable(f"{provider} cannot be imported: {error}") from error
    if not callable(found):
        raise TokenUnusable(f"{provider} is no function")
    return found()


def _read_provided(given: object, now: float) -> Token:
    """Return the token that a function gave: a text, or a text and its end in s since 1970."""
    if isinstance(given, str):
        return read_token(given, now)
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        ends = given[1]
        if isinstance(ends, (int, float)) and not isinstance(ends, bool):
            return read_token(given[0], now)._replace(seconds=max(ends - now, 0))
    raise TokenUnusable("expected a token, or a token and its end in seconds since 1970")
