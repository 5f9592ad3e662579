"""OffsetDelete, API key 47: forgets a group's offsets of topics it no longer reads (KIP-496).

Never flexible.
"""

from ottla.protocol.schema import Message, Struct, array, int16, int32, string


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Message, api_key=47, versions="0"):
    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16(default=0)


class OffsetDeleteResponseTopic(Struct):
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Message, api_key=47, versions="0"):
    error_code: int = int16(default=0)
    throttle_time_ms: int = int32(default=0)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
