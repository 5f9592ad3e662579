"""ShareGroupHeartbeat, API key 76: joins, keeps and leaves a share group (KIP-932).

v0 was an early access version and is gone.
"""

from ottla.ids import TopicId
from ottla.protocol.schema import Message, Struct, array, int16, int32, string, struct, uuid


class ShareGroupHeartbeatRequest(Message, api_key=76, versions="1", flexible="0+"):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)


class TopicPartitions(Struct):
    topic_id: TopicId = uuid()
    partitions: list[int] = array(int32)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupHeartbeatResponse(Message, api_key=76, versions="1", flexible="0+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)
