"""FindCoordinator, key 10: who coordinates a group or a transactional id. Nobody does yet.

v3 is flexible, v4 asks for several keys at once (KIP-699), v6 share groups (KIP-932). The API must
be there all the same: librdkafka takes its absence for a broker too old for lz4 and sends
uncompressed. Answered as a Kafka whose coordinators are not up (COORDINATOR_NOT_AVAILABLE), with a
line in the log.
"""

import logging

from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

logger = logging.getLogger(__name__)

BATCHED_SINCE = 4
WHY = "consumer groups and transactions are not served by this version of Ottla"


class FindCoordinator:
    """Says that there is none."""

    def __init__(self) -> None:
        self._has_warned = False

    def handle(self, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
        """Answer every key alike; warn once, since the client will only say that it waits."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning("a client at %s asks for a coordinator: %s", call.client.host, WHY)
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if call.api_version < BATCHED_SINCE:
            return FindCoordinatorResponse(
                error_code=code, error_message=WHY, node_id=-1, host="", port=-1
            )
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key, node_id=-1, host="", port=-1, error_code=code, error_message=WHY
                )
                for key in request.coordinator_keys
            ]
        )
