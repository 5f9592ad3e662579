"""Tells who leads a partition, for Metadata and DescribeTopicPartitions.

When the log of a partition is offline on this node, clients are not told that this node leads it,
whatever the metadata says: it could not serve them.
Source: KIP-112; Kafka's answers with an offline log directory.
"""

from collections.abc import Callable
from typing import NamedTuple

from ottla.errors import ErrorCode
from ottla.ids import NodeId, TopicPartition
from ottla.metadata.values import NO_LEADER, PartitionState


class Leadership(NamedTuple):
    """What clients are told of a partition's leader and its offline replicas."""

    code: ErrorCode
    leader: int
    """-1 when there is none; then ``code`` is LEADER_NOT_AVAILABLE."""
    offline_replicas: list[int]


class Leaderships:
    """Combines the metadata with the health of this node's own logs."""

    def __init__(self, node_id: NodeId, offline: Callable[[TopicPartition], str | None]) -> None:
        """``offline`` tells why a partition of this node is not served; None when it is."""
        self._node_id = node_id
        self._offline = offline

    def of(self, topic: str, partition: int, state: PartitionState) -> Leadership:
        """Return what clients are told of the partition; ``state`` is the metadata's."""
        leader = state.leader
        offline_replicas: list[int] = []
        if self._offline(TopicPartition(topic, partition)) is not None:
            offline_replicas.append(self._node_id)
            leader = NO_LEADER if leader == self._node_id else leader
        code = ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
        return Leadership(code, leader, offline_replicas)
