"""Fetch, API key 1: reads record batches from partitions. Sent by consumers and by followers.

Where: handlers.apis.fetch. A response's ``records`` may be a stretch of a segment file, which the
connection sends in place. v4 adds isolation_level and aborted_transactions; v5 log_start_offset; v7
fetch sessions (KIP-227); v9 current_leader_epoch (KIP-320); v10 allows zstd; v11 rack_id and
preferred_read_replica (KIP-392); v12 is flexible, with last_fetched_epoch and diverging_epoch; v13
names topics by id (KIP-516); v14 may answer OFFSET_MOVED_TO_TIERED_STORAGE; v15 moves the replica's
id into replica_state (KIP-903); v16 answers node_endpoints (KIP-951); v17 replica_directory_id
(KIP-853); v18 high_watermark (KIP-1166).
"""

from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.protocol.primitives import RecordBytes, Splice
from ottla.protocol.schema import (
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)

TOPIC_IDS_SINCE = 13


class ReplicaState(Struct):
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: TopicId = uuid("17+", default=NULL_TOPIC_ID, tag=0)
    high_watermark: int = int64("18+", default=9223372036854775807, tag=1)


class FetchTopic(Struct):
    topic: str = string("0-12", default="")
    topic_id: TopicId = uuid("13+", default=NULL_TOPIC_ID)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string("7-12", default="")
    topic_id: TopicId = uuid("13+", default=NULL_TOPIC_ID)
    partitions: list[int] = array(int32)


class FetchRequest(Message, api_key=1, versions="4-18", flexible="12+"):
    cluster_id: str | None = string("12+", nullable="0+", default=None, tag=0)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState | None = struct(ReplicaState, "15+", default=None, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    isolation_level: int = int8(default=0)
    session_id: int = int32("7+", default=0)
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+", default=[])
    rack_id: str = string("11+", default="")


class EpochEndOffset(Struct):
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16(default=0)
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, "12+", default=None, tag=0)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "12+", default=None, tag=1)
    snapshot_id: SnapshotId | None = struct(SnapshotId, "12+", default=None, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, nullable="0+", default=None
    )
    preferred_read_replica: int = int32("11+", default=-1)
    records: RecordBytes | Splice | None = records(nullable="0+", default=None)


class FetchableTopicResponse(Struct):
    topic: str = string("0-12", default="")
    topic_id: TopicId = uuid("13+", default=NULL_TOPIC_ID)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class FetchResponse(Message, api_key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("7+", default=0)
    session_id: int = int32("7+", default=0)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", default=[], tag=0)
