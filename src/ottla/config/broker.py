"""The options of a node that concern its network, its topics and its requests.

Owns Kafka's broker options that mean something here, and Ottla's own (``ottla.*``): what bounds a
peer. ``ottla.config.log`` has those of its logs,
``ottla.config.coordinator`` those of groups and transactions. Kafka's remaining options
are told apart in ``ottla.config.unused``.
Source: Kafka's broker configuration reference; names, types and defaults compared with the
DescribeConfigs answer of Apache Kafka 4.3. Where a default differs, ``deviates`` says why.
"""

from ottla.config import coordinator, log
from ottla.config.bounds import (
    COMPRESSION_TYPES,
    GZIP_LEVELS,
    LZ4_LEVELS,
    NOT_NEGATIVE,
    POSITIVE,
    ZSTD_LEVELS,
)
from ottla.config.listeners import Endpoint, read_endpoints
from ottla.config.option import (
    BOOLEAN,
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
# fmt: on

BROKER_TABLE = Table(
    "broker",
    [
        ("The node and its topics", _TOPICS),
        ("Connections", _NETWORK),
        ("Requests", _REQUESTS),
        ("The log", log.OPTIONS),
        ("Groups, offsets and transactions", coordinator.OPTIONS),
    ],
)
