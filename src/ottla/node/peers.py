"""Asks other nodes of the cluster: the questions of transactions, over ``NodeLinks``.

One connection per node, opened at the first question, closed when it fails or the node's address
changes. Questions are pipelined on it. Each has a deadline; so many wait at most; after a failure
nothing is asked for a moment, and whoever asks is answered at once. Retries are the askers' own.
Imported at the first question. Source: KIP-98, KIP-890.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from ottla.client.asyncio.connection import Connection
from ottla.client.wire.errors import ConnectionFailed, error_code
from ottla.coordinator.transaction.peers import UNREACHABLE, Marker, Producer
from ottla.env.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NodeId, TopicPartition
from ottla.metadata.image import BrokerImage
from ottla.node.links import NodeLinks
from ottla.pending import Pending, pending_of
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.schema import Message

logger = logging.getLogger(__name__)

WAITING_MAX = 1_000
"""Questions to one node that are not answered yet; more are refused at once."""
TIMEOUT_MS = 15_000
"""A node that does not answer for so long is asked on a new connection."""
PAUSE_SECONDS_MIN = 0.05
PAUSE_SECONDS_MAX = 1.0
"""After a failure; twice as long after each that follows."""
WRITE_VERSION_2_SINCE = 5
VERIFIES_IN = 4
FETCH_VERSION = 18

Answer = TypeVar("Answer", bound=Message)


class Peer:
    """The way to one node."""

    def __init__(self, node: NodeId, links: NodeLinks, clock: Clock) -> None:
        self._node = node
        self._links = links
        self._clock = clock
        self._connection: Connection | None = None
        self._registered: BrokerImage | None = None
        """Use: the registration by which the connection was last seen to lead to the node."""
        self._opening: asyncio.Lock = asyncio.Lock()
        self._waiting = 0
        self._pause_seconds = 0.0
        self._asks_again_at = 0.0
        """Use: by the clock; nothing is asked before."""

    async def ask(self, request: Message, kind: type[Answer], highest: int) -> Answer:
        """Return the answer. Raises ConnectionFailed, KafkaError."""
        if self._waiting >= WAITING_MAX:
            raise KafkaError(UNREACHABLE, f"{self._waiting} questions to node {self._node} wait")
        self._waiting += 1
        try:
            connection = self._opened() or await self._open()
            return await connection.call(request, kind, highest=highest)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Close the connection; what waits fails with ConnectionFailed."""
        if self._connection is not None:
            self._connection.close()

    def _opened(self) -> Connection | None:
        """Return the connection if it is open, to where the node is reached now."""
        connection = self._connection
        if connection is None or connection.is_closed:
            return None
        registered = self._links.registered(self._node)
        if registered is None or registered is not self._registered:
            if connection.address != self._links.address_of(self._node):
                return None
            self._registered = registered
        return connection

    async def _open(self) -> Connection:
        async with self._opening:
            if (connection := self._opened()) is not None:
                return connection
            if self._connection is not None:
                self._connection.close()
            if self._clock.monotonic() < self._asks_again_at:
                raise KafkaError(UNREACHABLE, f"node {self._node} could not be reached just now")
            try:
                connection = await self._links.open(self._node, answer_timeout_ms=TIMEOUT_MS)
            except (ConnectionFailed, KafkaError) as error:
                self._failed(error)
                raise
            except Exception as fault:  # No thread to look a name up, no memory, or a fault of ours
                logger.exception("node %d could not be reached, unexpectedly", self._node)
                self._failed(fault)
                raise KafkaError(UNREACHABLE, f"node {self._node}: {fault!r}") from fault
            self._connection, self._registered = connection, None
            self._pause_seconds = 0.0
            return connection

    def _failed(self, error: Exception) -> None:
        if not self._pause_seconds:  # Said once, until it is reached again.
            logger.warning("node %d cannot be reached: %s", self._node, error)
        self._pause_seconds = min(
            max(2 * self._pause_seconds, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX
        )
        self._asks_again_at = self._clock.monotonic() + self._pause_seconds


class NodePeers:
    """The other nodes of the cluster; see ``coordinator.transaction.peers.Peers``."""

    def __init__(self, links: NodeLinks, clock: Clock) -> None:
        self._links = links
        self._clock = clock
        self._peers: dict[NodeId, Peer] = {}
        self._is_closed = False

    def write_markers(
        self, node: NodeId, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> Pending[list[ErrorCode]]:
        """Send WriteTxnMarkers."""
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    transaction_result=marker.is_commit,
                    topics=[
                        WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                        for name, indexes in _by_topic(partitions).items()
                    ],
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=marker.transaction_version,
                )
            ]
        )

        async def ask() -> list[ErrorCode]:
            answer = await self._ask(node, request, WriteTxnMarkersResponse, 2)
            found = {
                TopicPartition(topic.name, part.partition_index): error_code(part.error_code)
                for result in (() if answer is None else answer.markers)
                for topic in result.topics
                for part in topic.partitions
            }
            return [found.get(where, UNREACHABLE) for where in partitions]

        return pending_of(ask())

    def add_partitions(
        self,
        node: NodeId,
        producer: Producer,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Pending[Mapping[TopicPartition, ErrorCode]]:
        """Send AddPartitionsToTxn."""
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=producer.transactional_id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    verify_only=verify_only,
                    topics=[
                        AddPartitionsToTxnTopic(name=name, partitions=indexes)
                        for name, indexes in _by_topic(partitions).items()
                    ],
                )
            ]
        )
        version = VERIFIES_IN if verify_only else WRITE_VERSION_2_SINCE

        async def ask() -> Mapping[TopicPartition, ErrorCode]:
            answer = await self._ask(node, request, AddPartitionsToTxnResponse, version)
            if answer is not None and answer.error_code:
                return dict.fromkeys(partitions, error_code(answer.error_code))
            found = {
                TopicPartition(topic.name, part.partition_index): error_code(
                    part.partition_error_code
                )
                for result in (() if answer is None else answer.results_by_transaction)
                for topic in result.topic_results
                for part in topic.results_by_partition
            }
            return {where: found.get(where, UNREACHABLE) for where in partitions}

        return pending_of(ask())

    async def fetch(self, node: NodeId, request: FetchRequest) -> FetchResponse:
        """Send a Fetch and return the answer, for as long as that waits. Raises OttlaError."""
        return await self._peer(node).ask(request, FetchResponse, FETCH_VERSION)

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        for peer in self._peers.values():
            peer.close()

    async def _ask(
        self, node: NodeId, request: Message, kind: type[Answer], highest: int
    ) -> Answer | None:
        """Return the answer; None: there is none."""
        if self._is_closed:
            return None
        try:
            return await self._peer(node).ask(request, kind, highest)
        except (ConnectionFailed, KafkaError) as error:
            logger.info("node %d did not answer: %s", node, error)
            return None

    def _peer(self, node: NodeId) -> Peer:
        peer = self._peers.get(node)
        if peer is None:
            peer = self._peers[node] = Peer(node, self._links, self._clock)
        return peer


def _by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for where in partitions:
        topics.setdefault(where.topic, []).append(where.partition)
    return topics
