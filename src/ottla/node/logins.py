"""How clients of a node log in: the mechanisms of each listener put together.

Owns what they are made of: the users of a listener's configuration, the cluster's credentials and
its secret, nonces. What hashes and compares is imported only for a node whose clients log in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.config import security as options
from ottla.config.files import listeners_of
from ottla.config.security import PLAIN, ServedListener
from ottla.environment import Environment
from ottla.node.configuration import Configuration
from ottla.node.data import Data
from ottla.security.credentials import SECRET_BYTES, FirstUser

if TYPE_CHECKING:
    from ottla.cluster.credentials import Credentials
    from ottla.handlers.authentication import Terms
    from ottla.security.exchange import Exchange, OpenExchange

MakeTerms = Callable[[ServedListener], "Terms"]
"""Returns the terms on which one listener lets clients in."""


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


async def make_terms(
    data: Data, environment: Environment, configuration: Configuration
) -> MakeTerms | None:
    """Return what makes the terms of each listener whose clients log in; None: they never do.

    Raises MetadataError.
    """
    config, rng = configuration.at_start, environment.rng
    if not any(served.mechanisms for served in listeners_of(config)):
        return None
    from ottla.handlers.authentication import Terms  # noqa: PLC0415 - only for those who log in
    from ottla.handlers.refusals import Refusals  # noqa: PLC0415 - as above
    from ottla.security.plain import Plain  # noqa: PLC0415 - as above
    from ottla.security.scram import NONCE_BYTES, Scram  # noqa: PLC0415 - as above

    known, refusals = data.follower.image.credentials, Refusals(environment.clock)
    secret = await credentials_of(data, environment, configuration).secret()
    no_key = rng.random_bytes(SECRET_BYTES)

    def scram(mechanism: str) -> OpenExchange:
        def begin() -> Exchange:
            return Scram(
                mechanism,
                lambda name: known.find(mechanism, name, secret, no_key),
                rng.random_bytes(NONCE_BYTES),
            )

        return begin

    def make(served: ServedListener) -> Terms:
        return Terms(
            mechanisms={
                name: (lambda: Plain(served.passwords)) if name == PLAIN else scram(name)
                for name in served.mechanisms
            },
            frame_bytes_max=config[options.SASL_SERVER_MAX_RECEIVE_SIZE],
            delay_seconds=config[options.FAILED_AUTHENTICATION_DELAY_MS] / 1000,
            seconds=config[options.AUTHENTICATION_TIMEOUT_MS] / 1000,
            clock=environment.clock,
            refusals=refusals,
        )

    return make
