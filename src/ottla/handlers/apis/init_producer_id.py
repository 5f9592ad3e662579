"""InitProducerId, key 22: gives a producer the id under which it numbers its batches (KIP-98).

A transactional id keeps its producer id and gets the next epoch, which fences the producer that had
it before. v3 lets a producer keep its id after an error (KIP-360), v4 and v5 add error codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.producer_ids import ProducerIds
from ottla.coordinator.on_demand import CoordinatorsOnDemand
from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.ids import ProducerId
from ottla.pending import Pending
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.sliced import Steps

if TYPE_CHECKING:
    from ottla.coordinator.transaction.machine import Answer

FENCED_SINCE = 4


class InitProducerId:
    """Gives ids from this node's block, or has the coordinator raise a transactional id's epoch."""

    def __init__(self, producer_ids: ProducerIds, coordinators: CoordinatorsOnDemand) -> None:
        self._producer_ids = producer_ids
        self._coordinators = coordinators

    def handle(
        self, request: InitProducerIdRequest, call: Call
    ) -> (
        InitProducerIdResponse
        | Pending[InitProducerIdResponse]
        | Steps[Pending[InitProducerIdResponse]]
    ):
        """Return an id and its epoch.

        INVALID_REQUEST for an id without epoch or the reverse, and for an empty transactional id.
        COORDINATOR_LOAD_IN_PROGRESS while the metadata store does not answer: clients retry.
        """
        has_half = (request.producer_id == -1) != (request.producer_epoch == -1)
        if has_half or request.transactional_id == "":
            return _refused(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is None:
            return self._producer_ids.next().then(_answer, lambda error: _refused(error.code))
        return self._of_transaction(request, call)

    def _of_transaction(
        self, request: InitProducerIdRequest, call: Call
    ) -> Steps[Pending[InitProducerIdResponse]]:
        yield self._coordinators.ready()
        from ottla.coordinator.transaction import machine  # noqa: PLC0415 - idempotence needs none

        assert request.transactional_id is not None, "of a transaction"

        event = machine.InitProducerId(
            request.transactional_id,
            request.transaction_timeout_ms,
            request.producer_id,
            request.producer_epoch,
        )

        def respond(answer: Answer) -> InitProducerIdResponse:
            code, producer_id, epoch = answer
            if code is ErrorCode.PRODUCER_FENCED and call.api_version < FENCED_SINCE:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
            return InitProducerIdResponse(
                error_code=code, producer_id=producer_id, producer_epoch=epoch
            )

        return self._coordinators.transactions.init_producer_id(event).then(respond)


def _answer(producer_id: ProducerId) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)
