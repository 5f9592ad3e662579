"""Coordinators by blocking calls: committed offsets, and the steps of a transaction.

Owns who coordinates what, and asks anew when the coordinator has moved; ``coordination`` and
``transacting`` own requests and answers, ``blocking`` connections and retries. Every call blocks,
retries what may be retried, and raises KafkaError with the broker's words or ConnectionFailed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.wire.coordination import (
    GROUP,
    KEPT_LAST,
    NAMES_ONLY,
    TRANSACTION,
    Committed,
    check_offset_commit,
    commit_request,
    committed_request,
    find_coordinator_request,
    read_committed_offsets,
    read_find_coordinator,
)
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.sending import ProducerIdentity
from ottla.client.wire.transacting import (
    ADD_PARTITIONS_LAST,
    END_LAST,
    TXN_OFFSET_COMMIT_LAST,
    OffsetToCommit,
    add_offsets_request,
    add_partitions_request,
    check_add_offsets,
    check_add_partitions,
    check_commit_offsets,
    commit_offsets_request,
    end_request,
    read_end,
    read_take_over,
    take_over_request,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.protocol.messages.end_txn import EndTxnResponse
from ottla.protocol.messages.find_coordinator import FindCoordinatorResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.offset_commit import OffsetCommitResponse
from ottla.protocol.messages.offset_fetch import OffsetFetchResponse
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse

Result = TypeVar("Result")

MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class BlockingCoordinators:
    """The coordinators of groups and transactional ids. Not for use from two threads at once."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client
        self._found: dict[tuple[int, str], int] = {}

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        """Return a group's offsets, of ``partitions`` or (None) all; those without are absent.

        Waits while a transaction that commits some of them is still open.
        """
        request = committed_request(group, partitions, stable=True)

        def ask(connection: BlockingConnection) -> dict[TopicPartition, Committed]:
            answer = connection.call(request, OffsetFetchResponse, highest=NAMES_ONLY)
            return read_committed_offsets(group, answer)

        return self._asking(GROUP, group, ask)

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> None:
        """Have the group remember ``offsets`` now. Only a group without members takes them.

        ``timeout_ms``: how long to go on trying; None: as the client's settings say.
        """
        request = commit_request(group, offsets)

        def ask(connection: BlockingConnection) -> None:
            answer = connection.call(request, OffsetCommitResponse, highest=NAMES_ONLY)
            check_offset_commit(group, answer)

        self._asking(GROUP, group, ask, timeout_ms)

    def keep(
        self, group: str, offsets: Mapping[TopicPartition, OffsetToCommit], kept_ms: int
    ) -> None:
        """Have the group remember ``offsets``, with their texts, for ``kept_ms``.

        Longer than the broker keeps those of others. Only a group without members takes them.
        Raises KafkaError UNSUPPORTED_VERSION where a cluster does not take the time from clients.
        """
        request = commit_request(
            group,
            {place: each.offset for place, each in offsets.items()},
            metadata={place: each.metadata for place, each in offsets.items()},
            kept_ms=kept_ms,
        )

        def ask(connection: BlockingConnection) -> None:
            answer = connection.call(request, OffsetCommitResponse, highest=KEPT_LAST)
            check_offset_commit(group, answer)

        self._asking(GROUP, group, ask)

    def take_over(self, transactional_id: str, timeout_ms: int) -> ProducerIdentity:
        """Return the id's next epoch; no producer with an earlier one can do anything any more.

        What such a producer left open is aborted, and that is done when this returns.
        ``timeout_ms``: transactions open for longer are aborted by the coordinator.
        """
        request = take_over_request(transactional_id, timeout_ms)

        def ask(connection: BlockingConnection) -> ProducerIdentity:
            answer = connection.call(request, InitProducerIdResponse)
            return read_take_over(transactional_id, answer)

        return self._asking(TRANSACTION, transactional_id, ask)

    def add_partitions(
        self, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
    ) -> None:
        """Make ``partitions`` part of the transaction, which begins with that if none is open."""
        request = add_partitions_request(producer, partitions)

        def ask(connection: BlockingConnection) -> None:
            answer = connection.call(
                request, AddPartitionsToTxnResponse, highest=ADD_PARTITIONS_LAST
            )
            check_add_partitions(producer, answer)

        self._asking(TRANSACTION, producer.transactional_id or "", ask)

    def commit_offsets(
        self,
        producer: ProducerIdentity,
        group: str,
        offsets: Mapping[TopicPartition, OffsetToCommit],
    ) -> None:
        """Have the group remember ``offsets`` from the transaction's commit on."""
        add = add_offsets_request(producer, group)
        request = commit_offsets_request(producer, group, offsets)

        def ask_transaction(connection: BlockingConnection) -> None:
            check_add_offsets(producer, connection.call(add, AddOffsetsToTxnResponse))

        def ask_group(connection: BlockingConnection) -> None:
            answer = connection.call(
                request, TxnOffsetCommitResponse, highest=TXN_OFFSET_COMMIT_LAST
            )
            check_commit_offsets(group, answer)

        self._asking(TRANSACTION, producer.transactional_id or "", ask_transaction)
        self._asking(GROUP, group, ask_group)

    def end(self, producer: ProducerIdentity, *, commit: bool) -> None:
        """Commit or abort; done and durable when this returns, visible to readers soon after.

        When it raises ConnectionFailed, nobody knows whether it was done: ``take_over`` decides it.
        """
        request = end_request(producer, commit=commit)

        def ask(connection: BlockingConnection) -> None:
            read_end(producer, connection.call(request, EndTxnResponse, highest=END_LAST))

        self._asking(TRANSACTION, producer.transactional_id or "", ask)

    def _asking(
        self,
        kind: int,
        key: str,
        ask: Callable[[BlockingConnection], Result],
        timeout_ms: int | None = None,
    ) -> Result:
        """Run ``ask`` with a connection to the coordinator of ``key``, again where that helps."""

        def attempt() -> Result:
            try:
                return ask(self._coordinator(kind, key))
            except KafkaError as error:
                if error.code in MOVED:
                    self._found.pop((kind, key), None)
                raise
            except ConnectionFailed:
                self._found.clear()
                raise

        return self._client.retrying(attempt, timeout_ms=timeout_ms)

    def _coordinator(self, kind: int, key: str) -> BlockingConnection:
        client = self._client
        node_id = self._found.get((kind, key))
        if node_id is None:
            answer = client.any().call(find_coordinator_request(kind, key), FindCoordinatorResponse)
            node_id = read_find_coordinator(kind, key, answer)
            if node_id not in client.view.brokers:
                client.refresh([])
            self._found[kind, key] = node_id
        return client.connection(node_id)
