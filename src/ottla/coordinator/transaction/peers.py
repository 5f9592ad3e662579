"""The other nodes, as transactions need them: the port, and who is to be asked.

A coordinator has markers written by the leaders of partitions, and a leader asks the coordinator of
a producer's transaction before it takes records for it. Either may be another node. Owns the words
of these questions and who they are for; ``node.peers`` carries them there. Nothing of it is made
before the first question to another node. Source: KIP-98 (WriteTxnMarkers), KIP-890
(AddPartitionsToTxn between brokers).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.errors import ErrorCode
from ottla.ids import NodeId, TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.pending import Pending

UNREACHABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""The code of every partition when a node could not be asked, or did not answer in time."""


class Marker(NamedTuple):
    """How a producer's transaction ends."""

    producer_id: int
    producer_epoch: int
    """In version 2 it is one above the epoch of the records."""
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


class Producer(NamedTuple):
    """A producer as it names itself in a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Peers(Protocol):
    """Asks other nodes. An answer may have been carried out although it says UNREACHABLE."""

    def write_markers(
        self, node: NodeId, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> Pending[list[ErrorCode]]:
        """Have a node write a marker once to each partition; resolves with their codes."""

    def add_partitions(
        self,
        node: NodeId,
        producer: Producer,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Pending[Mapping[TopicPartition, ErrorCode]]:
        """Have a coordinator add partitions to a producer's transaction, or verify that they are.

        Resolves with a code for each partition.
        """

    def close(self) -> None:
        """Give up; what waits gets UNREACHABLE."""


class Elsewhere:
    """Says what other nodes are to be asked, and asks them."""

    def __init__(
        self, image: MetadataImage, node_id: NodeId, open_peers: Callable[[], Peers]
    ) -> None:
        """``open_peers`` is called at the first question."""
        self._image = image
        self._node_id = node_id
        self._open_peers = open_peers
        self._peers: Peers | None = None

    @property
    def peers(self) -> Peers:
        """The other nodes."""
        if self._peers is None:
            self._peers = self._open_peers()
        return self._peers

    def leader_of(self, where: TopicPartition) -> NodeId | None:
        """Return the other node that leads a partition; None: this one does, or none."""
        state = self._image.partition(where)
        if state is None or state.leader == self._node_id or state.leader < 0:
            return None
        return state.leader

    def is_live(self, node: NodeId) -> bool:
        """Tell whether a node is registered."""
        return node in self._image.brokers

    def close(self) -> None:
        """Give up what was asked."""
        if self._peers is not None:
            self._peers.close()
