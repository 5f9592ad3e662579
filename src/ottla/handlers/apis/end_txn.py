"""EndTxn, key 26: commits or aborts a transaction.

Answers when the decision is durable; the markers are written after that. From v5 on (KIP-890) every
transaction raises the producer's epoch, and the answer holds the new one.
"""

from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.machine import Answer, EndTransaction
from ottla.coordinator.transaction.version import BUMPS_EPOCH_SINCE
from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.pending import Pending
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

FENCED_SINCE = 2
BUMPS_SINCE = 5


class EndTxn:
    """Passes the decision to the transaction coordinator."""

    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions

    def handle(self, request: EndTxnRequest, call: Call) -> Pending[EndTxnResponse]:
        """Return the code; from v5 on also the producer id and epoch of the next transaction."""
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
    """Return the code that clients of this version of a transactional API know."""
    if version < FENCED_SINCE and code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
