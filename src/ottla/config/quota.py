"""The options of a node that concern quotas: how long their windows are, how many there may be.

The quotas themselves are set over the wire (AlterClientQuotas, ``ottla quota``).
Source: Kafka's broker configuration reference.
"""

from collections.abc import Iterable

from ottla.config.bounds import POSITIVE
from ottla.config.config import Config
from ottla.config.option import INT, Option, Scope

# fmt: off - one option is one paragraph
QUOTA_WINDOW_NUM = Option(
    "quota.window.num",
    INT,
    11,
    "Over how many windows the rates of client quotas are measured, the current one included.",
    validator=POSITIVE,
)
QUOTA_WINDOW_SIZE_SECONDS = Option(
    "quota.window.size.seconds",
    INT,
    1,
    "How long each window of client quotas is.",
    validator=POSITIVE,
    unit="s",
)
CONTROLLER_QUOTA_WINDOW_NUM = Option(
    "controller.quota.window.num",
    INT,
    11,
    "Over how many windows a client may save up what controller_mutation_rate allows.",
    validator=POSITIVE,
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = Option(
    "controller.quota.window.size.seconds",
    INT,
    1,
    "How long each of these windows is.",
    validator=POSITIVE,
    unit="s",
)
CLIENT_QUOTAS_MAX = Option(
    "ottla.client.quotas.max",
    INT,
    10_000,
    "How many users, client ids, pairs of both and addresses may have quotas; creating more is"
    " refused with POLICY_VIOLATION.",
    validator=POSITIVE,
)
MAX_CONNECTION_CREATION_RATE = Option(
    "max.connection.creation.rate",
    INT,
    2_147_483_647,
    "How many connections per second are accepted; further ones wait in the backlog. A listener may"
    " have its own beside it: listener.name.<listener>.max.connection.creation.rate. With several"
    " listeners the one with PLAINTEXT, by which nodes talk, is not held up by this one.",
    Scope.CLUSTER_WIDE,
    POSITIVE,
)
# fmt: on
UNLIMITED = MAX_CONNECTION_CREATION_RATE.default


def rate_of_listener(listener: str) -> "Option[int]":
    """Return the option that bounds how fast one listener accepts connections."""
    option = MAX_CONNECTION_CREATION_RATE
    key = f"listener.name.{listener.lower()}.{option.key}"
    return Option(key, option.type, option.default, option.doc, option.scope, option.validator)


def accept_rates_of(config: Config, listeners: Iterable[str]) -> dict[str, int]:
    """Return how many connections per second each listener accepts, and "" all of them.

    Who may accept any number is left out.
    """
    rates = {name: config[rate_of_listener(name)] for name in listeners}
    rates[""] = config[MAX_CONNECTION_CREATION_RATE]
    return {name: rate for name, rate in rates.items() if rate < UNLIMITED}


OPTIONS = (
    QUOTA_WINDOW_NUM,
    QUOTA_WINDOW_SIZE_SECONDS,
    CONTROLLER_QUOTA_WINDOW_NUM,
    CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
    CLIENT_QUOTAS_MAX,
    MAX_CONNECTION_CREATION_RATE,
)
