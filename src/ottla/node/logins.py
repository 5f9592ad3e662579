"""How clients of a node log in: the mechanisms of each listener put together.

Owns what they are made of: the users of a listener's configuration, the cluster's credentials and
its secret, nonces, the keys of those who issue tokens. What hashes and compares is imported only
for a node whose clients log in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.config import security as options
from ottla.config.files import listeners_of
from ottla.config.oauth import OAUTHBEARER, TokenRules
from ottla.config.option import InvalidConfig
from ottla.config.security import PLAIN, ServedListener
from ottla.environment import Environment
from ottla.node.configuration import Configuration
from ottla.node.data import Data
from ottla.security.credentials import SECRET_BYTES, FirstUser

if TYPE_CHECKING:
    from ottla.cluster.credentials import Credentials
    from ottla.handlers.authentication import Terms
    from ottla.node.issuer_keys import IssuerKeys
    from ottla.security.exchange import Exchange, OpenExchange


class Logins:
    """What clients log in with, for all listeners."""

    def __init__(
        self, make: Callable[[ServedListener], Terms], keys: Iterable[IssuerKeys] = ()
    ) -> None:
        self.terms_of = make
        """Returns the terms on which one listener lets clients in."""
        self._keys = tuple(keys)

    def close(self) -> None:
        """Renew no keys any more."""
        for each in self._keys:
            each.close()


def credentials_of(
    data: Data, environment: Environment, configuration: Configuration
) -> Credentials:
    """Return what changes the cluster's credentials."""
    from ottla.cluster.credentials import Credentials  # noqa: PLC0415 - many a node has no users

    return Credentials(
        data.store,
        data.keys,
        data.follower,
        environment.rng,
        credentials_max=configuration.at_start[options.SCRAM_CREDENTIALS_MAX],
    )


async def begin_with(
    users: tuple[FirstUser, ...],
    data: Data,
    environment: Environment,
    configuration: Configuration,
) -> None:
    """Let the first users of a new cluster in. Raises KafkaError, MetadataError."""
    if users:
        credentials = credentials_of(data, environment, configuration)
        await credentials.begin_with(users, environment.executor)


async def logins_of(
    data: Data, environment: Environment, configuration: Configuration
) -> Logins | None:
    """Return what the clients of all listeners log in with; None: they never do.

    Raises MetadataError, IssuerKeysUnavailable.
    """
    config, rng = configuration.at_start, environment.rng
    listeners = listeners_of(config)
    if not any(served.mechanisms for served in listeners):
        return None
    from ottla.handlers.authentication import Terms  # noqa: PLC0415 - only for those who log in
    from ottla.handlers.refusals import Refusals  # noqa: PLC0415 - as above
    from ottla.security.plain import Plain  # noqa: PLC0415 - as above
    from ottla.security.scram import NONCE_BYTES, Scram  # noqa: PLC0415 - as above

    known, refusals = data.follower.image.credentials, Refusals(environment.clock)
    secret = await credentials_of(data, environment, configuration).secret()
    no_key = rng.random_bytes(SECRET_BYTES)
    bearers = await _bearers(listeners, environment)

    def scram(mechanism: str) -> OpenExchange:
        def begin() -> Exchange:
            return Scram(
                mechanism,
                lambda name: known.find(mechanism, name, secret, no_key),
                rng.random_bytes(NONCE_BYTES),
            )

        return begin

    def opener(served: ServedListener, mechanism: str) -> OpenExchange:
        if mechanism == OAUTHBEARER:
            return bearers.of[served.endpoint.name]
        return (lambda: Plain(served.passwords)) if mechanism == PLAIN else scram(mechanism)

    def make(served: ServedListener) -> Terms:
        return Terms(
            mechanisms={name: opener(served, name) for name in served.mechanisms},
            frame_bytes_max=config[options.SASL_SERVER_MAX_RECEIVE_SIZE],
            delay_seconds=config[options.FAILED_AUTHENTICATION_DELAY_MS] / 1000,
            seconds=config[options.AUTHENTICATION_TIMEOUT_MS] / 1000,
            clock=environment.clock,
            refusals=refusals,
            reauth_ms=served.reauth_ms,
        )

    return Logins(make, bearers.keys)


class _Bearers(NamedTuple):
    """How tokens are taken."""

    of: dict[str, OpenExchange]
    """By the listener's name."""
    keys: list[IssuerKeys]


async def _bearers(listeners: tuple[ServedListener, ...], environment: Environment) -> _Bearers:
    """Return how each listener takes tokens; the keys of their issuers have been fetched.

    Raises IssuerKeysUnavailable, InvalidConfig when the libraries are not installed.
    """
    bearers = _Bearers({}, [])
    for served in listeners:
        if served.tokens is not None:
            keys, opener = _bearer(served.tokens, environment)
            bearers.keys.append(keys)
            bearers.of[served.endpoint.name] = opener
    try:
        for keys in bearers.keys:
            await keys.begin()
    except BaseException:
        for keys in bearers.keys:
            keys.close()
        raise
    return bearers


def _bearer(rules: TokenRules, environment: Environment) -> tuple[IssuerKeys, OpenExchange]:
    """Return the keys that one listener's tokens are judged by, and what judges them."""
    try:
        from ottla.security.tokens import Judge  # noqa: PLC0415 - few listeners take tokens
    except ModuleNotFoundError as error:
        why = (
            f"OAUTHBEARER needs the package {error.name}, which is not installed: "
            "pip install 'ottla[oauth]' brings it"
        )
        raise InvalidConfig(options.SASL_ENABLED_MECHANISMS.key, None, why) from error
    from ottla.env.tls import TlsFiles  # noqa: PLC0415 - as above
    from ottla.env.web import fetch  # noqa: PLC0415 - as above
    from ottla.node.issuer_keys import (  # noqa: PLC0415 - as above
        FETCH_BYTES_MAX,
        FETCH_SECONDS,
        IssuerKeys,
    )
    from ottla.security.bearer import Bearer  # noqa: PLC0415 - as above

    keys = IssuerKeys(
        rules,
        partial(
            fetch,
            rules.jwks_url,
            seconds=FETCH_SECONDS,
            bytes_max=FETCH_BYTES_MAX,
            tls=TlsFiles(ca_file=rules.ca_file),
        ),
        environment.key_executor or environment.executor,
        environment.clock,
    )
    judge = Judge(rules, lambda: keys.keys, environment.clock.wall_ms, keys.miss)
    return keys, partial(Bearer, judge.judge)
