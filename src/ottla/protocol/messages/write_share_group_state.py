"""WriteShareGroupState, API key 85: stores changes to the state of share partitions (KIP-932).

Between brokers only. v1 adds delivery_complete_count (KIP-1226).
"""

from ottla.ids import TopicId
from ottla.protocol.schema import Message, Struct, array, int8, int16, int32, int64, string, uuid


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionData(Struct):
    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1)
    state_batches: list[StateBatch] = array(StateBatch)


class WriteStateData(Struct):
    topic_id: TopicId = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class WriteShareGroupStateRequest(Message, api_key=85, versions="0-1", flexible="0+"):
    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)


class WriteStateResult(Struct):
    topic_id: TopicId = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class WriteShareGroupStateResponse(Message, api_key=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = array(WriteStateResult)
