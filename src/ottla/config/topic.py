"""The options of a topic: Kafka's names, types, bounds and defaults.

Owns the topic table. Each option names the broker options that give its default, so one line in a
broker's configuration changes every topic that does not set the option itself.
Source: Kafka's topic configuration reference; names, types and defaults compared with the
DescribeConfigs answer of Apache Kafka 4.3.
"""

from collections.abc import Mapping

from ottla.config import broker, log
from ottla.config.bounds import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    GZIP_LEVELS,
    LZ4_LEVELS,
    TIMESTAMP_TYPES,
    ZSTD_LEVELS,
)
from ottla.config.config import Config, Layer, readable
from ottla.config.option import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    STRING,
    Follows,
    InvalidConfig,
    Option,
    Refusal,
    Scope,
    Source,
    Table,
    Validator,
    at_least,
    between,
)
from ottla.ids import INT64_MAX

TOPIC = Scope.TOPIC


def _replica_list(name: str) -> Validator[tuple[str, ...]]:
    shape = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."

    def check(value: tuple[str, ...]) -> Refusal | None:
        if value == ("*",) or all(_is_replica(part) for part in value):
            return None
        why = f"{name} must be the literal '*' or a list of replicas in the following format: "
        return Refusal(why + shape, f"[{', '.join(value)}]")

    return Validator(shape, check)


def _is_replica(text: str) -> bool:
    partition, colon, node = text.partition(":")
    return bool(colon) and partition.isdigit() and node.isdigit()


# fmt: off - one option is one paragraph
CLEANUP_POLICY = Option(
    "cleanup.policy",
    LIST,
    ("delete",),
    "What happens to old records: `delete` deletes whole segments by age and size, `compact` keeps"
    " the newest record of each key, both together do both, empty keeps all records.",
    TOPIC,
    CLEANUP_POLICIES,
    follows=(Follows(log.LOG_CLEANUP_POLICY),),
)
COMPRESSION_TYPE = Option(
    "compression.type",
    STRING,
    "producer",
    "How batches are stored: as the producer sent them (`producer`), or converted to this codec.",
    TOPIC,
    COMPRESSION_TYPES,
    follows=(Follows(broker.COMPRESSION_TYPE),),
)
COMPRESSION_GZIP_LEVEL = Option(
    "compression.gzip.level",
    INT,
    -1,
    "The level when compression.type is gzip.",
    TOPIC,
    GZIP_LEVELS,
    follows=(Follows(broker.COMPRESSION_GZIP_LEVEL),),
)
COMPRESSION_LZ4_LEVEL = Option(
    "compression.lz4.level",
    INT,
    9,
    "The level when compression.type is lz4.",
    TOPIC,
    LZ4_LEVELS,
    follows=(Follows(broker.COMPRESSION_LZ4_LEVEL),),
)
COMPRESSION_ZSTD_LEVEL = Option(
    "compression.zstd.level",
    INT,
    3,
    "The level when compression.type is zstd.",
    TOPIC,
    ZSTD_LEVELS,
    follows=(Follows(broker.COMPRESSION_ZSTD_LEVEL),),
)
DELETE_RETENTION_MS = Option(
    "delete.retention.ms",
    LONG,
    86_400_000,
    "How long compaction keeps a delete marker (a record with a null value), so that readers of the"
    " whole log see it.",
    TOPIC,
    at_least(0),
    "ms",
    follows=(Follows(log.LOG_CLEANER_DELETE_RETENTION_MS),),
)
FILE_DELETE_DELAY_MS = Option(
    "file.delete.delay.ms",
    LONG,
    60_000,
    "How long the files of a deleted segment stay on disk, under another name.",
    TOPIC,
    at_least(0),
    "ms",
    follows=(Follows(log.LOG_SEGMENT_DELETE_DELAY_MS),),
)
FLUSH_MESSAGES = Option(
    "flush.messages",
    LONG,
    1,
    "After how many records a log is fsynced. 1: an acks=all answer means that the batch is on"
    " disk.",
    TOPIC,
    at_least(1),
    follows=(Follows(log.LOG_FLUSH_INTERVAL_MESSAGES),),
    deviates="Kafka's is 9223372036854775807: it leaves durability to replication.",
)
FLUSH_MS = Option(
    "flush.ms",
    LONG,
    INT64_MAX,
    "The longest time until records are fsynced.",
    TOPIC,
    at_least(0),
    "ms",
    follows=(
        Follows(log.LOG_FLUSH_INTERVAL_MS),
        Follows(log.LOG_FLUSH_SCHEDULER_INTERVAL_MS),
    ),
)
FOLLOWER_REPLICATION_THROTTLED_REPLICAS = Option(
    "follower.replication.throttled.replicas",
    LIST,
    (),
    "Replicas whose fetching is throttled on the follower's side.",
    TOPIC,
    _replica_list("follower.replication.throttled.replicas"),
)
INDEX_INTERVAL_BYTES = Option(
    "index.interval.bytes",
    INT,
    4096,
    "About how many bytes of log there are between two index entries.",
    TOPIC,
    at_least(0),
    "bytes",
    follows=(Follows(log.LOG_INDEX_INTERVAL_BYTES),),
)
LEADER_REPLICATION_THROTTLED_REPLICAS = Option(
    "leader.replication.throttled.replicas",
    LIST,
    (),
    "Replicas whose fetching is throttled on the leader's side.",
    TOPIC,
    _replica_list("leader.replication.throttled.replicas"),
)
LOCAL_RETENTION_BYTES = Option(
    "local.retention.bytes",
    LONG,
    -2,
    "With tiered storage: how much stays on the local disk; -2 means retention.bytes.",
    TOPIC,
    at_least(-2),
    "bytes",
)
LOCAL_RETENTION_MS = Option(
    "local.retention.ms",
    LONG,
    -2,
    "With tiered storage: how long records stay on the local disk; -2 means retention.ms.",
    TOPIC,
    at_least(-2),
    "ms",
)
MAX_COMPACTION_LAG_MS = Option(
    "max.compaction.lag.ms",
    LONG,
    INT64_MAX,
    "The longest time that a record may stay uncompacted.",
    TOPIC,
    at_least(1),
    "ms",
    follows=(Follows(log.LOG_CLEANER_MAX_COMPACTION_LAG_MS),),
)
MAX_MESSAGE_BYTES = Option(
    "max.message.bytes",
    INT,
    1_048_588,
    "The largest record batch that is accepted; of a compressed batch, its compressed size.",
    TOPIC,
    at_least(0),
    "bytes",
    follows=(Follows(broker.MESSAGE_MAX_BYTES),),
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS = Option(
    "message.timestamp.after.max.ms",
    LONG,
    3_600_000,
    "How far a CreateTime timestamp may be ahead of the broker's clock.",
    TOPIC,
    at_least(0),
    "ms",
    follows=(Follows(log.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS),),
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = Option(
    "message.timestamp.before.max.ms",
    LONG,
    INT64_MAX,
    "How far a CreateTime timestamp may be behind the broker's clock.",
    TOPIC,
    at_least(0),
    "ms",
    follows=(Follows(log.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS),),
)
MESSAGE_TIMESTAMP_TYPE = Option(
    "message.timestamp.type",
    STRING,
    "CreateTime",
    "Whose clock stamps records: the producer's (`CreateTime`) or the broker's (`LogAppendTime`).",
    TOPIC,
    TIMESTAMP_TYPES,
    follows=(Follows(log.LOG_MESSAGE_TIMESTAMP_TYPE),),
)
MIN_CLEANABLE_DIRTY_RATIO = Option(
    "min.cleanable.dirty.ratio",
    DOUBLE,
    0.5,
    "The share of the log that must be uncompacted before it is compacted.",
    TOPIC,
    between(0, 1),
    follows=(Follows(log.LOG_CLEANER_MIN_CLEANABLE_RATIO),),
)
MIN_COMPACTION_LAG_MS = Option(
    "min.compaction.lag.ms",
    LONG,
    0,
    "The shortest time that a record stays uncompacted.",
    TOPIC,
    at_least(0),
    "ms",
    follows=(Follows(log.LOG_CLEANER_MIN_COMPACTION_LAG_MS),),
)
MIN_INSYNC_REPLICAS = Option(
    "min.insync.replicas",
    INT,
    1,
    "With fewer in-sync replicas an acks=all Produce is refused.",
    TOPIC,
    at_least(1),
    follows=(Follows(broker.MIN_INSYNC_REPLICAS),),
)
PREALLOCATE = Option(
    "preallocate",
    BOOLEAN,
    False,
    "Whether a segment's file is allocated in full when it is created. Not for copy-on-write"
    " disks.",
    TOPIC,
    follows=(Follows(log.LOG_PREALLOCATE),),
)
REMOTE_LOG_COPY_DISABLE = Option(
    "remote.log.copy.disable",
    BOOLEAN,
    False,
    "With tiered storage: stop copying segments to the remote storage.",
    TOPIC,
)
REMOTE_LOG_DELETE_ON_DISABLE = Option(
    "remote.log.delete.on.disable",
    BOOLEAN,
    False,
    "With tiered storage: delete the remote copies when it is switched off.",
    TOPIC,
)
REMOTE_STORAGE_ENABLE = Option(
    "remote.storage.enable",
    BOOLEAN,
    False,
    "Whether the topic uses tiered storage, which is not served yet.",
    TOPIC,
    Validator(
        "false",
        lambda value: (
            Refusal(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured"
                " with remote log storage."
            )
            if value
            else None
        ),
    ),
)
RETENTION_BYTES = Option(
    "retention.bytes",
    LONG,
    -1,
    "How large a partition's log may grow before its oldest segments are deleted; -1: no limit.",
    TOPIC,
    unit="bytes",
    follows=(Follows(log.LOG_RETENTION_BYTES),),
)
RETENTION_MS = Option(
    "retention.ms",
    LONG,
    604_800_000,
    "How old a segment's newest record may get before the segment is deleted; -1: no limit.",
    TOPIC,
    at_least(-1),
    "ms",
    follows=(
        Follows(log.LOG_RETENTION_MS),
        Follows(log.LOG_RETENTION_MINUTES, 60_000),
        Follows(log.LOG_RETENTION_HOURS, 3_600_000),
    ),
)
SEGMENT_BYTES = Option(
    "segment.bytes",
    INT,
    1 << 30,
    "The size at which the active segment rolls.",
    TOPIC,
    at_least(1 << 20),
    "bytes",
    follows=(Follows(log.LOG_SEGMENT_BYTES),),
)
INTERNAL_SEGMENT_BYTES: Option[int | None] = Option(
    "internal.segment.bytes",
    INT,
    None,
    "segment.bytes without its lower bound, for tests that need many small segments.",
    TOPIC,
    at_least(1),
    "bytes",
    internal=True,
)
SEGMENT_INDEX_BYTES = Option(
    "segment.index.bytes",
    INT,
    10 << 20,
    "The size at which an index is full and its segment rolls.",
    TOPIC,
    at_least(4),
    "bytes",
    follows=(Follows(log.LOG_INDEX_SIZE_MAX_BYTES),),
)
SEGMENT_JITTER_MS = Option(
    "segment.jitter.ms",
    LONG,
    0,
    "The longest random time by which segments roll earlier, so that not all roll at once.",
    TOPIC,
    at_least(0),
    "ms",
    follows=(
        Follows(log.LOG_ROLL_JITTER_MS),
        Follows(log.LOG_ROLL_JITTER_HOURS, 3_600_000),
    ),
)
SEGMENT_MS = Option(
    "segment.ms",
    LONG,
    604_800_000,
    "The age at which the active segment rolls.",
    TOPIC,
    at_least(1),
    "ms",
    follows=(Follows(log.LOG_ROLL_MS), Follows(log.LOG_ROLL_HOURS, 3_600_000)),
)
UNCLEAN_LEADER_ELECTION_ENABLE = Option(
    "unclean.leader.election.enable",
    BOOLEAN,
    False,
    "Whether a replica outside the ISR may become leader when none inside can, which loses"
    " records.",
    TOPIC,
    follows=(Follows(broker.UNCLEAN_LEADER_ELECTION_ENABLE),),
)
# fmt: on

TOPIC_TABLE = Table(
    "topic",
    [("Topics", [value for value in list(globals().values()) if isinstance(value, Option)])],
)


def topic_config(given: Mapping[str, str], broker_config: Config) -> Config:
    """Return a topic's configuration: ``given`` texts above the broker's configuration.

    Raises InvalidConfig for an unknown key, a bad value, or values that contradict each other.
    """
    config = Config(TOPIC_TABLE, Layer(Source.TOPIC, given), beneath=broker_config)
    shortest, longest = config[MIN_COMPACTION_LAG_MS], config[MAX_COMPACTION_LAG_MS]
    if shortest > longest:
        why = (
            f"conflict topic config setting {MIN_COMPACTION_LAG_MS.key} ({shortest})"
            f" > {MAX_COMPACTION_LAG_MS.key} ({longest})"
        )
        raise InvalidConfig(MIN_COMPACTION_LAG_MS.key, None, why)
    return config


def stored_topic_config(given: Mapping[str, str], broker_config: Config) -> Config:
    """Return the configuration of an existing topic from stored texts.

    Never raises: texts that this version cannot read are left out, and contradictions (an option
    of the broker may have changed) are not checked.
    """
    return Config(
        TOPIC_TABLE, Layer(Source.TOPIC, readable(TOPIC_TABLE, given)), beneath=broker_config
    )


def segment_bytes(config: Config) -> int:
    """Return the size at which a topic's active segment rolls."""
    internal = config[INTERNAL_SEGMENT_BYTES]
    return config[SEGMENT_BYTES] if internal is None else internal
