"""ElectLeaders, API key 43: makes preferred or unclean replicas leaders.

v1 adds the election type and a top-level error_code (KIP-460); v2 is flexible.
"""

from ottla.protocol.schema import Message, Struct, array, int8, int16, int32, string


class TopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    election_type: int = int8("1+", default=0)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
