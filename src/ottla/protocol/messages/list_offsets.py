"""ListOffsets, API key 2: finds the offset for a timestamp, or for a place such as latest (-1).

Where: handlers.apis.list_offsets. v2 adds isolation_level; v4 leader epochs for fencing; v5 may
answer OFFSET_NOT_AVAILABLE; v6 is flexible. Named places: -3 max timestamp from v7 (KIP-734), -4
earliest local from v8 (KIP-405), -5 latest tiered from v9 (KIP-1005), -6 earliest pending upload
from v11 (KIP-1023). v10 adds timeout_ms (KIP-1075).
"""

from ottla.protocol.schema import Message, Struct, array, int8, int16, int32, int64, string

LATEST = -1
"""Instead of a timestamp: the end of the log, as far as a consumer may read."""
EARLIEST = -2
"""Instead of a timestamp: the log start offset."""
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
PLACES_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The versions in which the places came."""
NO_OFFSET = -1
"""The answer when no record is as new as the timestamp."""


class ListOffsetsPartition(Struct):
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64()


class ListOffsetsTopic(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Message, api_key=2, versions="1-11", flexible="6+"):
    replica_id: int = int32()
    isolation_level: int = int8("2+", default=0)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", default=0)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16(default=0)
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Message, api_key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int = int32("2+", default=0)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
