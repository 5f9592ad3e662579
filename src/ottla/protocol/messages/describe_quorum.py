"""DescribeQuorum, API key 55: shows the state of the metadata quorum (KIP-595).

v1 adds the times of the last fetch (KIP-836); v2 error messages, nodes and directory ids (KIP-853).
"""

from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.protocol.schema import Message, Struct, array, int16, int32, int64, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int = int32()


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    topics: list[TopicData] = array(TopicData)


class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: TopicId = uuid("2+", default=NULL_TOPIC_ID)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


class ResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16(default=0)
    error_message: str | None = string("2+", nullable="0+", default=None)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class ResponseTopicData(Struct):
    topic_name: str = string()
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class Node(Struct):
    node_id: int = int32()
    listeners: list[Listener] = array(Listener)


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    error_code: int = int16(default=0)
    error_message: str | None = string("2+", nullable="0+", default=None)
    topics: list[ResponseTopicData] = array(ResponseTopicData)
    nodes: list[Node] = array(Node, "2+", default=[])
