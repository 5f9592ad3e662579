"""ReadShareGroupStateSummary, API key 87: reads where share partitions stand (KIP-932).

Between brokers only. v1 adds delivery_complete_count (KIP-1226).
"""

from ottla.ids import TopicId
from ottla.protocol.schema import Message, Struct, array, int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateSummaryData(Struct):
    topic_id: TopicId = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateSummaryRequest(Message, api_key=87, versions="0-1", flexible="0+"):
    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1)


class ReadStateSummaryResult(Struct):
    topic_id: TopicId = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateSummaryResponse(Message, api_key=87, versions="0-1", flexible="0+"):
    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult)
