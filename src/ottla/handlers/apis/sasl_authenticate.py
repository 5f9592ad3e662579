"""SaslAuthenticate, key 36, when the client is authenticated already or need not be: refused.

``ottla.handlers.authentication`` serves it on connections that are not authenticated yet.
"""

from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


class SaslAuthenticate:
    """Refuses: it comes too late."""

    def handle(self, request: SaslAuthenticateRequest, call: Call) -> SaslAuthenticateResponse:
        """Answer ILLEGAL_SASL_STATE, as Kafka does."""
        del request, call
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
            auth_bytes=b"",
        )
