"""Produce, API key 0: appends record batches to partitions. Sent by producers to partition leaders.

Where: handlers.apis.produce. ``records`` reaches the log as the very bytes that came in. v3 carries
transactional_id and record batches of magic 2; v5 answers log_start_offset; v7 allows zstd
(KIP-110); v8 answers record_errors (KIP-467); v9 is flexible; v10 answers current_leader and
node_endpoints (KIP-951); v11 may answer TRANSACTION_ABORTABLE; v12 adds partitions to the
transaction by itself (KIP-890); v13 names topics by id (KIP-516). v0-2 do not exist any more, and
yet are advertised: see ``ottla.protocol.apis``.
"""

from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.protocol.primitives import RecordBytes
from ottla.protocol.schema import (
    Message,
    Struct,
    array,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)

ZSTD_SINCE = 7
TOPIC_IDS_SINCE = 13

ACKS_NONE = 0
"""There is no answer."""
ACKS_ALL = -1
"""The answer waits for the in-sync replicas."""


class PartitionProduceData(Struct):
    index: int = int32()
    records: RecordBytes | None = records(nullable="0+")


class TopicProduceData(Struct):
    name: str = string("0-12", default="")
    topic_id: TopicId = uuid("13+", default=NULL_TOPIC_ID)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
    transactional_id: str | None = string(nullable="0+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="0+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16(default=0)
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, "8+", default=[]
    )
    error_message: str | None = string("8+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", default=None, tag=0)


class TopicProduceResponse(Struct):
    name: str = string("0-12", default="")
    topic_id: TopicId = uuid("13+", default=NULL_TOPIC_ID)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class ProduceResponse(Message, api_key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(default=0)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", default=[], tag=0)
