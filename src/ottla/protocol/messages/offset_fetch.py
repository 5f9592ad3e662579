"""OffsetFetch, API key 9: reads back what OffsetCommit stored. Answered by the group's coordinator.

v2 takes null topics for "all" and adds a top-level error_code; v3 throttle_time_ms; v5
committed_leader_epoch; v6 is flexible; v7 require_stable (KIP-447); v8 asks for many groups at once
and moves everything into ``groups``; v9 adds member_id and member_epoch (KIP-848); v10 names topics
by id.
"""

from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string, uuid


class OffsetFetchRequestTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class OffsetFetchRequestTopics(Struct):
    name: str = string("8-9", default="")
    topic_id: TopicId = uuid("10+", default=NULL_TOPIC_ID)
    partition_indexes: list[int] = array(int32)


class OffsetFetchRequestGroup(Struct):
    group_id: str = string()
    member_id: str | None = string("9+", nullable="0+", default=None)
    member_epoch: int = int32("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, nullable="0+")


class OffsetFetchRequest(Message, api_key=9, versions="1-10", flexible="6+"):
    group_id: str = string("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7", default=[]
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+", default=[])
    require_stable: bool = boolean("7+", default=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5+", default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16(default=0)


class OffsetFetchResponseTopic(Struct):
    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16(default=0)


class OffsetFetchResponseTopics(Struct):
    name: str = string("8-9", default="")
    topic_id: TopicId = uuid("10+", default=NULL_TOPIC_ID)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(Struct):
    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16(default=0)


class OffsetFetchResponse(Message, api_key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: int = int32("3+", default=0)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7", default=[])
    error_code: int = int16("2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+", default=[])
