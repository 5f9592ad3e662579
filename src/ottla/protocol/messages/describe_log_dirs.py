"""DescribeLogDirs, API key 35: shows a broker's log directories and their replicas' sizes.

v2 is flexible; v3 adds a top-level error_code; v4 total_bytes and usable_bytes (KIP-827); v5
is_cordoned.
"""

from ottla.protocol.schema import Message, Struct, array, boolean, int16, int32, int64, string


class DescribableLogDirTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class DescribeLogDirsRequest(Message, api_key=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    error_code: int = int16(default=0)
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1)
    usable_bytes: int = int64("4+", default=-1)
    is_cordoned: bool = boolean("5+", default=False)


class DescribeLogDirsResponse(Message, api_key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("3+", default=0)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
