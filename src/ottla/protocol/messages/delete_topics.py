"""DeleteTopics, API key 20: deletes topics by name or by id.

v4 is flexible; v5 adds error_message and may answer THROTTLING_QUOTA_EXCEEDED (KIP-599); v6
replaces topic_names by topics, each a name or an id (KIP-516).
"""

from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.protocol.schema import Message, Struct, array, int16, int32, string, uuid


class DeleteTopicState(Struct):
    name: str | None = string(nullable="0+", default=None)
    topic_id: TopicId = uuid()


class DeleteTopicsRequest(Message, api_key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+", default=[])
    topic_names: list[str] = array(string, "0-5", default=[])
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable="6+")
    topic_id: TopicId = uuid("6+", default=NULL_TOPIC_ID)
    error_code: int = int16(default=0)
    error_message: str | None = string("5+", nullable="0+", default=None)


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int = int32(default=0)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
