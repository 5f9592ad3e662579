"""OffsetCommit, API key 8: stores how far a group has read. Answered by the group's coordinator.

v2 lets the client choose a retention, v5 takes that back; v3 adds throttle_time_ms; v6
committed_leader_epoch; v7 group_instance_id (KIP-345); v8 is flexible; v9 serves KIP-848 members
too, whose member epoch travels as generation_id_or_member_epoch; v10 names topics by id.
"""

from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.protocol.schema import Message, Struct, array, int16, int32, int64, string, uuid


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1)
    committed_metadata: str | None = string(nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = string("0-9", default="")
    topic_id: TopicId = uuid("10+", default=NULL_TOPIC_ID)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Message, api_key=8, versions="2-10", flexible="8+"):
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("7+", nullable="0+", default=None)
    retention_time_ms: int = int64("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16(default=0)


class OffsetCommitResponseTopic(Struct):
    name: str = string("0-9", default="")
    topic_id: TopicId = uuid("10+", default=NULL_TOPIC_ID)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Message, api_key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int = int32("3+", default=0)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
