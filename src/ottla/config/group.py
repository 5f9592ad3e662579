"""The options of a consumer group, and the node's bounds for their values.

The node's ``group.consumer.`` option of the same name gives the default of each.
Source: KIP-848, KIP-1071; the DescribeConfigs answer of Apache Kafka 4.3.
"""

from collections.abc import Mapping

from ottla.config import coordinator as node
from ottla.config.bounds import NOT_NEGATIVE, POSITIVE
from ottla.config.config import Config, Layer, readable
from ottla.config.option import INT, Follows, InvalidConfig, Option, Scope, Source, Table

# fmt: off - one option is one paragraph
SESSION_TIMEOUT_MS = Option(
    "consumer.session.timeout.ms",
    INT,
    45_000,
    "How long a member may be silent before it is removed from the group.",
    Scope.GROUP,
    POSITIVE,
    "ms",
    follows=(Follows(node.GROUP_CONSUMER_SESSION_TIMEOUT_MS),),
)
HEARTBEAT_INTERVAL_MS = Option(
    "consumer.heartbeat.interval.ms",
    INT,
    5_000,
    "How often members are told to send a heartbeat.",
    Scope.GROUP,
    POSITIVE,
    "ms",
    follows=(Follows(node.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS),),
)
ASSIGNMENT_INTERVAL_MS = Option(
    "consumer.assignment.interval.ms",
    INT,
    1_000,
    "The shortest time between two assignments.",
    Scope.GROUP,
    NOT_NEGATIVE,
    "ms",
    follows=(Follows(node.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS),),
)
# fmt: on

OPTIONS = (SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS, ASSIGNMENT_INTERVAL_MS)
GROUP_TABLE = Table("group", [("Consumer groups", OPTIONS)])
_BOUNDS: tuple[tuple[Option[int], Option[int], Option[int]], ...] = (
    (
        SESSION_TIMEOUT_MS,
        node.GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
        node.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    ),
    (
        HEARTBEAT_INTERVAL_MS,
        node.GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
        node.GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    ),
    (
        ASSIGNMENT_INTERVAL_MS,
        node.GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
        node.GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
    ),
)


def stored_group_config(texts: Mapping[str, str], broker: Config) -> Config:
    """Return a group's configuration from stored texts. Never raises.

    Texts that this version cannot read are left out. The node's bounds may have changed since; a
    value outside of them is used all the same.
    """
    return _group_config(readable(GROUP_TABLE, texts), broker)


def checked_group_config(texts: Mapping[str, str], broker: Config) -> Config:
    """Return a group's new configuration, checked. Raises InvalidConfig, with Kafka's texts."""
    for key in texts:
        if key not in GROUP_TABLE:
            raise InvalidConfig(key, None, f"Unknown group config name: {key}")
    config = _group_config(texts, broker)
    for option, least, most in _BOUNDS:
        if config.is_given(option):
            _check(config[option], option, broker, least, most)
    if config[SESSION_TIMEOUT_MS] <= config[HEARTBEAT_INTERVAL_MS]:
        key, heartbeat = SESSION_TIMEOUT_MS.key, HEARTBEAT_INTERVAL_MS.key
        raise InvalidConfig(key, None, f"{key} must be greater than {heartbeat}")
    return config


def _check(
    value: int, option: Option[int], broker: Config, least: Option[int], most: Option[int]
) -> None:
    if value < broker[least]:
        why = f"{option.key} must be greater than or equal to {least.key}"
        raise InvalidConfig(option.key, None, why)
    if value > broker[most]:
        why = f"{option.key} must be less than or equal to {most.key}"
        raise InvalidConfig(option.key, None, why)


def _group_config(texts: Mapping[str, str], broker: Config) -> Config:
    return Config(GROUP_TABLE, Layer(Source.GROUP, texts), beneath=broker)
