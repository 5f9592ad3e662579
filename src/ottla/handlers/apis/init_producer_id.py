"""InitProducerId, key 22: an id that a producer numbers its batches under (KIP-98).

v3 lets a producer keep its id (KIP-360), v4 and v5 add error codes. Only for idempotence: there is
no transaction coordinator yet, so a transactional id is refused.
"""

from ottla.cluster.producer_ids import ProducerIds
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.ids import ProducerId
from ottla.pending import Pending
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class InitProducerId:
    """Hands out ids from this node's block."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def handle(
        self, request: InitProducerIdRequest, call: Call
    ) -> InitProducerIdResponse | Pending[InitProducerIdResponse]:
        """Answer with a fresh id, epoch 0; INVALID_REQUEST for what cannot be served.

        COORDINATOR_LOAD_IN_PROGRESS while the metadata store does not answer: clients ask again.
        """
        del call
        has_half = (request.producer_id == -1) != (request.producer_epoch == -1)
        if request.transactional_id is not None or has_half:
            return _refused(ErrorCode.INVALID_REQUEST)
        return self._producer_ids.next().then(_answer)


def _answer(outcome: ProducerId | KafkaError) -> InitProducerIdResponse:
    if isinstance(outcome, KafkaError):
        return _refused(outcome.code)
    return InitProducerIdResponse(producer_id=outcome, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)
