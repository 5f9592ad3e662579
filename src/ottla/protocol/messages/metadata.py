"""Metadata, API key 3: tells which brokers and topics there are and who leads each partition.

Where: handlers.apis.metadata. topics: in v0 an empty list means all of them; from v1 null means all
and an empty list none. v1 adds racks, controller_id, is_internal; v2 cluster_id; v4
allow_auto_topic_creation; v5 offline_replicas; v7 leader_epoch; v8 authorized operations; v9 is
flexible; v10 topic ids, which may be asked for from v12; v11 drops the cluster's authorized
operations (KIP-700); v13 adds a top-level error_code.
"""

from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.protocol.schema import Message, Struct, array, boolean, int16, int32, string, uuid


class MetadataRequestTopic(Struct):
    topic_id: TopicId = uuid("10+", default=NULL_TOPIC_ID)
    name: str | None = string(nullable="10+")


class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10", default=False)
    include_topic_authorized_operations: bool = boolean("8+", default=False)


class MetadataResponseBroker(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="0+", default=None)


class MetadataResponsePartition(Struct):
    error_code: int = int16(default=0)
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, "5+", default=[])


class MetadataResponseTopic(Struct):
    error_code: int = int16(default=0)
    name: str | None = string(nullable="12+")
    topic_id: TopicId = uuid("10+", default=NULL_TOPIC_ID)
    is_internal: bool = boolean("1+", default=False)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-2147483648)


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = int32("3+", default=0)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="0+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+", default=0)
