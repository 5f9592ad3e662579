"""Names of files and directories inside a log directory.

Owns every name the log gives or understands. Knows nothing of contents. A name that comes from a
client is checked here once more before it becomes a path. Grammar, as Apache Kafka 4.3 has it:

    log directory       = { partition directory } { deleted directory } checkpoints meta.properties
                          and Ottla's own ".ottla-reserve", which holds nothing but room,
                          ".ottla-lineage", which shows that its metadata is of the same history,
                          and ".ottla-generation", by which an old copy of the directory is told
    partition directory = topic "-" partition
    future directory    = topic "-" partition "." 32 hex digits "-future"
    deleted directory   = topic "-" partition "." 32 hex digits "-delete"     topic may be cut short
    stray directory     = topic "-" partition "." 32 hex digits "-stray"      topic may be cut short
    segment file        = 20 digits of base offset "." ( log | index | timeindex | txnindex )
                          and Ottla's own "txnsum", the checksum of a txnindex
    snapshot            = 20 digits of offset ".snapshot"
    leftovers           = any of them with ".deleted", ".cleaned", ".swap" or ".tmp" behind
"""

import re

from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
TRANSACTION_SUM_SUFFIX = ".txnsum"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"
DELETED_DIRECTORY_SUFFIX = "-delete"
FUTURE_DIRECTORY_SUFFIX = "-future"
STRAY_DIRECTORY_SUFFIX = "-stray"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
RESERVE = ".ottla-reserve"
LINEAGE = ".ottla-lineage"
GENERATION = ".ottla-generation"

TOPIC_LENGTH_MAX = 249
_FILE_NAME_LENGTH_MAX = 255
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})", re.ASCII)
_DELETED_DIRECTORY = re.compile(r"[a-zA-Z0-9._-]+-[0-9]+\.[0-9a-f]{32}-delete", re.ASCII)
_FUTURE_DIRECTORY = re.compile(r"(.+)\.([0-9a-f]{32})-future", re.ASCII)
_DELETED_UNIQUE = re.compile(r"\.([0-9a-f]{32})-delete$", re.ASCII)
_OFFSET_DIGITS = 20
_SEGMENT_SUFFIXES = frozenset(
    {
        *(LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX),
        *(TRANSACTION_INDEX_SUFFIX, TRANSACTION_SUM_SUFFIX),
    }
)


def partition_directory(topic_partition: TopicPartition) -> str:
    """Return the directory name of a partition.

    Raises ``KafkaError`` INVALID_TOPIC_EXCEPTION for a name that must not become a path.
    """
    topic, partition = topic_partition
    if topic in {".", ".."} or not _TOPIC.fullmatch(topic) or partition < 0:
        why = f"not a usable topic-partition: {topic[:TOPIC_LENGTH_MAX]!r}-{partition}"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Return the partition whose directory has this ``name``, or None for another directory."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or match[1] in {".", ".."} or is_deleted_directory(name):
        return None
    return TopicPartition(match[1], int(match[2]))


def deleted_directory(topic_partition: TopicPartition, unique: bytes) -> str:
    """Return the name under which a deleted partition waits for its removal.

    ``unique`` is 16 bytes, so that a topic of the same name can be deleted again meanwhile. A long
    topic is cut so that the name stays one the file system takes.
    """
    return _renamed(topic_partition, unique, DELETED_DIRECTORY_SUFFIX)


def stray_directory(topic_partition: TopicPartition, unique: bytes) -> str:
    """Return the name under which a directory lies that is set aside, and that nobody opens.

    As ``deleted_directory``; only people remove it. Source: Kafka, KAFKA-14616.
    """
    return _renamed(topic_partition, unique, STRAY_DIRECTORY_SUFFIX)


def _renamed(topic_partition: TopicPartition, unique: bytes, suffix: str) -> str:
    tail = f"-{topic_partition.partition}.{unique.hex()}{suffix}"
    return topic_partition.topic[: _FILE_NAME_LENGTH_MAX - len(tail)] + tail


def is_deleted_directory(name: str) -> bool:
    """Tell whether ``name`` is that of a deleted partition."""
    return _DELETED_DIRECTORY.fullmatch(name) is not None


def future_directory(topic_partition: TopicPartition, unique: bytes) -> str:
    """Return the name of a copy of the partition that is to take its place.

    ``unique`` is 16 bytes; the directory it replaces is deleted under the same. Raises KafkaError
    KAFKA_STORAGE_ERROR for a topic whose name leaves no room for that.
    """
    name = f"{partition_directory(topic_partition)}.{unique.hex()}{FUTURE_DIRECTORY_SUFFIX}"
    if len(name) > _FILE_NAME_LENGTH_MAX:
        why = f"the name of {topic_partition} is too long for a copy of its directory"
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)
    return name


def parse_future_directory(name: str) -> TopicPartition | None:
    """Return the partition that the directory ``name`` is a copy of; None for any other."""
    match = _FUTURE_DIRECTORY.fullmatch(name)
    return None if match is None else parse_partition_directory(match[1])


def unique_part(name: str) -> str | None:
    """Return what ties the name of a copy to that of the directory it has replaced.

    Of the replaced one only: the copy's own is in its name alike. None for other names.
    """
    match = _DELETED_UNIQUE.search(name) or _FUTURE_DIRECTORY.fullmatch(name)
    return None if match is None else match[match.lastindex or 1]


def segment_file(base_offset: int, suffix: str) -> str:
    """Return the name of a segment's file: 20 digits and a suffix."""
    return f"{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """Return (base offset, suffix) of a segment's live file, or None for any other file."""
    suffix = name[_OFFSET_DIGITS:]
    if suffix not in _SEGMENT_SUFFIXES:
        return None
    base_offset = _offset_of(name)
    return None if base_offset is None else (base_offset, suffix)


def parse_snapshot_file(name: str) -> int | None:
    """Return the offset that a snapshot of producers was taken at, or None for any other file."""
    return _offset_of(name) if name[_OFFSET_DIGITS:] == SNAPSHOT_SUFFIX else None


def _offset_of(name: str) -> int | None:
    """Return what the first 20 characters say. Without a pattern: a start asks this very often."""
    digits = name[:_OFFSET_DIGITS]
    if len(digits) != _OFFSET_DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    offset = int(digits)
    return offset if offset < 2**63 else None
