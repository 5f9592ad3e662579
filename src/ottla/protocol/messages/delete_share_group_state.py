"""DeleteShareGroupState, API key 86: forgets the stored state of share partitions (KIP-932).

Between brokers only.
"""

from ottla.ids import TopicId
from ottla.protocol.schema import Message, Struct, array, int16, int32, string, uuid


class PartitionData(Struct):
    partition: int = int32()


class DeleteStateData(Struct):
    topic_id: TopicId = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class DeleteShareGroupStateRequest(Message, api_key=86, versions="0", flexible="0+"):
    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)


class DeleteStateResult(Struct):
    topic_id: TopicId = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class DeleteShareGroupStateResponse(Message, api_key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = array(DeleteStateResult)
