"""InitializeShareGroupState, API key 83: starts the stored state of share partitions (KIP-932).

Between brokers only.
"""

from ottla.ids import TopicId
from ottla.protocol.schema import Message, Struct, array, int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()


class InitializeStateData(Struct):
    topic_id: TopicId = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class InitializeShareGroupStateRequest(Message, api_key=83, versions="0", flexible="0+"):
    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)


class InitializeStateResult(Struct):
    topic_id: TopicId = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class InitializeShareGroupStateResponse(Message, api_key=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult] = array(InitializeStateResult)
