"""SyncGroup, API key 14: a classic group's leader hands in the assignment, members get theirs.

v1 adds throttle_time_ms; v3 group_instance_id (KIP-345); v4 is flexible; v5 adds protocol_type and
protocol_name, which must be those of the group (KIP-559).
"""

from ottla.protocol.schema import Message, Struct, array, bytes_, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = bytes_()


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)
    protocol_type: str | None = string("5+", nullable="0+", default=None)
    protocol_name: str | None = string("5+", nullable="0+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16(default=0)
    protocol_type: str | None = string("5+", nullable="0+", default=None)
    protocol_name: str | None = string("5+", nullable="0+", default=None)
    assignment: bytes = bytes_()
