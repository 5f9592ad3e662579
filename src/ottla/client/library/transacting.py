"""A transactional producer's calls to its coordinator, and to a group's. On asyncio.

Owns who coordinates what; ``wire.transacting`` owns requests and answers. Source: KIP-98, KIP-447.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.connection import Connection
from ottla.client.asyncio.coordinators import CoordinatorFinder
from ottla.client.library.gathering import ProducerSettings
from ottla.client.wire.coordination import GROUP, TRANSACTION
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.sending import ProducerIdentity
from ottla.client.wire.transacting import (
    ADD_PARTITIONS_LAST,
    END_ANSWERS_EPOCH_SINCE,
    END_LAST,
    FEATURE,
    SECOND,
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
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse

Value = TypeVar("Value")
_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class TransactionCalls:
    """Each is retried as long as that may help. Raises KafkaError, ConnectionFailed."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._finders = {kind: CoordinatorFinder(cluster, kind) for kind in (GROUP, TRANSACTION)}

    async def take_over(self) -> ProducerIdentity:
        """Return the id's next epoch; every producer with an earlier one is fenced."""
        name = self._settings.transactional_id or ""
        request = take_over_request(name, self._settings.transaction_timeout_ms)

        async def ask(connection: Connection) -> ProducerIdentity:
            return read_take_over(name, await connection.call(request, InitProducerIdResponse))

        return await self._asking(TRANSACTION, name, ask)

    async def speaks_second(self) -> bool:
        """Tell whether transactions are of the second version: writing adds, ends raise the epoch.

        It may change between two transactions, while a cluster is upgraded.
        """

        async def ask(connection: Connection) -> bool:
            exchange = connection.exchange
            _, last = exchange.versions.get(EndTxnRequest.API_KEY, (0, 0))
            return exchange.features.get(FEATURE, 0) >= SECOND and last >= END_ANSWERS_EPOCH_SINCE

        return await self._asking(TRANSACTION, self._settings.transactional_id or "", ask)

    async def add_partitions(
        self, producer: ProducerIdentity, partitions: list[TopicPartition]
    ) -> None:
        """Make ``partitions`` part of the transaction."""
        request = add_partitions_request(producer, partitions)

        async def ask(connection: Connection) -> None:
            answer = await connection.call(
                request, AddPartitionsToTxnResponse, highest=ADD_PARTITIONS_LAST
            )
            check_add_partitions(producer, answer)

        await self._asking(TRANSACTION, producer.transactional_id or "", ask)

    async def commit_offsets(
        self,
        producer: ProducerIdentity,
        group: str,
        offsets: dict[TopicPartition, OffsetToCommit],
        member: tuple[str, int],
        *,
        second: bool,
    ) -> None:
        """Have the group remember ``offsets`` from the commit on; ``member``: id and generation.

        ``second``: the transaction is of the second version.
        """
        add = add_offsets_request(producer, group)
        request = commit_offsets_request(producer, group, offsets)
        request.member_id, request.generation_id = member

        async def ask_transaction(connection: Connection) -> None:
            check_add_offsets(producer, await connection.call(add, AddOffsetsToTxnResponse))

        async def ask_group(connection: Connection) -> None:
            answer = await connection.call(
                request, TxnOffsetCommitResponse, highest=None if second else TXN_OFFSET_COMMIT_LAST
            )
            check_commit_offsets(group, answer)

        if not second:
            await self._asking(TRANSACTION, producer.transactional_id or "", ask_transaction)
        await self._asking(GROUP, group, ask_group)

    async def end(
        self, producer: ProducerIdentity, *, commit: bool, second: bool
    ) -> ProducerIdentity | None:
        """Commit or abort; durable when this returns. Return the next epoch; None: as it was."""
        request = end_request(producer, commit=commit)
        highest = None if second else END_LAST

        async def ask(connection: Connection) -> ProducerIdentity | None:
            return read_end(
                producer, await connection.call(request, EndTxnResponse, highest=highest)
            )

        return await self._asking(TRANSACTION, producer.transactional_id or "", ask)

    async def _asking(
        self, kind: int, key: str, ask: Callable[[Connection], Awaitable[Value]]
    ) -> Value:
        finder = self._finders[kind]

        async def attempt() -> Value:
            try:
                return await ask(await finder.connection(key, "transaction"))
            except KafkaError as error:
                if error.code in _MOVED:
                    finder.forget(key)
                raise
            except ConnectionFailed:
                finder.forget(key)
                raise

        return await self._cluster.retrying(attempt)
