"""The options of a node that concern its logs: rolls, flushes, retention, compaction, space.

Owns their names, types, bounds, defaults and texts. Many are the defaults of topic options.
Source: Kafka's broker configuration reference; compared with the DescribeConfigs answer of Apache
Kafka 4.3. Where a default differs, ``deviates`` says why.
"""

from ottla.config.bounds import CLEANUP_POLICIES, NOT_NEGATIVE, POSITIVE, TIMESTAMP_TYPES
from ottla.config.option import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    STRING,
    Option,
    Scope,
    at_least,
    between,
)
from ottla.ids import INT64_MAX

CLUSTER_WIDE = Scope.CLUSTER_WIDE

# fmt: off - one option is one paragraph
LOG_SEGMENT_BYTES = Option(
    "log.segment.bytes",
    INT,
    1 << 30,
    "The size at which the active segment rolls.",
    CLUSTER_WIDE,
    at_least(1 << 20),
    "bytes",
)
LOG_ROLL_HOURS = Option(
    "log.roll.hours",
    INT,
    168,
    "The age at which the active segment rolls.",
    validator=POSITIVE,
    unit="hours",
)
LOG_ROLL_MS: Option[int | None] = Option(
    "log.roll.ms",
    LONG,
    None,
    "The age at which the active segment rolls; if not set, log.roll.hours.",
    CLUSTER_WIDE,
    POSITIVE,
    "ms",
    falls_back_on=LOG_ROLL_HOURS,
)
LOG_ROLL_JITTER_HOURS = Option(
    "log.roll.jitter.hours",
    INT,
    0,
    "The longest random time by which segments roll earlier, so that not all roll at once.",
    validator=NOT_NEGATIVE,
    unit="hours",
)
LOG_ROLL_JITTER_MS: Option[int | None] = Option(
    "log.roll.jitter.ms",
    LONG,
    None,
    "The longest random time by which segments roll earlier; if not set, log.roll.jitter.hours.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "ms",
    falls_back_on=LOG_ROLL_JITTER_HOURS,
)
LOG_INDEX_INTERVAL_BYTES = Option(
    "log.index.interval.bytes",
    INT,
    4096,
    "About how many bytes of log there are between two index entries.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "bytes",
)
LOG_INDEX_SIZE_MAX_BYTES = Option(
    "log.index.size.max.bytes",
    INT,
    10 << 20,
    "The size at which an index is full and its segment rolls.",
    CLUSTER_WIDE,
    at_least(4),
    "bytes",
)
LOG_PREALLOCATE = Option(
    "log.preallocate",
    BOOLEAN,
    False,
    "Whether a segment's file is allocated in full when it is created. Not for copy-on-write"
    " disks.",
    CLUSTER_WIDE,
)
LOG_FLUSH_INTERVAL_MESSAGES = Option(
    "log.flush.interval.messages",
    LONG,
    1,
    "After how many records a log is fsynced. 1: an acks=all answer means that the batch is on"
    " disk.",
    CLUSTER_WIDE,
    POSITIVE,
    deviates="Kafka's is 9223372036854775807: it leaves durability to replication.",
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS = Option(
    "log.flush.scheduler.interval.ms",
    LONG,
    INT64_MAX,
    "How often logs are checked for log.flush.interval.ms. By default as often as the shortest"
    " flush.ms of all topics requires.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
LOG_FLUSH_INTERVAL_MS: Option[int | None] = Option(
    "log.flush.interval.ms",
    LONG,
    None,
    "The longest time until records are fsynced; if not set, log.flush.scheduler.interval.ms.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "ms",
    falls_back_on=LOG_FLUSH_SCHEDULER_INTERVAL_MS,
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = Option(
    "log.flush.offset.checkpoint.interval.ms",
    INT,
    60_000,
    "How often the recovery point checkpoint is written.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = Option(
    "log.flush.start.offset.checkpoint.interval.ms",
    INT,
    60_000,
    "How often the log start offset checkpoint is written.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = Option(
    "replica.high.watermark.checkpoint.interval.ms",
    LONG,
    5_000,
    "How often the high watermark checkpoint is written.",
    validator=POSITIVE,
    unit="ms",
)
LOG_RETENTION_HOURS = Option(
    "log.retention.hours",
    INT,
    168,
    "log.retention.ms in hours.",
    validator=at_least(-1),
    unit="hours",
)
LOG_RETENTION_MINUTES: Option[int | None] = Option(
    "log.retention.minutes",
    INT,
    None,
    "log.retention.ms in minutes; if not set, log.retention.hours.",
    validator=at_least(-1),
    unit="minutes",
    falls_back_on=LOG_RETENTION_HOURS,
)
LOG_RETENTION_MS: Option[int | None] = Option(
    "log.retention.ms",
    LONG,
    None,
    "How old a segment's newest record may get before the segment is deleted; -1: no limit. If not"
    " set, log.retention.minutes.",
    CLUSTER_WIDE,
    at_least(-1),
    "ms",
    falls_back_on=LOG_RETENTION_MINUTES,
)
LOG_RETENTION_BYTES = Option(
    "log.retention.bytes",
    LONG,
    -1,
    "How large a partition's log may grow before its oldest segments are deleted; -1: no limit.",
    CLUSTER_WIDE,
    unit="bytes",
)
LOG_RETENTION_CHECK_INTERVAL_MS = Option(
    "log.retention.check.interval.ms",
    LONG,
    300_000,
    "How often logs are checked for segments to delete.",
    validator=POSITIVE,
    unit="ms",
)
LOG_SEGMENT_DELETE_DELAY_MS = Option(
    "log.segment.delete.delay.ms",
    LONG,
    60_000,
    "How long the files of a deleted segment stay on disk, under another name.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "ms",
)
LOG_CLEANUP_POLICY = Option(
    "log.cleanup.policy",
    LIST,
    ("delete",),
    "What happens to old records: `delete`, `compact`, both or nothing.",
    CLUSTER_WIDE,
    CLEANUP_POLICIES,
)
LOG_CLEANER_DELETE_RETENTION_MS = Option(
    "log.cleaner.delete.retention.ms",
    LONG,
    86_400_000,
    "How long compaction keeps a delete marker (a record with a null value).",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "ms",
)
LOG_CLEANER_MIN_CLEANABLE_RATIO = Option(
    "log.cleaner.min.cleanable.ratio",
    DOUBLE,
    0.5,
    "The share of the log that must be uncompacted before it is compacted.",
    CLUSTER_WIDE,
    between(0, 1),
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS = Option(
    "log.cleaner.min.compaction.lag.ms",
    LONG,
    0,
    "The shortest time that a record stays uncompacted.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "ms",
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS = Option(
    "log.cleaner.max.compaction.lag.ms",
    LONG,
    INT64_MAX,
    "The longest time that a record may stay uncompacted.",
    CLUSTER_WIDE,
    POSITIVE,
    "ms",
)
LOG_CLEANER_ENABLE = Option(
    "log.cleaner.enable",
    BOOLEAN,
    True,
    "Whether topics with `cleanup.policy=compact` are compacted.",
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE = Option(
    "log.cleaner.dedupe.buffer.size",
    LONG,
    134_217_728,
    "The most memory that the keys of one compaction may take, 24 bytes per key; a log with more"
    " keys is compacted in several passes.",
    CLUSTER_WIDE,
    unit="bytes",
)
LOG_CLEANER_IO_BUFFER_SIZE = Option(
    "log.cleaner.io.buffer.size",
    INT,
    524_288,
    "The memory in which compaction reads and writes, half of it each; more for a larger batch.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "bytes",
)
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = Option(
    "log.cleaner.io.buffer.load.factor",
    DOUBLE,
    0.9,
    "The share of the memory for keys that may be filled; a fuller one is slower.",
    CLUSTER_WIDE,
)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = Option(
    "log.cleaner.io.max.bytes.per.second",
    DOUBLE,
    1.7976931348623157e308,
    "The most bytes that compaction reads and writes per second, on average.",
    CLUSTER_WIDE,
)
LOG_CLEANER_BACKOFF_MS = Option(
    "log.cleaner.backoff.ms",
    LONG,
    15_000,
    "How often logs are checked for something to compact while there is nothing.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "ms",
)
LOG_MESSAGE_TIMESTAMP_TYPE = Option(
    "log.message.timestamp.type",
    STRING,
    "CreateTime",
    "Whose clock stamps records: the producer's (`CreateTime`) or the broker's (`LogAppendTime`).",
    CLUSTER_WIDE,
    TIMESTAMP_TYPES,
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = Option(
    "log.message.timestamp.before.max.ms",
    LONG,
    INT64_MAX,
    "How far a CreateTime timestamp may be behind the broker's clock.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "ms",
)
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = Option(
    "log.message.timestamp.after.max.ms",
    LONG,
    3_600_000,
    "How far a CreateTime timestamp may be ahead of the broker's clock.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "ms",
)
DISK_RESERVE_BYTES = Option(
    "ottla.disk.reserve.bytes",
    LONG,
    64 << 20,
    "The size of a file in each log directory that is deleted when the disk is full, so that there"
    " is room to delete old records; at most 1/64 of the volume. 0: no such file.",
    validator=NOT_NEGATIVE,
    unit="bytes",
)
DISK_MIN_FREE_BYTES = Option(
    "ottla.disk.min.free.bytes",
    LONG,
    64 << 20,
    "With less free space than this, or than 5 % of a small volume, batches are refused with"
    " KAFKA_STORAGE_ERROR; 0: only when the disk is full.",
    validator=NOT_NEGATIVE,
    unit="bytes",
)
OPTIONS = (
    DISK_RESERVE_BYTES,
    DISK_MIN_FREE_BYTES,
    LOG_SEGMENT_BYTES,
    LOG_ROLL_MS,
    LOG_ROLL_HOURS,
    LOG_ROLL_JITTER_MS,
    LOG_ROLL_JITTER_HOURS,
    LOG_INDEX_INTERVAL_BYTES,
    LOG_INDEX_SIZE_MAX_BYTES,
    LOG_PREALLOCATE,
    LOG_FLUSH_INTERVAL_MESSAGES,
    LOG_FLUSH_INTERVAL_MS,
    LOG_FLUSH_SCHEDULER_INTERVAL_MS,
    LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS,
    REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS,
    LOG_RETENTION_MS,
    LOG_RETENTION_MINUTES,
    LOG_RETENTION_HOURS,
    LOG_RETENTION_BYTES,
    LOG_RETENTION_CHECK_INTERVAL_MS,
    LOG_SEGMENT_DELETE_DELAY_MS,
    LOG_CLEANUP_POLICY,
    LOG_CLEANER_ENABLE,
    LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    LOG_CLEANER_IO_BUFFER_SIZE,
    LOG_CLEANER_IO_BUFFER_LOAD_FACTOR,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
    LOG_CLEANER_BACKOFF_MS,
    LOG_CLEANER_DELETE_RETENTION_MS,
    LOG_CLEANER_MIN_CLEANABLE_RATIO,
    LOG_CLEANER_MIN_COMPACTION_LAG_MS,
    LOG_CLEANER_MAX_COMPACTION_LAG_MS,
    LOG_MESSAGE_TIMESTAMP_TYPE,
    LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS,
)
# fmt: on
