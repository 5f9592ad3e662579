"""RenewDelegationToken, API key 39: puts off the expiry of a delegation token (KIP-48).

v2 is flexible.
"""

from ottla.protocol.schema import Message, bytes_, int16, int32, int64


class RenewDelegationTokenRequest(Message, api_key=39, versions="1-2", flexible="2+"):
    hmac: bytes = bytes_()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Message, api_key=39, versions="1-2", flexible="2+"):
    error_code: int = int16(default=0)
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32(default=0)
