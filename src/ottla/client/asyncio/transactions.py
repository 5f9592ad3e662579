"""Transactions as an administrator sees them: which there are, what one is about, ending one.

On asyncio. Owns requests and answers; ``cluster`` owns connections and retries. Source: KIP-664.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.coordinators import CoordinatorFinder
from ottla.client.wire.coordination import TRANSACTION
from ottla.client.wire.transacting import take_over_request
from ottla.ids import TopicPartition
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

ABORT_TIMEOUT_MS = 60_000
"""The timeout of transactions that are never begun: the id is only taken over."""


class ListedTransaction(NamedTuple):
    """A transactional id as a list shows it."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id; ``start_time_ms`` is -1 when no transaction is open."""

    transactional_id: str
    coordinator: int
    state: str
    timeout_ms: int
    start_time_ms: int
    producer_id: int
    producer_epoch: int
    partitions: list[TopicPartition]


class Transactions:
    """Transaction calls on a cluster. Every method raises KafkaError with the broker's words."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = CoordinatorFinder(cluster, TRANSACTION)

    async def list_transactions(
        self, *, states: Sequence[str] = (), duration_min_ms: int = -1
    ) -> list[ListedTransaction]:
        """Return the transactional ids of all brokers, by name.

        ``states``: these only; empty lets all through. ``duration_min_ms``: open for longer only.
        """
        request = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=[], duration_filter=duration_min_ms
        )
        found = {
            one.transactional_id: ListedTransaction(
                one.transactional_id, one.producer_id, one.transaction_state
            )
            for answer in await self._cluster.ask_every_broker(request, ListTransactionsResponse)
            for one in answer.transaction_states
        }
        return [found[name] for name in sorted(found)]

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """Return one. Raises TRANSACTIONAL_ID_NOT_FOUND."""

        async def attempt() -> TransactionDescription:
            connection = await self._coordinators.connection(transactional_id)
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            answer = await connection.call(request, DescribeTransactionsResponse)
            (one,) = answer.transaction_states
            self._coordinators.check(transactional_id, one.error_code)
            return TransactionDescription(
                transactional_id,
                self._coordinators.node_of(transactional_id),
                one.transaction_state,
                one.transaction_timeout_ms,
                one.transaction_start_time_ms,
                one.producer_id,
                one.producer_epoch,
                sorted(
                    TopicPartition(topic.topic, index)
                    for topic in one.topics
                    for index in topic.partitions
                ),
            )

        return await self._cluster.retrying(attempt)

    async def abort(self, transactional_id: str) -> None:
        """End an open transaction by taking its id over: its producer is fenced from now on."""

        async def attempt() -> None:
            connection = await self._coordinators.connection(transactional_id)
            request = take_over_request(transactional_id, ABORT_TIMEOUT_MS)
            answer = await connection.call(request, InitProducerIdResponse)
            self._coordinators.check(transactional_id, answer.error_code)

        await self._cluster.retrying(attempt)
