"""LeaveGroup, API key 13: takes members out of a classic group without waiting for their timeout.

v1 adds throttle_time_ms; v3 takes many members, by member id or group_instance_id (KIP-345); v4 is
flexible; v5 adds reason (KIP-800).
"""

from ottla.protocol.schema import Message, Struct, array, int16, int32, string


class MemberIdentity(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+", default=None)
    reason: str | None = string("5+", nullable="0+", default=None)


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    group_id: str = string()
    member_id: str = string("0-2", default="")
    members: list[MemberIdentity] = array(MemberIdentity, "3+", default=[])


class MemberResponse(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+")
    error_code: int = int16(default=0)


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16(default=0)
    members: list[MemberResponse] = array(MemberResponse, "3+", default=[])
