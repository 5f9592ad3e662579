"""Turns a configuration into the plain values that the rooms below take.

``broker`` and ``ottla.node`` hand these values down; the rooms never see the option tables.
"""

from collections.abc import Mapping
from math import inf

from ottla.cluster.topics import NewTopic, given_configs
from ottla.config import broker as options
from ottla.config import coordinator as coordinator_options
from ottla.config import log as log_options
from ottla.config import topic as topic_options
from ottla.config.config import Config
from ottla.config.coordinator import PRODUCER_ID_EXPIRATION_MS
from ottla.config.topic import segment_bytes
from ottla.coordinator.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.housekeeping.log_cleaner import CleanerSettings
from ottla.log.config import LogConfig
from ottla.log.directories.space import SpaceLimits
from ottla.network.limits import Limits
from ottla.records.batch import TimestampType
from ottla.records.compression import GZIP_LEVEL_DEFAULT, Codec
from ottla.replication.partition import PartitionSettings

_TIMESTAMP_TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}
_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_LEVELS = {
    Codec.GZIP: topic_options.COMPRESSION_GZIP_LEVEL,
    Codec.LZ4: topic_options.COMPRESSION_LZ4_LEVEL,
    Codec.ZSTD: topic_options.COMPRESSION_ZSTD_LEVEL,
}


def partition_settings_of(config: Config, broker: Config) -> PartitionSettings:
    """Return the settings of a topic's partitions: ``config`` is the topic's configuration."""
    compression = _CODECS.get(config[topic_options.COMPRESSION_TYPE])
    return PartitionSettings(
        log=LogConfig(
            segment_bytes=segment_bytes(config),
            segment_ms=_segment_ms(config),
            segment_jitter_ms=config[topic_options.SEGMENT_JITTER_MS],
            segment_index_bytes=config[topic_options.SEGMENT_INDEX_BYTES],
            index_interval_bytes=config[topic_options.INDEX_INTERVAL_BYTES],
            is_preallocated=config[topic_options.PREALLOCATE],
            max_message_bytes=config[topic_options.MAX_MESSAGE_BYTES],
            compression=compression,
            compression_level=_compression_level(config, compression),
            message_timestamp_type=_TIMESTAMP_TYPES[config[topic_options.MESSAGE_TIMESTAMP_TYPE]],
            message_timestamp_before_max_ms=config[topic_options.MESSAGE_TIMESTAMP_BEFORE_MAX_MS],
            message_timestamp_after_max_ms=config[topic_options.MESSAGE_TIMESTAMP_AFTER_MAX_MS],
            is_compacted="compact" in config[topic_options.CLEANUP_POLICY],
            producer_id_expiration_ms=broker[PRODUCER_ID_EXPIRATION_MS],
            min_cleanable_dirty_ratio=config[topic_options.MIN_CLEANABLE_DIRTY_RATIO],
            min_compaction_lag_ms=config[topic_options.MIN_COMPACTION_LAG_MS],
            max_compaction_lag_ms=config[topic_options.MAX_COMPACTION_LAG_MS],
            delete_retention_ms=config[topic_options.DELETE_RETENTION_MS],
            is_deleted="delete" in config[topic_options.CLEANUP_POLICY],
            retention_ms=config[topic_options.RETENTION_MS],
            retention_bytes=config[topic_options.RETENTION_BYTES],
            file_delete_delay_ms=config[topic_options.FILE_DELETE_DELAY_MS],
            flush_messages=config[topic_options.FLUSH_MESSAGES],
            flush_ms=config[topic_options.FLUSH_MS],
        ),
        min_insync_replicas=config[topic_options.MIN_INSYNC_REPLICAS],
    )


def _compression_level(config: Config, compression: Codec | None) -> int | None:
    option = None if compression is None else _LEVELS.get(compression)
    level = None if option is None else config[option]
    return None if compression is Codec.GZIP and level == GZIP_LEVEL_DEFAULT else level


def space_limits_of(config: Config) -> SpaceLimits:
    """Return how much space the log directories keep free."""
    return SpaceLimits(
        reserve_bytes=config[log_options.DISK_RESERVE_BYTES],
        floor_bytes=config[log_options.DISK_MIN_FREE_BYTES],
    )


def cleaner_settings_of(config: Config) -> CleanerSettings:
    """Return the log cleaner's settings."""
    return CleanerSettings(
        is_enabled=config[log_options.LOG_CLEANER_ENABLE],
        dedupe_buffer_bytes=config[log_options.LOG_CLEANER_DEDUPE_BUFFER_SIZE],
        load_factor=config[log_options.LOG_CLEANER_IO_BUFFER_LOAD_FACTOR],
        io_buffer_bytes=config[log_options.LOG_CLEANER_IO_BUFFER_SIZE],
        io_bytes_per_second_max=config[log_options.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND],
        backoff_ms=config[log_options.LOG_CLEANER_BACKOFF_MS],
    )


def _segment_ms(config: Config) -> int:
    """Return ``segment.ms``; for a compacted topic at most ``max.compaction.lag.ms``.

    The active segment is never compacted, so it must roll before the lag is over.
    """
    if "compact" not in config[topic_options.CLEANUP_POLICY]:
        return config[topic_options.SEGMENT_MS]
    return min(config[topic_options.SEGMENT_MS], config[topic_options.MAX_COMPACTION_LAG_MS])


def group_topic_of(config: Config) -> NewTopic:
    """Return how to create ``__consumer_offsets``, with Kafka's options."""
    return NewTopic(
        GROUP_METADATA_TOPIC,
        config[coordinator_options.OFFSETS_TOPIC_NUM_PARTITIONS],
        config[coordinator_options.OFFSETS_TOPIC_REPLICATION_FACTOR],
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(config[coordinator_options.OFFSETS_TOPIC_SEGMENT_BYTES])),
        ),
    )


def transaction_topic_of(config: Config) -> NewTopic:
    """Return how to create ``__transaction_state``, with Kafka's options."""
    min_isr = config[coordinator_options.TRANSACTION_STATE_LOG_MIN_ISR]
    return NewTopic(
        TRANSACTION_STATE_TOPIC,
        config[coordinator_options.TRANSACTION_STATE_LOG_NUM_PARTITIONS],
        config[coordinator_options.TRANSACTION_STATE_LOG_REPLICATION_FACTOR],
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("min.insync.replicas", str(min_isr)),
            ("segment.bytes", str(config[coordinator_options.TRANSACTION_STATE_LOG_SEGMENT_BYTES])),
            ("unclean.leader.election.enable", "false"),
        ),
    )


def internal_topics_of(config: Config) -> list[NewTopic]:
    """Return how to create the topics of the coordinators."""
    return [group_topic_of(config), transaction_topic_of(config)]


def internal_configs_of(config: Config, topic: str) -> Mapping[str, str] | None:
    """Return the configs with which an internal topic is made; None: ``topic`` is no such."""
    made = {each.name: each for each in internal_topics_of(config)}
    return given_configs(made[topic]) if topic in made else None


OPEN_FILES_RESERVE = 64
"""Files that connections leave to logs, the metadata store and the listener."""

CONNECTIONS_SHARE_MIN = 4
"""Connections may take one file in this many, whatever the partitions need."""


def connections_max_of(config: Config, open_files_max: int | None) -> int:
    """Return ``max.connections``, or less if ``open_files_max`` (None: no limit) demands it."""
    wanted = config[options.MAX_CONNECTIONS]
    if open_files_max is None:
        return wanted
    return min(wanted, max(open_files_max - OPEN_FILES_RESERVE, 1))


def connections_room_of(open_files_max: int | None, partition_count: int) -> int | None:
    """Return how many connections may be open so that each partition has a file left.

    None: any number. A partition that is written to keeps its active segment open. Clients get at
    least a quarter of all files, however many partitions there are.
    """
    if open_files_max is None:
        return None
    return max(
        open_files_max - OPEN_FILES_RESERVE - partition_count,
        open_files_max // CONNECTIONS_SHARE_MIN,
        1,
    )


def limits_of(config: Config, open_files_max: int | None) -> Limits:
    """Return the limits of connections. ``open_files_max``: see ``connections_max_of``."""
    idle_ms = config[options.CONNECTIONS_MAX_IDLE_MS]
    return Limits(
        request_bytes_max=config[options.SOCKET_REQUEST_MAX_BYTES],
        queued_bytes_max=config[options.QUEUED_MAX_REQUEST_BYTES],
        in_flight_max=config[options.CONNECTION_MAX_IN_FLIGHT_REQUESTS],
        in_flight_bytes_max=config[options.CONNECTION_MAX_IN_FLIGHT_BYTES],
        write_buffer_bytes=config[options.WRITE_BUFFER_HIGH_BYTES],
        write_stall_seconds=config[options.WRITE_STALL_TIMEOUT_MS] / 1000,
        idle_seconds=inf if idle_ms < 0 else idle_ms / 1000,
        frame_seconds=config[options.REQUEST_READ_TIMEOUT_MS] / 1000,
        bytes_per_second_min=config[options.REQUEST_READ_MIN_BYTES_PER_SECOND],
        connections_max=connections_max_of(config, open_files_max),
        connections_per_ip_max=config[options.MAX_CONNECTIONS_PER_IP],
        connections_of_ip=config[options.MAX_CONNECTIONS_PER_IP_OVERRIDES].counts,
        backlog=config[options.SOCKET_LISTEN_BACKLOG_SIZE],
    )
