"""UnregisterBroker, key 64: forgets a broker that is gone (KIP-500).

One that runs is refused. (Kafka unregisters it, and it is without a cluster until its restart.)
"""

from ottla.cluster.registrations import Registrations
from ottla.errors import KafkaError
from ottla.handlers.call import Call
from ottla.pending import pending_of
from ottla.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from ottla.sliced import Steps


class UnregisterBroker:
    """Has what is known of a broker deleted."""

    def __init__(self, registrations: Registrations) -> None:
        self._registrations = registrations

    def handle(
        self, request: UnregisterBrokerRequest, call: Call
    ) -> Steps[UnregisterBrokerResponse]:
        """Answer when it is forgotten."""
        del call
        try:
            yield pending_of(self._registrations.unregister(request.broker_id))
        except KafkaError as error:
            return UnregisterBrokerResponse(error_code=error.code, error_message=error.why)
        return UnregisterBrokerResponse(error_message="")
