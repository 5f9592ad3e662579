"""ExpireDelegationToken, API key 40: ends a delegation token now or sooner (KIP-48).

v2 is flexible.
"""

from ottla.protocol.schema import Message, bytes_, int16, int32, int64


class ExpireDelegationTokenRequest(Message, api_key=40, versions="1-2", flexible="2+"):
    hmac: bytes = bytes_()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Message, api_key=40, versions="1-2", flexible="2+"):
    error_code: int = int16(default=0)
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32(default=0)
