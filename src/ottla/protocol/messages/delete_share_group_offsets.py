"""DeleteShareGroupOffsets, API key 92: forgets an empty share group's offsets (KIP-932)."""

from ottla.ids import TopicId
from ottla.protocol.schema import Message, Struct, array, int16, int32, string, uuid


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string()


class DeleteShareGroupOffsetsRequest(Message, api_key=92, versions="0", flexible="0+"):
    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string()
    topic_id: TopicId = uuid()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)


class DeleteShareGroupOffsetsResponse(Message, api_key=92, versions="0", flexible="0+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(
        DeleteShareGroupOffsetsResponseTopic
    )
