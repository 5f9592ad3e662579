"""The options of OAUTHBEARER, and of the time after which clients have to log in again.

Owns ``sasl.oauthbearer.*`` and ``connections.max.reauth.ms``, for all listeners, for one
(``listener.name.<listener>.<option>``) and for one mechanism of one
(``listener.name.<listener>.<mechanism>.<option>``), the most particular first. Fetches no keys.
Source: Kafka's broker configuration reference; KIP-255, KIP-368, KIP-768.
"""

from typing import NamedTuple, TypeVar

from ottla.config.bounds import NOT_NEGATIVE, POSITIVE
from ottla.config.config import Config
from ottla.config.option import INT, LIST, LONG, STRING, InvalidConfig, Option

T = TypeVar("T")

OAUTHBEARER = "OAUTHBEARER"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
"""Kafka's names of what Ottla always does: check tokens against a key set."""

# fmt: off - one option is one paragraph
MAX_REAUTH_MS = Option(
    "connections.max.reauth.ms",
    LONG,
    0,
    "How long a session of a client that has authenticated lasts at most. The client is told, and"
    " authenticates again on the same connection; a connection that does not is closed at its next"
    " request. 0: no limit, except that a token's session ends with the token. For one mechanism of"
    " one listener: listener.name.<listener>.<mechanism>.connections.max.reauth.ms.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
JWKS_URL: Option[str | None] = Option(
    "sasl.oauthbearer.jwks.endpoint.url",
    STRING,
    None,
    "Where the issuer of tokens publishes the keys (JWKS) that OAUTHBEARER checks their signatures"
    " by: https://..., or file:///.... It is read at the start, every"
    " sasl.oauthbearer.jwks.endpoint.refresh.ms, and when a token names a key that is not known.",
)
JWKS_REFRESH_MS = Option(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    LONG,
    3_600_000,
    "How often the keys are read again.",
    validator=POSITIVE,
    unit="ms",
)
JWKS_RETRY_BACKOFF_MS = Option(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    LONG,
    100,
    "The pause before the keys are asked for again after a failure; it doubles each time.",
    validator=POSITIVE,
    unit="ms",
)
JWKS_RETRY_BACKOFF_MAX_MS = Option(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    LONG,
    10_000,
    "The longest such pause. A start without keys fails after this time.",
    validator=POSITIVE,
    unit="ms",
)
CLOCK_SKEW_SECONDS = Option(
    "sasl.oauthbearer.clock.skew.seconds",
    INT,
    30,
    "How far the clocks of the issuer and the broker may differ.",
    validator=NOT_NEGATIVE,
    unit="s",
)
EXPECTED_AUDIENCE: Option[tuple[str, ...]] = Option(
    "sasl.oauthbearer.expected.audience",
    LIST,
    (),
    "A token must be for one of these audiences (its claim aud). Not set: for anybody.",
)
EXPECTED_ISSUER: Option[str | None] = Option(
    "sasl.oauthbearer.expected.issuer",
    STRING,
    None,
    "A token must be of this issuer (its claim iss). Not set: of any who has the keys.",
)
SCOPE_CLAIM_NAME = Option(
    "sasl.oauthbearer.scope.claim.name", STRING, "scope", "The claim with a token's scopes."
)
SUB_CLAIM_NAME = Option(
    "sasl.oauthbearer.sub.claim.name", STRING, "sub", "The claim with the user's name."
)
# fmt: on
OAUTH = (
    MAX_REAUTH_MS,
    JWKS_URL,
    JWKS_REFRESH_MS,
    JWKS_RETRY_BACKOFF_MS,
    JWKS_RETRY_BACKOFF_MAX_MS,
    CLOCK_SKEW_SECONDS,
    EXPECTED_AUDIENCE,
    EXPECTED_ISSUER,
    SCOPE_CLAIM_NAME,
    SUB_CLAIM_NAME,
)
_HANDLER: Option[str | None] = Option(
    "sasl.server.callback.handler.class",
    STRING,
    None,
    "Java's class that checks tokens. Ottla checks them as Kafka's"
    " OAuthBearerValidatorCallbackHandler does, and takes that name only.",
)
_BY_KEY: dict[str, Option[object]] = {option.key: option for option in OAUTH}


class TokenRules(NamedTuple):
    """How the tokens of one listener are judged."""

    jwks_url: str
    ca_file: str | None
    """PEM file of what the certificate of ``jwks_url`` must be signed by; None: the system's."""
    refresh_ms: int
    retry_ms: int
    retry_max_ms: int
    skew_seconds: int
    audiences: tuple[str, ...]
    """A token must be for one of them; none: for anybody."""
    issuer: str | None
    scope_claim: str
    subject_claim: str


def oauth_option_of(listener: str, mechanism: str, key: str) -> Option[object] | None:
    """Return the option ``key`` for one listener and mechanism; None when there is no such option.

    ``mechanism`` empty: for all of the listener's. Its default is None: then the less particular
    option decides.
    """
    option = _BY_KEY.get(key)
    if key == _HANDLER.key and mechanism == OAUTHBEARER:
        option = _HANDLER
    if option is None or (mechanism not in ("", OAUTHBEARER) and option is not MAX_REAUTH_MS):
        return None
    return Option(
        _particular(listener, mechanism, key),
        option.type,
        None,
        option.doc,
        option.scope,
        option.validator,
    )


def max_reauth_ms_of(config: Config, listener: str, mechanism: str) -> int:
    """Return ``connections.max.reauth.ms`` of one mechanism of one listener; 0: no limit."""
    return _value(config, listener, mechanism, MAX_REAUTH_MS)


def token_rules_of(config: Config, listener: str, ca_file: str | None) -> TokenRules:
    """Return how the tokens of one listener are judged. Raises InvalidConfig."""
    handler = config[_own(listener, OAUTHBEARER, _HANDLER)]
    if handler is not None and handler not in _HANDLERS:
        why = f"Java classes cannot be loaded; the one that Ottla stands for is {_HANDLERS[0]}"
        raise InvalidConfig(_HANDLER.key, handler, f"Listener {listener}: {why}")

    def value(option: Option[T]) -> T:
        return _value(config, listener, OAUTHBEARER, option)

    url = value(JWKS_URL)
    if not url:
        why = (
            f"Listener {listener}: OAUTHBEARER needs {JWKS_URL.key}, the keys that tokens are "
            "signed by; tokens without a signature (Kafka's default) are not served"
        )
        raise InvalidConfig(JWKS_URL.key, None, why)
    _check_url(listener, url)
    if not value(SUB_CLAIM_NAME) or not value(SCOPE_CLAIM_NAME):
        raise InvalidConfig(SUB_CLAIM_NAME.key, None, f"Listener {listener}: a claim has a name")
    return TokenRules(
        jwks_url=url,
        ca_file=ca_file,
        refresh_ms=value(JWKS_REFRESH_MS),
        retry_ms=value(JWKS_RETRY_BACKOFF_MS),
        retry_max_ms=value(JWKS_RETRY_BACKOFF_MAX_MS),
        skew_seconds=value(CLOCK_SKEW_SECONDS),
        audiences=value(EXPECTED_AUDIENCE),
        issuer=value(EXPECTED_ISSUER),
        scope_claim=value(SCOPE_CLAIM_NAME),
        subject_claim=value(SUB_CLAIM_NAME),
    )


def _check_url(listener: str, url: str) -> None:
    from urllib.parse import urlsplit  # noqa: PLC0415 - 6 ms, and few listeners have such a URL

    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_file = parts.scheme == "file" and not host and parts.path.startswith("/")
        is_safe = parts.scheme == "https" and bool(host)
        is_safe = is_safe or (parts.scheme == "http" and host in _LOOPBACK)
        _ = parts.port  # It raises for what is no port.
    except ValueError:
        is_file = is_safe = False
    if not is_file and not is_safe:
        why = (
            f"Listener {listener}: {JWKS_URL.key}: expected https://HOST/PATH or file:///PATH; by "
            "plain http (which only loopback addresses may use) anybody on the way could put keys "
            "of his own there"
        )
        raise InvalidConfig(JWKS_URL.key, None, why)


def _particular(listener: str, mechanism: str, key: str) -> str:
    middle = f"{mechanism.lower()}." if mechanism else ""
    return f"listener.name.{listener.lower()}.{middle}{key}"


def _own(listener: str, mechanism: str, option: Option[T]) -> Option[T | None]:
    key = _particular(listener, mechanism, option.key)
    return Option(key, option.type, None, option.doc, option.scope)


def _value(config: Config, listener: str, mechanism: str, option: Option[T]) -> T:
    for each in (_own(listener, mechanism, option), _own(listener, "", option)):
        if config.is_given(each):
            found = config[each]
            if found is not None:
                return found
    return config[option]
