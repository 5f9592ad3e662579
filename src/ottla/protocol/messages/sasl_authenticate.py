"""SaslAuthenticate, API key 36: carries one step of the SASL exchange that SaslHandshake began.

v1 answers session_lifetime_ms, after which to authenticate again (KIP-368); v2 is flexible.
"""

from ottla.protocol.schema import Message, bytes_, int16, int64, string


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = bytes_()


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64("1+", default=0)
