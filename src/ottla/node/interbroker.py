"""The listener that only nodes of the same cluster get past, and how a node shows that it is one.

Owns its name, its login and what follows from it: whoever has logged in here may do what Kafka lets
brokers do (CLUSTER_ACTION), and nothing else. The secret is made by the supervisor at each start
and told to its nodes only; SCRAM proves on both sides that it is known, and does not send it.
Nothing that a node does not need before the first other one connects is imported before.
Source: Kafka's inter-broker listener; KIP-103.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.ids import NODE_KIND, NodeId, Principal

if TYPE_CHECKING:
    from ottla.environment import Environment
    from ottla.handlers.authentication import Terms
    from ottla.handlers.client import Client
    from ottla.security.credentials import ScramCredential

INTER_BROKER = "inter.broker"
"""The listener's name. No listener of a configuration is called so: names have no dots."""
INTER_BROKER_HOST = "127.0.0.1"
"""Nodes of one supervisor are on one machine."""
SECRET_BYTES = 32
AUTHENTICATION_SECONDS = 10.0
REFUSAL_DELAY_SECONDS = 0.1
FRAME_BYTES_MAX = 4_096
"""Of a request before the login."""
MECHANISM = "SCRAM-SHA-256"
_SALT = b"ottla inter.broker"
"""The same for all: the secret is random, and no table of such secrets can be made."""


class InterBroker(NamedTuple):
    """Where a node listens for the others, and the secret by which they know each other."""

    host: str
    port: int
    secret: str
    told: str = ""
    """The host that other nodes are told; empty: ``host``."""

    def __repr__(self) -> str:
        # The secret stays out of logs.
        return f"InterBroker(host={self.host!r}, port={self.port})"


def login_name(node: NodeId) -> str:
    """Return the name by which a node logs in to the others."""
    return str(node)


def as_node(client: Client) -> Client:
    """Return a client that has logged in here as what it is: a node."""
    return client._replace(principal=Principal(NODE_KIND, client.principal.name))


def terms_of(secret: str, environment: Environment) -> Terms:
    """Return the terms on which nodes are let in. Takes about 5 ms, the imports included."""
    from ottla.handlers.authentication import Terms  # noqa: PLC0415 - see above
    from ottla.handlers.refusals import Refusals  # noqa: PLC0415 - as above
    from ottla.security.scram import NONCE_BYTES, Scram  # noqa: PLC0415 - as above

    credential = _credential(secret)
    rng = environment.rng
    return Terms(
        mechanisms={
            MECHANISM: lambda: Scram(
                MECHANISM, lambda _name: credential, rng.random_bytes(NONCE_BYTES)
            )
        },
        frame_bytes_max=FRAME_BYTES_MAX,
        delay_seconds=REFUSAL_DELAY_SECONDS,
        seconds=AUTHENTICATION_SECONDS,
        clock=environment.clock,
        refusals=Refusals(environment.clock),
    )


def _credential(secret: str) -> ScramCredential:
    from ottla.security.credentials import ITERATIONS_MIN  # noqa: PLC0415 - see above
    from ottla.security.scram import credential_of, salted  # noqa: PLC0415 - as above

    password = salted(secret, _SALT, ITERATIONS_MIN, MECHANISM)
    return credential_of(password, _SALT, ITERATIONS_MIN, MECHANISM)
