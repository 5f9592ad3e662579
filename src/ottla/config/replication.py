"""The options of a node that concern partitions with several replicas.

Source: Kafka's broker configuration reference; the defaults are Kafka's.
"""

from ottla.config.bounds import NOT_NEGATIVE, POSITIVE
from ottla.config.option import BOOLEAN, INT, LONG, STRING, Option, at_least, one_of

# fmt: off - one option is one paragraph
REPLICA_LAG_TIME_MAX_MS = Option(
    "replica.lag.time.max.ms",
    LONG,
    30_000,
    "A follower that has not caught up with its leader for so long leaves the ISR. Until then"
    " acks=all waits for it.",
    validator=at_least(100),
    unit="ms",
)
REPLICA_FETCH_WAIT_MAX_MS = Option(
    "replica.fetch.wait.max.ms",
    INT,
    500,
    "How long a leader lets a follower's fetch wait when there is nothing new.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
REPLICA_FETCH_MIN_BYTES = Option(
    "replica.fetch.min.bytes",
    INT,
    1,
    "0: a leader answers a follower at once; else as soon as there is anything new.",
    validator=NOT_NEGATIVE,
    unit="bytes",
)
REPLICA_FETCH_MAX_BYTES = Option(
    "replica.fetch.max.bytes",
    INT,
    1_048_576,
    "How much of one partition a follower asks for at a time. A larger batch comes all the same.",
    validator=POSITIVE,
    unit="bytes",
)
REPLICA_FETCH_RESPONSE_MAX_BYTES = Option(
    "replica.fetch.response.max.bytes",
    INT,
    10_485_760,
    "How much a follower asks one leader for at a time. A larger batch comes all the same.",
    validator=POSITIVE,
    unit="bytes",
)
REPLICA_FETCH_BACKOFF_MS = Option(
    "replica.fetch.backoff.ms",
    INT,
    1_000,
    "The longest pause of a follower after a failure; the first one is 50 ms.",
    validator=at_least(1),
    unit="ms",
)
AUTO_LEADER_REBALANCE_ENABLE = Option(
    "auto.leader.rebalance.enable",
    BOOLEAN,
    True,
    "A node that leads a partition lets its first replica lead again when that one is in sync.",
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = Option(
    "leader.imbalance.check.interval.seconds",
    LONG,
    300,
    "How often a node looks for first replicas that should lead again. One that was not there"
    " at the last look is left alone until the next.",
    validator=at_least(1),
    unit="s",
)
REPLICA_SELECTOR_CLASS = Option(
    "replica.selector.class",
    STRING,
    "",
    "RackAwareReplicaSelector: consumers with client.rack read from an in-sync replica in their"
    " rack. LeaderSelector, or nothing: from leaders. With or without Kafka's package name.",
    validator=one_of(
        "",
        *(
            f"{package}{name}"
            for name in ("LeaderSelector", "RackAwareReplicaSelector")
            for package in ("", "org.apache.kafka.common.replica.")
        ),
    ),
)
# fmt: on

OPTIONS = (
    REPLICA_LAG_TIME_MAX_MS,
    REPLICA_FETCH_WAIT_MAX_MS,
    REPLICA_FETCH_MIN_BYTES,
    REPLICA_FETCH_MAX_BYTES,
    REPLICA_FETCH_RESPONSE_MAX_BYTES,
    REPLICA_FETCH_BACKOFF_MS,
    AUTO_LEADER_REBALANCE_ENABLE,
    LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
    REPLICA_SELECTOR_CLASS,
)


def is_rack_aware(selector: str) -> bool:
    """Tell whether a value of ``replica.selector.class`` sends consumers to their rack."""
    return selector.endswith("RackAwareReplicaSelector")
