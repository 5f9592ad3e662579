"""ListTransactions, key 66: the transactional ids that this node coordinates (KIP-664).

v1 filters by how long a transaction has been open (KIP-994), v2 by a regular expression that must
match the whole id (KIP-1152). Ids that the client may not describe are left out, and do not count.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer.topic_pattern import TopicPattern
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.transaction import Transaction, TransactionState
from ottla.env.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.answer_room import AnswerRoom, weight
from ottla.handlers.call import Call
from ottla.protocol.messages import list_transactions as messages
from ottla.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.sliced import STRIDE, Steps, distinct, each, sifted

if TYPE_CHECKING:
    from ottla.security.access import Access

_STATES = frozenset(state.value for state in TransactionState)


class ListTransactions:
    """Answers from the transaction coordinator's memory."""

    def __init__(
        self, transactions: TransactionCoordinator, clock: Clock, *, elements_max: int
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._elements_max = elements_max

    def handle(
        self, request: ListTransactionsRequest, call: Call
    ) -> Steps[ListTransactionsResponse]:
        """Return the ids that pass all filters, or an error while some are still loading."""
        access = call.client.access
        try:
            found = yield from self._matching(request.transactional_id_pattern, access)
        except KafkaError as error:
            return _refused(error.code)
        now_ms = self._clock.wall_ms()
        asked = yield from distinct(request.state_filters)
        states = frozenset(asked)
        producer_ids = frozenset((yield from distinct(request.producer_id_filters)))

        def is_wanted(one: Transaction) -> bool:
            return (
                (not states or one.state.value in states)
                and (not producer_ids or one.producer_id in producer_ids)
                and (
                    request.duration_filter < 0
                    or one.start_ms < now_ms - request.duration_filter  # Not begun: as in Kafka.
                )
            )

        unknown = (name for name in asked if name not in _STATES)
        room = AnswerRoom(self._elements_max)
        told = []
        for count, one in enumerate(found, 1):
            if is_wanted(one):
                if not room.take(weight(one.transactional_id), first_is_free=False):
                    return _refused(room.refusal.code)  # A part of them would look like all.
                told.append(
                    messages.TransactionState(
                        transactional_id=one.transactional_id,
                        producer_id=one.producer_id,
                        transaction_state=one.state.value,
                    )
                )
            if not count % STRIDE:
                yield None
        return ListTransactionsResponse(
            unknown_state_filters=(yield from each(unknown, lambda name: name)),
            transaction_states=told,
        )

    def _matching(
        self, pattern: str | None, access: "Access | None"
    ) -> Steps[Sequence[Transaction]]:
        """Return the transactions whose ids match; None and "" match all. Raises KafkaError.

        Ids that the client must not know of are left out first: how much there is to match tells of
        them.
        """
        found = self._transactions.list_all()
        if access is not None:
            found, _ = yield from sifted(
                found, lambda one: access.may_list_transaction(one.transactional_id)
            )
        if not pattern:
            return found
        names = yield from each(found, lambda one: one.transactional_id)
        matching = frozenset((yield from TopicPattern(pattern).select(names)))
        return [one for one in found if one.transactional_id in matching]


def _refused(code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        error_code=code, unknown_state_filters=[], transaction_states=[]
    )
