"""CreateDelegationToken, API key 38: makes a delegation token (KIP-48).

v2 is flexible; v3 makes tokens on behalf of another owner (KIP-373).
"""

from ottla.protocol.schema import Message, Struct, array, bytes_, int16, int32, int64, string


class CreatableRenewers(Struct):
    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Message, api_key=38, versions="1-3", flexible="2+"):
    owner_principal_type: str | None = string("3+", nullable="0+", default=None)
    owner_principal_name: str | None = string("3+", nullable="0+", default=None)
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Message, api_key=38, versions="1-3", flexible="2+"):
    error_code: int = int16(default=0)
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+", default="")
    token_requester_principal_name: str = string("3+", default="")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_()
    throttle_time_ms: int = int32(default=0)
