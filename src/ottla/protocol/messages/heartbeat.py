"""Heartbeat, API key 12: keeps a member of a classic group alive and tells it about rebalances.

v1 adds throttle_time_ms; v3 group_instance_id (KIP-345); v4 is flexible.
"""

from ottla.protocol.schema import Message, int16, int32, string


class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)


class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16(default=0)
