"""DescribeTransactions, key 65: state, producer and partitions of transactional ids (KIP-664)."""

from collections.abc import Iterable

from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.errors import KafkaError
from ottla.handlers.answer_room import AnswerRoom
from ottla.handlers.call import Call
from ottla.ids import TopicPartition
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ottla.sliced import STRIDE, Steps, distinct, each_in_steps, sorted_in_steps


class DescribeTransactions:
    """Answers from the transaction coordinator's memory."""

    def __init__(self, transactions: TransactionCoordinator, *, elements_max: int) -> None:
        self._transactions = transactions
        self._elements_max = elements_max

    def handle(
        self, request: DescribeTransactionsRequest, call: Call
    ) -> Steps[DescribeTransactionsResponse]:
        """Return each transactional id once, with its own error if it has one."""
        del call
        room = AnswerRoom(self._elements_max)
        asked = yield from distinct(request.transactional_ids)
        states = yield from each_in_steps(asked, lambda one: self._describe(one, room))
        return DescribeTransactionsResponse(transaction_states=states)

    def _describe(self, transactional_id: str, room: AnswerRoom) -> Steps[TransactionState]:
        try:
            found = self._transactions.describe(transactional_id)
            if not room.take(1 + len(found.partitions)):
                raise room.refusal
        except KafkaError as error:
            return TransactionState(
                error_code=error.code,
                transactional_id=transactional_id,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=0,
                producer_id=0,
                producer_epoch=0,
                topics=[],
            )
        state = TransactionState(
            transactional_id=transactional_id,
            transaction_state=found.state.value,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.start_ms,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            topics=[],
        )
        if found.partitions:
            state.topics = yield from _topics(found.partitions)
        return state


def _topics(partitions: Iterable[TopicPartition]) -> Steps[list[TopicData]]:
    """Return the partitions grouped by topic, both sorted."""
    topics: dict[str, list[int]] = {}
    for count, where in enumerate((yield from sorted_in_steps(partitions)), 1):
        topics.setdefault(where.topic, []).append(where.partition)
        if not count % STRIDE:
            yield None
    return [TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
