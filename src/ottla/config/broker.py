"""The options of a node that concern its network, its log and its requests.

Owns Kafka's broker options that mean something here, and Ottla's own (``ottla.*``): what bounds a
peer. ``ottla.config.coordinator`` adds those of groups and transactions. Kafka's remaining options
are told apart in ``ottla.config.unused``.
Source: Kafka's broker configuration reference; names, types and defaults compared with the
DescribeConfigs answer of Apache Kafka 4.3. Where a default differs, ``deviates`` says why.
"""

from ottla.config import coordinator
from ottla.config.bounds import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    GZIP_LEVELS,
    INT64_MAX,
    LZ4_LEVELS,
    NOT_NEGATIVE,
    POSITIVE,
    TIMESTAMP_TYPES,
    ZSTD_LEVELS,
)
from ottla.config.listeners import Endpoint, read_endpoints
from ottla.config.option import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    STRING,
    Option,
    Refusal,
    Scope,
    Table,
    Validator,
    ValueType,
    at_least,
    between,
)

CLUSTER_WIDE = Scope.CLUSTER_WIDE
ENDPOINTS = ValueType("LIST", 7, read_endpoints)
DIRECTORIES: Validator[tuple[str, ...]] = Validator(
    "one directory or more, none twice",
    lambda value: (
        None if value and len(set(value)) == len(value) else Refusal("name each directory once")
    ),
)
ONE_ENDPOINT: Validator[tuple[Endpoint, ...]] = Validator(
    "one listener",
    lambda value: None if value else Refusal("a node needs a listener to be reached"),
)

# fmt: off - one option is one paragraph
NODE_ID = Option(
    "node.id",
    INT,
    1,
    "The number of this node in its cluster.",
    validator=NOT_NEGATIVE,
    deviates="Kafka has none and asks for one.",
)
BROKER_RACK: Option[str | None] = Option(
    "broker.rack",
    STRING,
    None,
    "Where this node stands; told to clients in Metadata.",
)
LISTENERS = Option(
    "listeners",
    ENDPOINTS,
    (Endpoint("PLAINTEXT", "127.0.0.1", 9092),),
    "The address to listen on, NAME://host:port. An empty host is every address of the machine,"
    " port 0 a free one.",
    validator=ONE_ENDPOINT,
    deviates="Kafka listens on every address: without authentication that is an open door.",
)
ADVERTISED_LISTENERS: Option[tuple[Endpoint, ...]] = Option(
    "advertised.listeners",
    ENDPOINTS,
    (),
    "The address told to clients. Without it a client hears the address it reached, which is"
    " right unless ports are mapped.",
    deviates="Kafka tells the value of listeners, which is wrong on every address or port 0.",
)
LOG_DIRS = Option(
    "log.dirs",
    LIST,
    ("ottla-data",),
    "The data directories, best each on a disk of its own: a new partition goes to the one with"
    " the fewest, and a disk that fails takes only what lies on it away. The first one also holds"
    " the cluster's metadata.",
    validator=DIRECTORIES,
    deviates="Kafka's is /tmp/kafka-logs, which a restart of the machine empties.",
)
LOG_DIRS_GIVEN_UP = Option(
    "ottla.log.dirs.given.up",
    LIST,
    (),
    "Log directories that are lost for good, by the directory.id of their meta.properties, which"
    " the broker's log names when one is missing. Partitions that lay in them are made anew, empty."
    " Until a missing directory is named here they are offline.",
)
NUM_PARTITIONS = Option(
    "num.partitions",
    INT,
    1,
    "The partitions of a topic whose creator names no number.",
    validator=POSITIVE,
)
DEFAULT_REPLICATION_FACTOR = Option(
    "default.replication.factor",
    INT,
    1,
    "The replicas of a topic whose creator names no number.",
    validator=POSITIVE,
)
AUTO_CREATE_TOPICS_ENABLE = Option(
    "auto.create.topics.enable",
    BOOLEAN,
    True,
    "Whether asking for a topic creates it.",
)
DELETE_TOPIC_ENABLE = Option(
    "delete.topic.enable",
    BOOLEAN,
    True,
    "Whether topics can be deleted.",
)
MAX_REQUEST_PARTITION_SIZE_LIMIT = Option(
    "max.request.partition.size.limit",
    INT,
    2000,
    "The partitions in one answer of DescribeTopicPartitions.",
    validator=POSITIVE,
)
_TOPICS = (
    NODE_ID,
    BROKER_RACK,
    LISTENERS,
    ADVERTISED_LISTENERS,
    LOG_DIRS,
    LOG_DIRS_GIVEN_UP,
    NUM_PARTITIONS,
    DEFAULT_REPLICATION_FACTOR,
    AUTO_CREATE_TOPICS_ENABLE,
    DELETE_TOPIC_ENABLE,
    MAX_REQUEST_PARTITION_SIZE_LIMIT,
)

SOCKET_REQUEST_MAX_BYTES = Option(
    "socket.request.max.bytes",
    INT,
    104_857_600,
    "The largest request; a larger one closes its connection.",
    validator=POSITIVE,
    unit="bytes",
)
SOCKET_LISTEN_BACKLOG_SIZE = Option(
    "socket.listen.backlog.size",
    INT,
    50,
    "Connections that may wait to be accepted.",
    validator=POSITIVE,
)
CONNECTIONS_MAX_IDLE_MS = Option(
    "connections.max.idle.ms",
    LONG,
    600_000,
    "A connection silent for this long is closed.",
    unit="ms",
)
MAX_CONNECTIONS = Option(
    "max.connections",
    INT,
    10_000,
    "Connections at the same time, at most 64 fewer, and one per partition, than the open files"
    " that ulimit -n allows;"
    " the next one is closed right after it was accepted.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    deviates="Kafka's is 2147483647: no bound.",
)
MAX_CONNECTIONS_PER_IP = Option(
    "max.connections.per.ip",
    INT,
    1_000,
    "Connections from one address at the same time.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    deviates="Kafka's is 2147483647: no bound.",
)
QUEUED_MAX_REQUEST_BYTES = Option(
    "queued.max.request.bytes",
    LONG,
    268_435_456,
    "The bytes of all requests being received or worked on; above it nothing more is read.",
    validator=POSITIVE,
    unit="bytes",
    deviates="Kafka's is -1: no bound.",
)
QUEUED_MAX_ANSWER_BYTES = Option(
    "ottla.queued.max.answer.bytes",
    LONG,
    268_435_456,
    "The bytes of all answers that clients have not taken yet, records in files left out. Above it"
    " large answers wait to be made, clients that have not taken their last answer are served no"
    " more, and of those that take less than ottla.request.read.min.bytes.per.second the slowest"
    " are cut off.",
    validator=POSITIVE,
    unit="bytes",
)
REQUEST_READ_TIMEOUT_MS = Option(
    "ottla.request.read.timeout.ms",
    INT,
    30_000,
    "A request must be complete this long after its first byte, plus the time its size takes at"
    " ottla.request.read.min.bytes.per.second; a slower one closes its connection.",
    validator=POSITIVE,
    unit="ms",
)
REQUEST_READ_MIN_BYTES_PER_SECOND = Option(
    "ottla.request.read.min.bytes.per.second",
    INT,
    65_536,
    "The slowest rate at which a large request may arrive.",
    validator=POSITIVE,
    unit="bytes",
)
CONNECTION_MAX_IN_FLIGHT_REQUESTS = Option(
    "ottla.connection.max.in.flight.requests",
    INT,
    64,
    "Requests of one connection that may wait for their answers at the same time.",
    validator=POSITIVE,
)
CONNECTION_MAX_IN_FLIGHT_BYTES = Option(
    "ottla.connection.max.in.flight.bytes",
    INT,
    67_108_864,
    "The bytes of those requests.",
    validator=POSITIVE,
    unit="bytes",
)
WRITE_BUFFER_HIGH_BYTES = Option(
    "ottla.write.buffer.high.bytes",
    INT,
    1_048_576,
    "Unsent answer bytes above which a connection takes no further request.",
    validator=POSITIVE,
    unit="bytes",
)
WRITE_STALL_TIMEOUT_MS = Option(
    "ottla.write.stall.timeout.ms",
    INT,
    60_000,
    "A peer that takes no byte of a waiting answer for this long is cut off.",
    validator=POSITIVE,
    unit="ms",
)
STOP_TIMEOUT_MS = Option(
    "ottla.stop.timeout.ms",
    INT,
    5_000,
    "How long a stopping node works on the requests it has, before it closes their connections.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
_NETWORK = (
    SOCKET_REQUEST_MAX_BYTES,
    SOCKET_LISTEN_BACKLOG_SIZE,
    CONNECTIONS_MAX_IDLE_MS,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    QUEUED_MAX_REQUEST_BYTES,
    QUEUED_MAX_ANSWER_BYTES,
    REQUEST_READ_TIMEOUT_MS,
    REQUEST_READ_MIN_BYTES_PER_SECOND,
    CONNECTION_MAX_IN_FLIGHT_REQUESTS,
    CONNECTION_MAX_IN_FLIGHT_BYTES,
    WRITE_BUFFER_HIGH_BYTES,
    WRITE_STALL_TIMEOUT_MS,
    STOP_TIMEOUT_MS,
)

MESSAGE_MAX_BYTES = Option(
    "message.max.bytes",
    INT,
    1_048_588,
    "The largest record batch accepted, compressed if it is.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "bytes",
)
FETCH_MAX_BYTES = Option(
    "fetch.max.bytes",
    INT,
    57_671_680,
    "The most that one Fetch answer carries.",
    validator=at_least(1024),
    unit="bytes",
)
MIN_INSYNC_REPLICAS = Option(
    "min.insync.replicas",
    INT,
    1,
    "The in-sync replicas that an acks=all write needs.",
    CLUSTER_WIDE,
    POSITIVE,
)
UNCLEAN_LEADER_ELECTION_ENABLE = Option(
    "unclean.leader.election.enable",
    BOOLEAN,
    False,
    "Whether a replica outside the ISR may lead when none inside can, which loses records.",
    CLUSTER_WIDE,
)
COMPRESSION_TYPE = Option(
    "compression.type",
    STRING,
    "producer",
    "How batches are stored: as the producer sent them (`producer`), or brought to this codec.",
    CLUSTER_WIDE,
    COMPRESSION_TYPES,
)
COMPRESSION_GZIP_LEVEL = Option(
    "compression.gzip.level",
    INT,
    -1,
    "The level when compression.type is gzip.",
    CLUSTER_WIDE,
    GZIP_LEVELS,
)
COMPRESSION_LZ4_LEVEL = Option(
    "compression.lz4.level",
    INT,
    9,
    "The level when compression.type is lz4.",
    CLUSTER_WIDE,
    LZ4_LEVELS,
)
COMPRESSION_ZSTD_LEVEL = Option(
    "compression.zstd.level",
    INT,
    3,
    "The level when compression.type is zstd.",
    CLUSTER_WIDE,
    ZSTD_LEVELS,
)
FETCH_MAX_WAIT_MS = Option(
    "ottla.fetch.max.wait.ms",
    INT,
    60_000,
    "A Fetch waits no longer than this, whatever it asks.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
FETCH_MAX_WAITING = Option(
    "ottla.fetch.max.waiting",
    INT,
    50_000,
    "Fetches that may wait for records at the same time, of ten partitions on average; more are"
    " answered at once.",
    validator=NOT_NEGATIVE,
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = Option(
    "max.incremental.fetch.session.cache.slots",
    INT,
    1000,
    "The most fetch sessions that are kept; clients without one get complete answers.",
    validator=NOT_NEGATIVE,
)
FETCH_SESSIONS_MAX_PARTITIONS = Option(
    "ottla.fetch.sessions.max.partitions",
    INT,
    200_000,
    "The most partitions that all fetch sessions together remember.",
    validator=NOT_NEGATIVE,
)
ANSWER_MAX_ELEMENTS = Option(
    "ottla.answer.max.elements",
    INT,
    200_000,
    "What one answer of OffsetFetch, DescribeGroups, ConsumerGroupDescribe, DescribeProducers,"
    " DescribeTransactions or DescribeConfigs may hold: offsets, members, producers, ... (each"
    " counts once more per 256 bytes of text). What is named first is answered whatever its size,"
    " what does not fit behind it is refused with INVALID_REQUEST. CreateTopics leaves out the"
    " configs of topics behind that; ListGroups and ListTransactions refuse the whole: ask for some"
    " states at a time.",
    validator=POSITIVE,
)
MAX_PARTITIONS = Option(
    "ottla.max.partitions",
    INT,
    20_000,
    "The partitions of a node; creating more is refused with POLICY_VIOLATION.",
    validator=POSITIVE,
)
_REQUESTS = (
    MESSAGE_MAX_BYTES,
    FETCH_MAX_BYTES,
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
    COMPRESSION_TYPE,
    COMPRESSION_GZIP_LEVEL,
    COMPRESSION_LZ4_LEVEL,
    COMPRESSION_ZSTD_LEVEL,
    FETCH_MAX_WAIT_MS,
    FETCH_MAX_WAITING,
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    FETCH_SESSIONS_MAX_PARTITIONS,
    ANSWER_MAX_ELEMENTS,
    MAX_PARTITIONS,
)

LOG_SEGMENT_BYTES = Option(
    "log.segment.bytes",
    INT,
    1 << 30,
    "The size at which the active segment rolls.",
    CLUSTER_WIDE,
    at_least(1 << 20),
    "bytes",
)
LOG_ROLL_MS: Option[int | None] = Option(
    "log.roll.ms",
    LONG,
    None,
    "The age at which the active segment rolls; else log.roll.hours.",
    CLUSTER_WIDE,
    POSITIVE,
    "ms",
)
LOG_ROLL_HOURS = Option(
    "log.roll.hours",
    INT,
    168,
    "The age at which the active segment rolls.",
    validator=POSITIVE,
    unit="hours",
)
LOG_ROLL_JITTER_MS: Option[int | None] = Option(
    "log.roll.jitter.ms",
    LONG,
    None,
    "A random time, up to this, taken off the age of rolling; else log.roll.jitter.hours.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "ms",
)
LOG_ROLL_JITTER_HOURS = Option(
    "log.roll.jitter.hours",
    INT,
    0,
    "A random time, up to this, taken off the age of rolling.",
    validator=NOT_NEGATIVE,
    unit="hours",
)
LOG_INDEX_INTERVAL_BYTES = Option(
    "log.index.interval.bytes",
    INT,
    4096,
    "About how many bytes of log lie between two index entries.",
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
    "Whether a segment's file is allocated in full when it is made; not for copy-on-write disks.",
    CLUSTER_WIDE,
)
LOG_FLUSH_INTERVAL_MESSAGES = Option(
    "log.flush.interval.messages",
    LONG,
    1,
    "After how many records the log is made durable. 1: an acks=all answer means it is on disk.",
    CLUSTER_WIDE,
    POSITIVE,
    deviates="Kafka's is 9223372036854775807: it leaves durability to replication.",
)
LOG_FLUSH_INTERVAL_MS: Option[int | None] = Option(
    "log.flush.interval.ms",
    LONG,
    None,
    "After how long, at the latest, the log is made durable; else log.flush.scheduler.interval.ms.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "ms",
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS = Option(
    "log.flush.scheduler.interval.ms",
    LONG,
    INT64_MAX,
    "How often logs are looked at for log.flush.interval.ms. By default as often as the shortest"
    " of them asks for.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = Option(
    "log.flush.offset.checkpoint.interval.ms",
    INT,
    60_000,
    "How often the recovery points are written down.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = Option(
    "log.flush.start.offset.checkpoint.interval.ms",
    INT,
    60_000,
    "How often the log start offsets are written down.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = Option(
    "replica.high.watermark.checkpoint.interval.ms",
    LONG,
    5_000,
    "How often the high watermarks are written down.",
    validator=POSITIVE,
    unit="ms",
)
LOG_RETENTION_MS: Option[int | None] = Option(
    "log.retention.ms",
    LONG,
    None,
    "How old a segment's newest record may get before it is dropped, -1: no limit; else"
    " log.retention.minutes.",
    CLUSTER_WIDE,
    at_least(-1),
    "ms",
)
LOG_RETENTION_MINUTES: Option[int | None] = Option(
    "log.retention.minutes",
    INT,
    None,
    "The same in minutes; else log.retention.hours.",
    validator=at_least(-1),
    unit="minutes",
)
LOG_RETENTION_HOURS = Option(
    "log.retention.hours",
    INT,
    168,
    "The same in hours.",
    validator=at_least(-1),
    unit="hours",
)
LOG_RETENTION_BYTES = Option(
    "log.retention.bytes",
    LONG,
    -1,
    "How large a partition's log may grow before its oldest segments are dropped; -1: no limit.",
    CLUSTER_WIDE,
    unit="bytes",
)
LOG_RETENTION_CHECK_INTERVAL_MS = Option(
    "log.retention.check.interval.ms",
    LONG,
    300_000,
    "How often segments are looked at for dropping.",
    validator=POSITIVE,
    unit="ms",
)
LOG_SEGMENT_DELETE_DELAY_MS = Option(
    "log.segment.delete.delay.ms",
    LONG,
    60_000,
    "How long a dropped segment's files stay on disk under another name.",
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
    "How long compaction keeps a delete marker.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "ms",
)
LOG_CLEANER_MIN_CLEANABLE_RATIO = Option(
    "log.cleaner.min.cleanable.ratio",
    DOUBLE,
    0.5,
    "The uncompacted part of the log above which compaction begins.",
    CLUSTER_WIDE,
    between(0, 1),
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS = Option(
    "log.cleaner.min.compaction.lag.ms",
    LONG,
    0,
    "How long a record stays uncompacted, at least.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "ms",
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS = Option(
    "log.cleaner.max.compaction.lag.ms",
    LONG,
    INT64_MAX,
    "How long a record may stay uncompacted, at most.",
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
    "The most memory that the keys of one compaction may take, 24 bytes each; a log with more keys"
    " is compacted in several turns.",
    CLUSTER_WIDE,
    unit="bytes",
)
LOG_CLEANER_IO_BUFFER_SIZE = Option(
    "log.cleaner.io.buffer.size",
    INT,
    524_288,
    "What compaction reads and writes at a time, half of it each; more for a larger batch.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    "bytes",
)
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = Option(
    "log.cleaner.io.buffer.load.factor",
    DOUBLE,
    0.9,
    "How full the memory for keys may become; fuller is slower.",
    CLUSTER_WIDE,
)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = Option(
    "log.cleaner.io.max.bytes.per.second",
    DOUBLE,
    1.7976931348623157e308,
    "What compaction reads and writes per second, at most, on average.",
    CLUSTER_WIDE,
)
LOG_CLEANER_BACKOFF_MS = Option(
    "log.cleaner.backoff.ms",
    LONG,
    15_000,
    "How often logs are looked at for something to compact, while there is nothing.",
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
    "How far a CreateTime timestamp may lie behind the broker's clock.",
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
    "The size of a file in each data directory that is given up when the disk is full, so that old"
    " records can still be deleted; at most 1/64 of the volume, 0: none.",
    validator=NOT_NEGATIVE,
    unit="bytes",
)
DISK_MIN_FREE_BYTES = Option(
    "ottla.disk.min.free.bytes",
    LONG,
    64 << 20,
    "With less space left than this, or than 5 % of a small volume, batches are refused with"
    " KAFKA_STORAGE_ERROR until there is more; 0: only when the disk is full.",
    validator=NOT_NEGATIVE,
    unit="bytes",
)
_LOG = (
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

BROKER_TABLE = Table(
    "broker",
    [
        ("The node and its topics", _TOPICS),
        ("Connections", _NETWORK),
        ("Requests", _REQUESTS),
        ("The log", _LOG),
        ("Groups, offsets and transactions", coordinator.OPTIONS),
    ],
)
