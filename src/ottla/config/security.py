"""The options of authentication, and what they mean together for each listener.

Owns these options, also those for a single listener
(``listener.name.<listener>.[<mechanism>.]<option>``, in lower case). A configuration that cannot be
served is refused here, before anything starts: no option that somebody relies on is ignored.
Source: Kafka's broker configuration reference; KIP-103, KIP-255.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ottla.config.bounds import NOT_NEGATIVE, POSITIVE
from ottla.config.config import Config
from ottla.config.listeners import Endpoint, ProtocolMap, read_protocol_map
from ottla.config.oauth import (
    OAUTH,
    OAUTHBEARER,
    TokenRules,
    max_reauth_ms_of,
    oauth_option_of,
    token_rules_of,
)
from ottla.config.option import INT, LIST, LONG, InvalidConfig, Option, ValueType, each_of
from ottla.config.quota import MAX_CONNECTION_CREATION_RATE, rate_of_listener
from ottla.config.tls import mapping_rules_of, tls_files_of, tls_option_of

if TYPE_CHECKING:  # A broker without logins and TLS loads none of them.
    from ottla.config.jaas import JaasLine
    from ottla.config.mapping_rules import MappingRules
    from ottla.env.server_tls import ServerTlsFiles

PLAINTEXT = "PLAINTEXT"
SASL_PLAINTEXT = "SASL_PLAINTEXT"
SSL = "SSL"
SASL_SSL = "SASL_SSL"
PLAIN = "PLAIN"
SERVED_MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
LOOPBACK = ("127.0.0.1", "localhost", "::1")

PROTOCOL_MAP = ValueType("STRING", 2, read_protocol_map)


def _read_jaas_line(text: str) -> "JaasLine":
    from ottla.config.jaas import read_jaas_line  # noqa: PLC0415 - few listeners have such a line

    return read_jaas_line(text)


PASSWORD_LINE = ValueType("PASSWORD", 9, _read_jaas_line)

# fmt: off - one option is one paragraph
LISTENER_SECURITY_PROTOCOL_MAP = Option(
    "listener.security.protocol.map",
    PROTOCOL_MAP,
    ProtocolMap(
        {
            "SASL_SSL": "SASL_SSL",
            "PLAINTEXT": "PLAINTEXT",
            "SSL": "SSL",
            "SASL_PLAINTEXT": "SASL_PLAINTEXT",
        }
    ),
    "The security protocol of each listener: PLAINTEXT (no authentication), SSL (TLS, perhaps with"
    " clients' certificates), SASL_PLAINTEXT (authentication over an unencrypted connection) or"
    " SASL_SSL (authentication over TLS).",
)
SASL_ENABLED_MECHANISMS: Option[tuple[str, ...]] = Option(
    "sasl.enabled.mechanisms",
    LIST,
    (),
    "The mechanisms by which clients may authenticate: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512,"
    " OAUTHBEARER. For one listener: listener.name.<listener>.sasl.enabled.mechanisms.",
    validator=each_of(*SERVED_MECHANISMS),
    deviates="Kafka's is GSSAPI, which is not served. A SASL listener needs a mechanism.",
)
SASL_SERVER_MAX_RECEIVE_SIZE = Option(
    "sasl.server.max.receive.size",
    INT,
    524_288,
    "The largest request of a client that has not authenticated yet.",
    validator=POSITIVE,
    unit="bytes",
)
FAILED_AUTHENTICATION_DELAY_MS = Option(
    "connection.failed.authentication.delay.ms",
    INT,
    100,
    "The delay before a client is told that its authentication failed, so that guessing takes"
    " time.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
AUTHENTICATION_TIMEOUT_MS = Option(
    "ottla.authentication.timeout.ms",
    LONG,
    10_000,
    "How soon after connecting a client must have completed the TLS handshake and authenticated, on"
    " a listener that requires them.",
    validator=POSITIVE,
    unit="ms",
)
SCRAM_CREDENTIALS_MAX = Option(
    "ottla.scram.credentials.max",
    INT,
    20_000,
    "How many SCRAM credentials all users may have; creating more is refused with"
    " POLICY_VIOLATION.",
    validator=POSITIVE,
)
# fmt: on
SECURITY = (
    LISTENER_SECURITY_PROTOCOL_MAP,
    SASL_ENABLED_MECHANISMS,
    SASL_SERVER_MAX_RECEIVE_SIZE,
    FAILED_AUTHENTICATION_DELAY_MS,
    AUTHENTICATION_TIMEOUT_MS,
    SCRAM_CREDENTIALS_MAX,
    *OAUTH,
)

_OF_LISTENER = re.compile(r"listener\.name\.(?P<listener>[a-z0-9_-]+)\.(?P<rest>.+)")
_JAAS = "sasl.jaas.config"
_MODULES = {PLAIN: "PlainLoginModule", OAUTHBEARER: "OAuthBearerLoginModule"}
"""The login module of each mechanism that is not SCRAM."""


class ServedListener(NamedTuple):
    """One listener: its address, and how its clients authenticate."""

    endpoint: Endpoint
    protocol: str
    """One of ``listeners.PROTOCOLS``."""
    mechanisms: tuple[str, ...] = ()
    """Some of SERVED_MECHANISMS; none: clients need not authenticate."""
    passwords: Mapping[str, str] = MappingProxyType({})
    """Passwords by user name, for PLAIN."""
    tls: "ServerTlsFiles | None" = None
    """None: no TLS."""
    mapping_rules: "MappingRules | None" = None
    """How clients' certificates name users; None: they do not."""
    reauth_ms: Mapping[str, int] = MappingProxyType({})
    """By mechanism, how long a session lasts at most; 0: no limit."""
    tokens: TokenRules | None = None
    """How tokens are judged, for OAUTHBEARER; None: there are none."""

    def __repr__(self) -> str:
        # The passwords stay out of logs.
        return f"ServedListener({self.endpoint}, {self.protocol}, {self.mechanisms})"


def of_one_listener(key: str) -> Option[object] | None:
    """Return the option that ``key`` sets for one listener; None when it is no such key."""
    match = _OF_LISTENER.fullmatch(key)
    if match is None:
        return None
    rest = match["rest"]
    if rest.startswith("ssl."):
        return tls_option_of(match["listener"], rest)
    if rest == MAX_CONNECTION_CREATION_RATE.key:
        return rate_of_listener(match["listener"])
    if rest == SASL_ENABLED_MECHANISMS.key:
        return _mechanisms_of(match["listener"])
    for mechanism in SERVED_MECHANISMS:
        if rest == f"{mechanism.lower()}.{_JAAS}":
            return _jaas_of(match["listener"], mechanism)
        if rest.startswith(f"{mechanism.lower()}."):
            return oauth_option_of(match["listener"], mechanism, rest.partition(".")[2])
    return oauth_option_of(match["listener"], "", rest)


def _mechanisms_of(listener: str) -> Option[tuple[str, ...]]:
    return Option(
        f"listener.name.{listener.lower()}.{SASL_ENABLED_MECHANISMS.key}",
        LIST,
        (),
        SASL_ENABLED_MECHANISMS.doc,
        validator=each_of(*SERVED_MECHANISMS),
    )


def _jaas_of(listener: str, mechanism: str) -> "Option[JaasLine | None]":
    return Option(
        f"listener.name.{listener.lower()}.{mechanism.lower()}.{_JAAS}",
        PASSWORD_LINE,
        None,
        'The login module; for PLAIN with the users, as user_NAME="PASSWORD".',
        sensitive=True,
    )


def served_listeners(
    config: Config, listeners: tuple[Endpoint, ...], advertised: tuple[Endpoint, ...]
) -> tuple[ServedListener, ...]:
    """Return each listener with its mechanisms. Raises InvalidConfig if one cannot be served."""
    names = {endpoint.name for endpoint in listeners}
    for endpoint in advertised:
        if endpoint.name not in names:
            why = f"advertised.listeners: there is no listener {endpoint.name}"
            raise InvalidConfig("advertised.listeners", None, why)
    for key in config.given():
        match = _OF_LISTENER.fullmatch(key)
        if match is not None and match["listener"].upper() not in names:
            why = f"{key}: there is no listener {match['listener'].upper()}"
            raise InvalidConfig(key, None, why)
    served = tuple(_served(config, endpoint) for endpoint in listeners)
    _check_tls_is_used(config, {each.endpoint.name for each in served if each.tls is not None})
    return served


def _check_tls_is_used(config: Config, encrypted: set[str]) -> None:
    """Raise InvalidConfig for an option of TLS that no listener, or not this one, would use."""
    for key in config.given():
        match = _OF_LISTENER.fullmatch(key)
        if match is not None and match["rest"].startswith("ssl."):
            listener = match["listener"].upper()
            if listener not in encrypted:
                why = f"{key}: the protocol of listener {listener} is not SSL or SASL_SSL"
                raise InvalidConfig(key, None, why)
        elif key.startswith("ssl.") and not encrypted:
            why = f"{key}: no listener has the protocol SSL or SASL_SSL"
            raise InvalidConfig(key, None, why)


def _served(config: Config, endpoint: Endpoint) -> ServedListener:
    option = LISTENER_SECURITY_PROTOCOL_MAP
    protocol = config[option].protocols.get(endpoint.name)
    if protocol is None:
        why = f"Listener {endpoint.name} needs a security protocol: {option.key} does not name it"
        raise InvalidConfig(option.key, None, why)
    if protocol == PLAINTEXT:
        return ServedListener(endpoint, protocol)
    tls = None
    if protocol in (SSL, SASL_SSL):
        tls = tls_files_of(config, endpoint.name, with_sasl=protocol == SASL_SSL)
    if protocol == SSL:
        rules = mapping_rules_of(config, endpoint.name)
        return ServedListener(endpoint, protocol, tls=tls, mapping_rules=rules)
    mechanisms = config[_mechanisms_of(endpoint.name)] or config[SASL_ENABLED_MECHANISMS]
    if not mechanisms:
        why = (
            f"Listener {endpoint.name} asks clients who they are, and "
            f"{SASL_ENABLED_MECHANISMS.key} names no way to tell; expected some of "
            f"{', '.join(SERVED_MECHANISMS)}"
        )
        raise InvalidConfig(SASL_ENABLED_MECHANISMS.key, None, why)
    _check_login_modules(config, endpoint, mechanisms)
    is_encrypted = tls is not None
    return ServedListener(
        endpoint,
        protocol,
        mechanisms,
        passwords=_passwords(config, endpoint, mechanisms, is_encrypted=is_encrypted),
        tls=tls,
        reauth_ms={name: max_reauth_ms_of(config, endpoint.name, name) for name in mechanisms},
        tokens=_tokens(config, endpoint, is_encrypted) if OAUTHBEARER in mechanisms else None,
    )


def _check_login_modules(config: Config, endpoint: Endpoint, mechanisms: tuple[str, ...]) -> None:
    for mechanism in mechanisms:
        option = _jaas_of(endpoint.name, mechanism)
        line = config[option]
        expected = _MODULES.get(mechanism, "ScramLoginModule")
        if line is not None and line.module != expected:
            raise InvalidConfig(option.key, None, f"{option.key}: expected the {expected}")


def _tokens(config: Config, endpoint: Endpoint, is_encrypted: bool) -> TokenRules:
    """Return how tokens are judged."""
    line = config[_jaas_of(endpoint.name, OAUTHBEARER)]
    ca_file = None if line is None else line.options.get("ssl.truststore.location")
    rules = token_rules_of(config, endpoint.name, ca_file)
    if not is_encrypted and endpoint.host not in LOOPBACK:
        why = (
            f"Listener {endpoint.name}: a token is as good as a password to who reads it, and this "
            "listener is open to other machines without encryption; SASL_SSL encrypts it"
        )
        raise InvalidConfig(SASL_ENABLED_MECHANISMS.key, None, why)
    return rules


def _passwords(
    config: Config, endpoint: Endpoint, mechanisms: tuple[str, ...], *, is_encrypted: bool
) -> Mapping[str, str]:
    """Return the users of PLAIN."""
    if PLAIN not in mechanisms:
        return {}
    option = _jaas_of(endpoint.name, PLAIN)
    line = config[option]
    users = {} if line is None else {
        name.removeprefix("user_"): password
        for name, password in line.options.items()
        if name.startswith("user_")
    }  # fmt: skip
    if not users:
        why = (
            f'{option.key}: PLAIN needs users, as user_NAME="PASSWORD" behind the PlainLoginModule'
        )
        raise InvalidConfig(option.key, None, why)
    if not is_encrypted and endpoint.host not in LOOPBACK:
        why = (
            f"Listener {endpoint.name}: PLAIN sends passwords as they are, and this listener is "
            "open to other machines without encryption; SCRAM-SHA-256 does not send them, and "
            "SASL_SSL encrypts them"
        )
        raise InvalidConfig(option.key, None, why)
    return users
