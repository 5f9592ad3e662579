"""Tells who leads a partition, for Metadata and DescribeTopicPartitions.

When the log of a partition is offline on this node, clients are not told that this node leads it,
whatever the metadata says: it could not serve them. Nor could a node that is not registered now. A
partition with one replica keeps its leader in the metadata meanwhile: nobody else can lead it.
Source: KIP-112; Kafka's answers with an offline log directory.
"""

from collections.abc import Callable, Container
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
    """Combines the metadata with the health of this node's own logs, and who is registered."""

    def __init__(
        self,
        node_id: NodeId,
        offline: Callable[[TopicPartition], str | None],
        live: Container[NodeId],
    ) -> None:
        """``offline`` tells why a partition of this node is not served; None when it is.

        ``live``: the nodes that are registered now; this one is live by itself.
        """
        self._node_id = node_id
        self._offline = offline
        self._live = live

    def of(self, topic: str, partition: int, state: PartitionState) -> Leadership:
        """Return what clients are told of the partition; ``state`` is the metadata's."""
        own, live = self._node_id, self._live
        offline_replicas: list[int] = []
        if self._offline(TopicPartition(topic, partition)) is not None:
            offline_replicas.append(own)
        offline_replicas += [node for node in state.replicas if node != own and node not in live]
        leader = NO_LEADER if state.leader in offline_replicas else state.leader
        code = ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
        return Leadership(code, leader, offline_replicas)
