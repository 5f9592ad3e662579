"""InitProducerId, key 22: an id that a producer numbers its batches under (KIP-98).

v3 lets a producer keep its id (KIP-360), v4 and v5 add error codes. Only for idempotence: there is
no transaction coordinator yet, so a transactional id is refused.
"""

from ottla.cluster.producer_ids import ProducerIds
from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.pending import Pending
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class InitProducerId:
    """Hands out ids from this node's block."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def handle(
        self, request: InitProducerIdRequest, call: Call
    ) -> InitProducerIdResponse | Pending[InitProducerIdResponse]:
        """Answer with a fresh id, epoch 0; INVALID_REQUEST for what cannot be served."""
        del call
        has_half = (request.producer_id == -1) != (request.producer_epoch == -1)
        if request.transactional_id is not None or has_half:
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
        return self._producer_ids.next().then(
            lambda producer_id: InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        )
