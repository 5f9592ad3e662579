"""SaslHandshake, key 17, when the client is authenticated already or need not be: refused.

``ottla.handlers.authentication`` serves it on connections that are not authenticated yet.
"""

from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


class SaslHandshake:
    """Refuses: it comes too late."""

    def handle(self, request: SaslHandshakeRequest, call: Call) -> SaslHandshakeResponse:
        """Answer ILLEGAL_SASL_STATE, without any mechanism, as Kafka does."""
        del request, call
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
