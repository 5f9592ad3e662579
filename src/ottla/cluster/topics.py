"""Plans new topics and new partitions: checks requests, places replicas. Pure; does no I/O.

Source: the answers of a live Kafka 4.3 to good and bad requests; KIP-464 (defaults for -1).
"""

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ottla.cluster.placement import Assignment, spread
from ottla.env.rng import Rng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import LeaderEpoch, NodeId, TopicId, topic_id_text
from ottla.metadata.values import PartitionState

TOPIC_NAME_LENGTH_MAX = 249
PARTITIONS_PER_REQUEST_MAX = 10_000
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

DEFAULT = -1
"""In place of a count: the broker's default."""


class NewTopic(NamedTuple):
    """A request for a topic. Counts may be DEFAULT."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """(partition index, replicas); when given, both counts must be DEFAULT."""
    configs: Sequence[tuple[str, str | None]] = ()


class NewPartitions(NamedTuple):
    """A request for more partitions of a topic."""

    name: str
    total_count: int
    """How many partitions the topic shall have in all."""
    assignments: Sequence[Sequence[int]] | None = None
    """The replicas of each added partition; None: the controller chooses them."""


class TopicPlan(NamedTuple):
    """A topic as it will be created."""

    name: str
    topic_id: TopicId
    assignments: list[Assignment]
    configs: Mapping[str, str]


NOT_TOPICS = frozenset({"__cluster_metadata"})
"""Directories in a Kafka broker's log directory that are no topics: never touched nor created."""


class Placement(NamedTuple):
    """What a plan depends on besides the request."""

    live_nodes: Sequence[NodeId]
    """Those that are up, and do not stop. When all of them stop, all that are up."""
    default_partition_count: int
    default_replication_factor: int
    racks: Mapping[NodeId, str | None] = MappingProxyType({})
    """Where each node stands; a node that is not in it, or has None, is a rack of its own."""
    leads: Mapping[NodeId, int] = MappingProxyType({})
    """Of how many partitions each node is the preferred leader; of none if it is not in it."""
    away_nodes: Sequence[NodeId] = ()
    """Nodes that belong to the cluster, and stop or are down: they get what no other node can."""

    @property
    def nodes(self) -> Sequence[NodeId]:
        """All nodes, whether they are up or not."""
        return (*self.live_nodes, *self.away_nodes)


def new_topic_id(rng: Rng) -> TopicId:
    """Return a random id (UUID version 4), as Kafka makes them; none starts with a dash."""
    while True:
        raw = bytearray(rng.random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        topic_id = TopicId(bytes(raw))
        if not topic_id_text(topic_id).startswith("-"):
            return topic_id


def topic_name_error(name: str) -> str | None:
    """Return why ``name`` cannot be a topic's name, or None when it can."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: {name} is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return (
            f"Topic name is invalid: the length of {name} is longer than the max allowed length "
            f"{TOPIC_NAME_LENGTH_MAX}"
        )
    if not _LEGAL.fullmatch(name):
        return (
            f"Topic name is invalid: {name} contains one or more characters other than ASCII "
            "alphanumerics, ., _ and -"
        )
    return None


def collision_key(name: str) -> str:
    """Return a text that is the same for two names which differ only by ``.`` and ``_``."""
    return name.replace(".", "_")


def given_configs(topic: NewTopic) -> dict[str, str]:
    """Return the configs of a request for a topic. Raises KafkaError for one without a value."""
    given: dict[str, str] = {}
    for key, value in topic.configs:
        if value is None:
            why = f"Null value not supported for topic configs: {key}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, why)
        given[key] = value
    return given


def plan_assignments(topic: NewTopic, placement: Placement) -> list[Assignment]:
    """Return the replicas of every partition of a new topic. Raises KafkaError."""
    if topic.assignments:
        return _manual_assignments(topic, placement)
    count, factor = topic.partition_count, topic.replication_factor
    if count == DEFAULT:
        count = placement.default_partition_count
    if factor == DEFAULT:
        factor = placement.default_replication_factor
    if factor <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    check_partition_count(count)
    return _spread(range(count), factor, placement)


def check_partition_count(count: int) -> None:
    """Raise KafkaError (POLICY_VIOLATION) for more partitions than one request may create."""
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )


def _spread(indexes: range, factor: int, placement: Placement) -> list[Assignment]:
    live, away, count = placement.live_nodes, placement.away_nodes, len(placement.nodes)
    why = f"Unable to replicate the partition {factor} time(s): "
    if factor > count:
        why += f"The target replication factor of {factor} cannot be reached because only "
        why += f"{count} broker(s) are registered."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, why)
    if not live:
        why += "All brokers are currently fenced."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, why)
    factor_now = min(factor, len(live))
    placed = spread(indexes, factor_now, live, racks=placement.racks, leads=placement.leads)
    for turn, replicas in enumerate(placed):
        replicas += [away[(turn + step) % len(away)] for step in range(factor - factor_now)]
    return placed


def first_state(replicas: Assignment, live: Collection[NodeId]) -> PartitionState:
    """Return the state of a new partition, which those replicas are in sync of that are ``live``.

    If none is any more, all are: who is gone is fenced.
    """
    isr = tuple(node for node in replicas if node in live) or tuple(replicas)
    return PartitionState(tuple(replicas), isr, isr[0], LeaderEpoch(0), 0)


def plan_more_partitions(
    wanted: NewPartitions, present: int, factor: int, placement: Placement
) -> list[Assignment]:
    """Return the replicas of partitions to add, from index ``present`` on. Raises KafkaError."""
    added = wanted.total_count - present
    if added == 0:
        why = f"Topic already has {present} partition(s)."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, why)
    if added < 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {present} partition(s); "
            f"{wanted.total_count} would not be an increase.",
        )
    check_partition_count(added)
    if wanted.assignments is None:
        return _spread(range(present, wanted.total_count), factor, placement)
    if len(wanted.assignments) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only "
            f"{len(wanted.assignments)} assignment(s) were specified.",
        )
    nodes, live = frozenset(placement.nodes), frozenset(placement.live_nodes)
    placed = [checked_assignment(replicas, nodes) for replicas in wanted.assignments]
    for index, replicas in enumerate(placed, present):
        _check_factor(replicas, factor)
        _check_live(index, replicas, live)
    return placed


def _manual_assignments(topic: NewTopic, placement: Placement) -> list[Assignment]:
    for what, value in (
        ("replication factor", topic.replication_factor),
        ("partition count", topic.partition_count),
    ):
        if value != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    check_partition_count(len(topic.assignments))
    nodes, live = frozenset(placement.nodes), frozenset(placement.live_nodes)
    placed: dict[int, Assignment] = {}
    for index, replicas in topic.assignments:
        if index in placed:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        placed[index] = checked_assignment(replicas, nodes)
        _check_factor(placed[index], len(topic.assignments[0][1]))
        _check_live(index, placed[index], live)
    if sorted(placed) != list(range(len(placed))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [placed[index] for index in range(len(placed))]


def _check_factor(replicas: Assignment, factor: int) -> None:
    if len(replicas) != factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes a partition with {len(replicas)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{factor} replica(s).",
        )


def _check_live(index: int, replicas: Assignment, live: frozenset[NodeId]) -> None:
    if live.isdisjoint(replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "All brokers specified in the manual partition assignment for partition "
            f"{index} are fenced or in controlled shutdown.",
        )


def checked_assignment(replicas: Sequence[int], nodes: Collection[NodeId]) -> Assignment:
    """Return replicas that a person has chosen, out of ``nodes``. Raises KafkaError."""
    if not replicas:
        why = "The manual partition assignment includes an empty replica list."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    seen: Assignment = []
    for replica in map(NodeId, replicas):
        if replica in seen:
            why = f"The manual partition assignment includes the broker {replica} more than once."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        if replica not in nodes:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes broker {replica}, but no such broker is "
                "registered.",
            )
        seen.append(replica)
    return seen
