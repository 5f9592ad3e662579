"""JoinGroup, API key 11: a member of a classic group asks to take part in the next generation.

The answer waits until the rebalance is over; only the leader's answer lists the members. v1 adds
rebalance_timeout_ms (before, the session timeout stands in); v2 throttle_time_ms; from v4 a member
without an id is sent away with one (KIP-394); v5 adds group_instance_id (KIP-345); v6 is flexible;
v7 answers protocol_type (KIP-559); v8 adds reason (KIP-800); v9 skip_assignment (KIP-814).
"""

from ottla.protocol.schema import Message, Struct, array, boolean, bytes_, int16, int32, string


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = bytes_()


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="0+", default=None)


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    metadata: bytes = bytes_()


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32("2+", default=0)
    error_code: int = int16(default=0)
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="0+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+", default=False)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
