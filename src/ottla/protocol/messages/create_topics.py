"""CreateTopics, API key 19: creates topics with partitions, replicas and configs.

v4 takes -1 for the default number of partitions and replicas (KIP-464); v5 is flexible and answers
the topic's configs (KIP-525); v6 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599); v7 answers topic
ids.
"""

from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string, uuid


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")


class CreatableTopic(Struct):
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Message, api_key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean(default=False)


class CreatableTopicConfigs(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    name: str = string()
    topic_id: TopicId = uuid("7+", default=NULL_TOPIC_ID)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    topic_config_error_code: int = int16("5+", default=0, tag=0)
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable="0+", default=[]
    )


class CreateTopicsResponse(Message, api_key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: int = int32(default=0)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
