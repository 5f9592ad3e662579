"""EndTxn, key 26: commits or aborts. Answered when the decision is durable; markers come after.

From v5 on (KIP-890) every transaction raises the producer's epoch, and the answer tells it.
"""

from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.machine import Answer, EndTransaction
from ottla.coordinator.transaction.transaction import BUMPS_EPOCH_SINCE
from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.pending import Pending
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

FENCED_SINCE = 2
BUMPS_SINCE = 5


class EndTxn:
    """Hands the decision to the coordinator."""

    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions

    def handle(self, request: EndTxnRequest, call: Call) -> Pending[EndTxnResponse]:
        """Answer with the producer's id and epoch from now on (v5)."""
        version = call.api_version
        event = EndTransaction(
            request.producer_id,
            request.producer_epoch,
            request.committed,
            BUMPS_EPOCH_SINCE if version >= BUMPS_SINCE else 0,
        )

        def respond(answer: Answer) -> EndTxnResponse:
            return EndTxnResponse(
                error_code=told(answer.code, version),
                producer_id=answer.producer_id,
                producer_epoch=answer.producer_epoch,
            )

        return self._transactions.end(request.transactional_id, event).then(respond)


def told(code: ErrorCode, version: int) -> ErrorCode:
    """Return the code that clients of a transactional API's version understand."""
    if version < FENCED_SINCE and code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
