"""The options of a node that concern its network, its topics and its requests.

Owns their names, types, bounds, defaults and texts, and the table of all broker options. Those of
logs are in ``ottla.config.log``, those of groups and transactions in ``ottla.config.coordinator``;
Kafka's options that mean nothing here are in ``ottla.config.unused``. Options that only Ottla has
begin with ``ottla.``.
Source: Kafka's broker configuration reference; names, types and defaults compared with the
DescribeConfigs answer of Apache Kafka 4.3. Where a default differs, ``deviates`` says why.
"""

from ottla.config import authorization, coordinator, hosts, log, quota, replication, security, tls
from ottla.config.addresses import CountsByAddress, read_counts
from ottla.config.bounds import (
    COMPRESSION_TYPES,
    GZIP_LEVELS,
    LZ4_LEVELS,
    NOT_NEGATIVE,
    POSITIVE,
    ZSTD_LEVELS,
)
from ottla.config.listeners import Endpoint, read_advertised, read_endpoints
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
COUNTS_BY_ADDRESS = ValueType("STRING", 2, read_counts)
ENDPOINTS = ValueType("LIST", 7, read_endpoints)
TOLD_ENDPOINTS = ValueType("LIST", 7, read_advertised)
DIRECTORIES: Validator[tuple[str, ...]] = Validator(
    "one directory or more, none twice",
    lambda value: (
        None if value and len(set(value)) == len(value) else Refusal("name each directory once")
    ),
)
SOME_ENDPOINT: Validator[tuple[Endpoint, ...]] = Validator(
    "one listener or more",
    lambda value: None if value else Refusal("a node needs a listener to be reached"),
)

# fmt: off - one option is one paragraph
NODE_ID = Option(
    "node.id",
    INT,
    1,
    "The number of this node in its cluster.",
    validator=NOT_NEGATIVE,
    deviates="Kafka has no default: it must be set there.",
)
BROKER_RACK: Option[str | None] = Option(
    "broker.rack",
    STRING,
    None,
    "The rack that this node stands in; clients see it in Metadata.",
)
LISTENERS = Option(
    "listeners",
    ENDPOINTS,
    (Endpoint("PLAINTEXT", "127.0.0.1", 9092),),
    "The addresses to listen on, NAME://host:port each. An empty host is every address of the"
    " machine, port 0 a free port. listener.security.protocol.map has the protocol of each.",
    validator=SOME_ENDPOINT,
    deviates="Kafka listens on every address: without authentication that is an open door.",
)
ADVERTISED_LISTENERS: Option[tuple[Endpoint, ...]] = Option(
    "advertised.listeners",
    TOLD_ENDPOINTS,
    (),
    "The addresses that clients are told, by listener. If a listener has none, each of its clients"
    " is told the address it has connected to, which is right unless ports are mapped.",
    deviates="Kafka tells the value of listeners, which is wrong for an empty host and port 0.",
)
LOG_DIRS = Option(
    "log.dirs",
    LIST,
    ("ottla-data",),
    "The log directories, best each on a disk of its own: a new partition goes to the directory"
    " with the fewest partitions, and a disk that fails takes only its own partitions offline. The"
    " first one also holds the cluster's metadata.",
    validator=DIRECTORIES,
    deviates="Kafka's is /tmp/kafka-logs, which a restart of the machine empties.",
)
LOG_DIRS_GIVEN_UP = Option(
    "ottla.log.dirs.given.up",
    LIST,
    (),
    "Log directories that are lost for good, by the directory.id in their meta.properties, which"
    " the broker logs when a directory is missing. The partitions of a missing directory are"
    " offline until it is named here; then they are created anew, empty. By its path where the"
    " metadata of several nodes is lost, too.",
)
NUM_PARTITIONS = Option(
    "num.partitions",
    INT,
    1,
    "The partitions of a topic that is created without a number of partitions.",
    validator=POSITIVE,
)
DEFAULT_REPLICATION_FACTOR = Option(
    "default.replication.factor",
    INT,
    1,
    "The replicas of a topic that is created without a number of replicas.",
    validator=POSITIVE,
)
AUTO_CREATE_TOPICS_ENABLE = Option(
    "auto.create.topics.enable",
    BOOLEAN,
    True,
    "Whether a Metadata request for a topic that does not exist creates it.",
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
    "The most partitions in one answer of DescribeTopicPartitions.",
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
    "How many connections may wait to be accepted.",
    validator=POSITIVE,
)
CONNECTIONS_MAX_IDLE_MS = Option(
    "connections.max.idle.ms",
    LONG,
    600_000,
    "A connection that has been silent for this long is closed; -1: never.",
    unit="ms",
)
MAX_CONNECTIONS = Option(
    "max.connections",
    INT,
    10_000,
    "How many connections may be open; one more is closed right after it was accepted. If ulimit -n"
    " allows fewer open files than that, 64 and one per partition, the limit is lower, but at least"
    " a quarter of the open files.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    deviates="Kafka's is 2147483647: no bound.",
)
MAX_CONNECTIONS_PER_IP = Option(
    "max.connections.per.ip",
    INT,
    1_000,
    "How many connections may be open from one IP address.",
    CLUSTER_WIDE,
    NOT_NEGATIVE,
    deviates="Kafka's is 2147483647: no bound.",
)
MAX_CONNECTIONS_PER_IP_OVERRIDES = Option(
    "max.connections.per.ip.overrides",
    COUNTS_BY_ADDRESS,
    CountsByAddress(),
    "How many connections single IP addresses may have, in the place of max.connections.per.ip:"
    " ADDRESS:COUNT,...; 0 keeps an address out. Names are not looked up.",
    CLUSTER_WIDE,
)
QUEUED_MAX_REQUEST_BYTES = Option(
    "queued.max.request.bytes",
    LONG,
    268_435_456,
    "The memory of all requests that are being received or served; above it no request is read.",
    validator=POSITIVE,
    unit="bytes",
    deviates="Kafka's is -1: no bound.",
)
QUEUED_MAX_ANSWER_BYTES = Option(
    "ottla.queued.max.answer.bytes",
    LONG,
    268_435_456,
    "The memory of all answers that clients have not read yet, without records that are still in"
    " files. Above it no large answer is begun, clients that have not read their last answer are"
    " not served, and the slowest clients that read less than"
    " ottla.request.read.min.bytes.per.second are disconnected.",
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
    "The slowest rate at which a large request may arrive, and at which answers must be read when"
    " ottla.queued.max.answer.bytes is reached.",
    validator=POSITIVE,
    unit="bytes",
)
CONNECTION_MAX_IN_FLIGHT_REQUESTS = Option(
    "ottla.connection.max.in.flight.requests",
    INT,
    64,
    "How many requests of one connection may wait for their answers at the same time.",
    validator=POSITIVE,
)
CONNECTION_MAX_IN_FLIGHT_BYTES = Option(
    "ottla.connection.max.in.flight.bytes",
    INT,
    67_108_864,
    "The size of the requests of one connection that wait for their answers.",
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
    "A client that reads no byte of a waiting answer for this long is disconnected.",
    validator=POSITIVE,
    unit="ms",
)
STOP_TIMEOUT_MS = Option(
    "ottla.stop.timeout.ms",
    INT,
    5_000,
    "How long a stopping node goes on serving the requests it has, before it closes connections.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
_NETWORK = (
    SOCKET_REQUEST_MAX_BYTES,
    SOCKET_LISTEN_BACKLOG_SIZE,
    CONNECTIONS_MAX_IDLE_MS,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
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
    "The largest record batch that is accepted; of a compressed batch, its compressed size.",
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
    "With fewer in-sync replicas an acks=all Produce is refused.",
    CLUSTER_WIDE,
    POSITIVE,
)
UNCLEAN_LEADER_ELECTION_ENABLE = Option(
    "unclean.leader.election.enable",
    BOOLEAN,
    False,
    "Whether a replica outside the ISR may become leader when none inside can, which loses"
    " records.",
    CLUSTER_WIDE,
)
COMPRESSION_TYPE = Option(
    "compression.type",
    STRING,
    "producer",
    "How batches are stored: as the producer sent them (`producer`), or converted to this codec.",
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
    "The longest time that a Fetch waits for records, whatever it asks for.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
FETCH_MAX_WAITING = Option(
    "ottla.fetch.max.waiting",
    INT,
    50_000,
    "How many Fetches, of ten partitions on average, may wait for records at the same time; further"
    " ones are answered at once.",
    validator=NOT_NEGATIVE,
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = Option(
    "max.incremental.fetch.session.cache.slots",
    INT,
    1000,
    "How many fetch sessions are kept; clients without one get complete answers.",
    validator=NOT_NEGATIVE,
)
FETCH_SESSIONS_MAX_PARTITIONS = Option(
    "ottla.fetch.sessions.max.partitions",
    INT,
    200_000,
    "How many partitions all fetch sessions together may hold.",
    validator=NOT_NEGATIVE,
)
ANSWER_MAX_ELEMENTS = Option(
    "ottla.answer.max.elements",
    INT,
    200_000,
    "How many elements (offsets, members, producers, ...) one answer of OffsetFetch,"
    " DescribeGroups, ConsumerGroupDescribe, DescribeProducers, DescribeTransactions or"
    " DescribeConfigs may hold; an element counts once more per 256 bytes of text. The first thing"
    " that a request names is answered whatever its size; things after it that do not fit are"
    " refused with INVALID_REQUEST. CreateTopics leaves out the configs of topics that do not fit."
    " ListGroups and ListTransactions refuse the whole request: filter by state.",
    validator=POSITIVE,
)
MAX_PARTITIONS = Option(
    "ottla.max.partitions",
    INT,
    20_000,
    "How many partitions a node may have; creating more is refused with POLICY_VIOLATION.",
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
        ("Who may come in", security.SECURITY),
        ("TLS", tls.TLS),
        ("How much clients may ask for", quota.OPTIONS),
        ("Who may do what", authorization.AUTHORIZATION),
        ("Requests", _REQUESTS),
        ("The log", log.OPTIONS),
        ("Several hosts", hosts.OPTIONS),
        ("Replicas", replication.OPTIONS),
        ("Groups, offsets and transactions", coordinator.OPTIONS),
    ],
    security.of_one_listener,
)
