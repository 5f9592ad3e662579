"""OAUTHBEARER, the client's half: where a token comes from, how it is asked for, what it says.

Owns the options, the request for client credentials and its answer, when a token is to be renewed,
and the messages to the broker. No I/O: ``client.tokens`` asks. Nothing here shows a secret.

    sasl.oauthbearer.token.endpoint.url       https://..., or file:///... for a file with a token
    sasl.oauthbearer.client.credentials.client.id, .client.secret   (Java, newer)
    sasl.oauthbearer.client.id, .client.secret                      (librdkafka)
    sasl.jaas.config                          Java's line with clientId, clientSecret, scope
    sasl.oauthbearer.scope
    sasl.oauthbearer.extensions               name=value,...; in Java's line extension_NAME
    sasl.oauthbearer.header.urlencode         true: encode id and secret as RFC 6749 says
    https.ca.location                         PEM file of who signs the endpoint's certificate
    ottla.oauthbearer.token.provider          MODULE:FUNCTION, which returns a token

Source: RFC 6749 (4.4), RFC 7628; KIP-255, KIP-342, KIP-768; librdkafka's configuration.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote_plus, urlencode

from ottla.config.option import InvalidConfig

OAUTHBEARER = "OAUTHBEARER"
TOKEN_BYTES_MAX = 256 * 1024
"""The largest answer of a token endpoint, or file."""
RENEW_SHARE = 0.8
"""A token is renewed when it has had this share of its life (Kafka's sasl.login.refresh.*)."""

ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_ID = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
_SECRET = ("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret")
_SCOPE = "sasl.oauthbearer.scope"
_EXTENSIONS = "sasl.oauthbearer.extensions"
_ENCODE = "sasl.oauthbearer.header.urlencode"
_CA = "https.ca.location"
_METHOD = "sasl.oauthbearer.method"
_HANDLER = "sasl.login.callback.handler.class"
PROVIDER = "ottla.oauthbearer.token.provider"
NAMES = (ENDPOINT, *_ID, *_SECRET, _SCOPE, _EXTENSIONS, _ENCODE, _CA, _METHOD, _HANDLER, PROVIDER)
"""Every option that ``read_token_source`` knows."""
_HANDLER_ENDING = "OAuthBearerLoginCallbackHandler"
_PROVIDER_FORM = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Where a client's tokens come from."""

    endpoint: str = ""
    """The URL of a token endpoint or file; empty: ``provider`` gives tokens."""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = ()
    encodes_header: bool = False
    ca_file: str | None = None
    provider: str = ""
    """MODULE:FUNCTION."""


class Token(NamedTuple):
    """A token, and for how many seconds from when it was had it is good; None: nobody knows."""

    text: str
    seconds: float | None

    def __repr__(self) -> str:
        return f"Token(..., {self.seconds})"


class TokenUnusable(ValueError):
    """What was given is no token; the text says why, without any of it."""


def read_token_source(texts: Mapping[str, str], jaas: Mapping[str, str]) -> TokenSource:
    """Return what the options mean; ``jaas``: those of the login module. Raises InvalidConfig."""
    method = texts.get(_METHOD, "oidc").strip().lower()
    if method not in ("oidc", "default"):
        raise InvalidConfig(_METHOD, method, "expected oidc")
    handler = texts.get(_HANDLER, _HANDLER_ENDING)
    if handler.rpartition(".")[2] != _HANDLER_ENDING:
        why = f"Java classes cannot be loaded; {PROVIDER} names a function of Python"
        raise InvalidConfig(_HANDLER, handler, why)
    source = TokenSource(
        endpoint=texts.get(ENDPOINT, "").strip(),
        client_id=_first(texts, _ID) or jaas.get("clientId", ""),
        client_secret=_first(texts, _SECRET) or jaas.get("clientSecret", ""),
        scope=texts.get(_SCOPE, "") or jaas.get("scope", ""),
        extensions=_read_extensions(texts.get(_EXTENSIONS, ""), jaas),
        encodes_header=texts.get(_ENCODE, "false").strip().lower() == "true",
        ca_file=texts.get(_CA) or jaas.get("ssl.truststore.location"),
        provider=texts.get(PROVIDER, "").strip(),
    )
    _check(source)
    return source


def _first(texts: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((texts[name] for name in names if texts.get(name)), "")


def _check(source: TokenSource) -> None:
    if bool(source.endpoint) == bool(source.provider):
        why = f"OAUTHBEARER needs {ENDPOINT} (https:// or file://) or {PROVIDER}, and not both"
        raise InvalidConfig(ENDPOINT, None, why)
    if source.provider and not _PROVIDER_FORM.fullmatch(source.provider):
        raise InvalidConfig(PROVIDER, source.provider, "expected MODULE:FUNCTION")
    scheme = source.endpoint.partition(":")[0]
    if source.endpoint and scheme not in ("https", "http", "file"):
        raise InvalidConfig(ENDPOINT, None, f"{ENDPOINT}: expected https://... or file:///...")
    if scheme.startswith("http") and not (source.client_id and source.client_secret):
        raise InvalidConfig(_ID[0], None, f"{ENDPOINT} needs {_ID[0]} and {_SECRET[0]}")


def _read_extensions(text: str, jaas: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    pairs = [pair.partition("=")[::2] for pair in text.split(",") if pair.strip()]
    begin = "extension_"
    pairs += [(name[len(begin) :], jaas[name]) for name in jaas if name.startswith(begin)]
    found = tuple((name.strip(), value) for name, value in pairs)
    for name, value in found:
        is_name = _EXTENSION_NAME.fullmatch(name) and name != "auth"
        if not is_name or not _EXTENSION_VALUE.fullmatch(value):
            raise InvalidConfig(_EXTENSIONS, None, f"{_EXTENSIONS}: expected NAME=VALUE,... ")
    return found


def credentials_request(source: TokenSource) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of the request for a token."""
    encode = quote_plus if source.encodes_header else str
    pair = f"{encode(source.client_id)}:{encode(source.client_secret)}"
    form = {"grant_type": "client_credentials"}
    if source.scope:
        form["scope"] = source.scope
    headers = {
        "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return urlencode(form).encode(), headers


def read_answer(body: bytes, now: float) -> Token:
    """Return the token in an endpoint's answer. ``now``: wall time in s. Raises TokenUnusable."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise TokenUnusable("the answer is no JSON") from None
    text = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(text, str):
        raise TokenUnusable("the answer has no access_token")
    seconds = answer.get("expires_in")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return read_token(text, now)
    return Token(_checked(text), max(float(seconds), 0))


def read_token(text: str, now: float) -> Token:
    """Return a token of which only the text is known; its claim ``exp`` says when it ends."""
    good = _checked(text.strip())
    try:
        part = good.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return Token(good, max(float(claims["exp"]) - now, 0))
    except (ValueError, LookupError, TypeError, RecursionError, OverflowError):
        return Token(good, None)  # It is the broker's to judge.


def read_refusal(body: bytes) -> str:
    """Return the ``error`` of a token endpoint that refused (RFC 6749, 5.2); "" without one."""
    try:
        answer = json.loads(body)
        error = answer["error"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return error if isinstance(error, str) and re.fullmatch(r"[\w .-]{1,64}", error) else ""


def _checked(text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise TokenUnusable("a token has letters, digits and ._~+/-= only")
    return text


class Bearer:
    """The exchange: one message, and one byte more when the broker refuses it."""

    def __init__(self, token: str, extensions: tuple[tuple[str, str], ...]) -> None:
        pairs = "".join(f"{name}={value}\x01" for name, value in extensions)
        self._message = f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()

    def first(self) -> bytes:
        """Return the message."""
        return self._message

    def next(self, answer: bytes) -> bytes | None:
        """Return None, or what asks for the error that ``answer`` announces."""
        return b"\x01" if answer else None
