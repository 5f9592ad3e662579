"""AlterReplicaLogDirs, API key 34: moves replicas between a broker's log directories (KIP-113).

v2 is flexible.
"""

from ottla.protocol.schema import Message, Struct, array, int16, int32, string


class AlterReplicaLogDirTopic(Struct):
    name: str = string()
    partitions: list[int] = array(int32)


class AlterReplicaLogDir(Struct):
    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Message, api_key=34, versions="1-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16(default=0)


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Message, api_key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: int = int32(default=0)
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
