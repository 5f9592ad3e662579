"""DescribeTransactions, key 65: state, producer and partitions of transactional ids (KIP-664)."""

from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.errors import KafkaError
from ottla.handlers.answer_room import AnswerRoom
from ottla.handlers.call import Call
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ottla.sliced import Steps, each


class DescribeTransactions:
    """Answers from memory."""

    def __init__(self, transactions: TransactionCoordinator, *, elements_max: int) -> None:
        self._transactions = transactions
        self._elements_max = elements_max

    def handle(
        self, request: DescribeTransactionsRequest, call: Call
    ) -> Steps[DescribeTransactionsResponse]:
        """Answer every id by itself, and once."""
        del call
        room = AnswerRoom(self._elements_max)
        states = yield from each(
            list(dict.fromkeys(request.transactional_ids)), lambda one: self._describe(one, room)
        )
        return DescribeTransactionsResponse(transaction_states=states)

    def _describe(self, transactional_id: str, room: AnswerRoom) -> TransactionState:
        found = self._transactions.describe(transactional_id)
        if not isinstance(found, KafkaError) and not room.take(1 + len(found.partitions)):
            found = room.refusal
        if isinstance(found, KafkaError):
            return TransactionState(
                error_code=found.code,
                transactional_id=transactional_id,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=0,
                producer_id=0,
                producer_epoch=0,
                topics=[],
            )
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(found.partitions):
            topics.setdefault(topic, []).append(index)
        return TransactionState(
            transactional_id=transactional_id,
            transaction_state=found.state.value,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.start_ms,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            topics=[
                TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()
            ],
        )
