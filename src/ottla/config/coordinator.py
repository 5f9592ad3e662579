"""The options of a node that concern groups, committed offsets, producers and transactions.

Owns their names, types, bounds, defaults and texts. Source: Kafka's broker configuration reference;
compared with the DescribeConfigs answer of Apache Kafka 4.3.
"""

from ottla.config.bounds import MIGRATION_POLICIES, NOT_NEGATIVE, POSITIVE
from ottla.config.option import INT, LONG, SHORT, STRING, Option, Scope, at_least, between
from ottla.ids import INT32_MAX

_ALONE = "Kafka's is 3, which a node that is alone in its cluster cannot satisfy."

# fmt: off - one option is one paragraph
GROUP_INITIAL_REBALANCE_DELAY_MS = Option(
    "group.initial.rebalance.delay.ms",
    INT,
    3_000,
    "How long an empty group waits for further members before its first rebalance.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
GROUP_MIN_SESSION_TIMEOUT_MS = Option(
    "group.min.session.timeout.ms",
    INT,
    6_000,
    "The shortest session timeout that a member may ask for.",
    unit="ms",
)
GROUP_MAX_SESSION_TIMEOUT_MS = Option(
    "group.max.session.timeout.ms",
    INT,
    1_800_000,
    "The longest session timeout that a member may ask for.",
    unit="ms",
)
GROUP_MAX_SIZE = Option(
    "group.max.size",
    INT,
    INT32_MAX,
    "How many members one group may have.",
    validator=POSITIVE,
)
GROUP_METADATA_MAX_BYTES = Option(
    "ottla.group.metadata.max.bytes",
    INT,
    8_388_608,
    "How many bytes the protocols of all members of one classic group may have, names and metadata"
    " (a consumer's metadata is its subscription). The JoinGroup that would go beyond is refused"
    " with GROUP_MAX_SIZE_REACHED. A group whose assignment is to be written has to fit in"
    " max.message.bytes of __consumer_offsets as well.",
    validator=POSITIVE,
    unit="bytes",
)
GROUP_PENDING_IDS_MAX = Option(
    "ottla.group.pending.ids.max",
    INT,
    1_000,
    "How many member ids of one group may have been given out (JoinGroup v4 and later) without"
    " having joined yet. For one more the oldest is forgotten; its member has to ask for another.",
    validator=POSITIVE,
)
GROUP_MEMBER_NAMES_MAX = Option(
    "ottla.group.member.names.max",
    INT,
    10_000,
    "How many protocols a member may name in a JoinGroup (more: INCONSISTENT_GROUP_PROTOCOL), and"
    " how many topics it may subscribe to by name in a ConsumerGroupHeartbeat (more:"
    " INVALID_REQUEST).",
    validator=POSITIVE,
)
GROUPS_MAX = Option(
    "ottla.groups.max",
    INT,
    100_000,
    "How many groups this node may coordinate, with those that have committed offsets only. A"
    " member of a further group is refused with GROUP_MAX_SIZE_REACHED, its OffsetCommit with"
    " POLICY_VIOLATION, until groups are deleted or expire (offsets.retention.minutes).",
    validator=POSITIVE,
)
GROUP_CONFIGS_MAX = Option(
    "ottla.group.configs.max",
    INT,
    10_000,
    "How many groups may have configs of their own; configs of a further group are refused with"
    " POLICY_VIOLATION. Configs stay until a request deletes them.",
    validator=POSITIVE,
)
GROUP_CONSUMER_SESSION_TIMEOUT_MS = Option(
    "group.consumer.session.timeout.ms",
    INT,
    45_000,
    "How long a member of a consumer-protocol group may be silent before it is removed.",
    validator=POSITIVE,
    unit="ms",
)
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = Option(
    "group.consumer.heartbeat.interval.ms",
    INT,
    5_000,
    "How often members of consumer-protocol groups are told to send a heartbeat.",
    validator=POSITIVE,
    unit="ms",
)
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS = Option(
    "group.consumer.assignment.interval.ms",
    INT,
    1_000,
    "The shortest time between two assignments of a consumer-protocol group; all changes in between"
    " wait for the next assignment.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS = Option(
    "group.consumer.min.session.timeout.ms",
    INT,
    45_000,
    "The least consumer.session.timeout.ms that a group may have of its own.",
    validator=POSITIVE,
    unit="ms",
)
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS = Option(
    "group.consumer.max.session.timeout.ms",
    INT,
    60_000,
    "The largest consumer.session.timeout.ms that a group may have of its own.",
    validator=POSITIVE,
    unit="ms",
)
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = Option(
    "group.consumer.min.heartbeat.interval.ms",
    INT,
    5_000,
    "The least consumer.heartbeat.interval.ms that a group may have of its own.",
    validator=POSITIVE,
    unit="ms",
)
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = Option(
    "group.consumer.max.heartbeat.interval.ms",
    INT,
    15_000,
    "The largest consumer.heartbeat.interval.ms that a group may have of its own.",
    validator=POSITIVE,
    unit="ms",
)
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = Option(
    "group.consumer.min.assignment.interval.ms",
    INT,
    0,
    "The least consumer.assignment.interval.ms that a group may have of its own.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = Option(
    "group.consumer.max.assignment.interval.ms",
    INT,
    15_000,
    "The largest consumer.assignment.interval.ms that a group may have of its own.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
GROUP_CONSUMER_MAX_SIZE = Option(
    "group.consumer.max.size",
    INT,
    INT32_MAX,
    "How many members one consumer-protocol group may have.",
    validator=POSITIVE,
)
GROUP_CONSUMER_MIGRATION_POLICY = Option(
    "group.consumer.migration.policy",
    STRING,
    "bidirectional",
    "Whether groups change their protocol while members go on reading: a classic group when a"
    " member of the consumer protocol joins (upgrade), a consumer group when its last such member"
    " leaves and classic members remain (downgrade), both (bidirectional), or neither (disabled).",
    validator=MIGRATION_POLICIES,
)
OFFSET_METADATA_MAX_BYTES = Option(
    "offset.metadata.max.bytes",
    INT,
    4096,
    "The longest text (metadata) that may be stored with a committed offset.",
    unit="bytes",
)
OFFSETS_TOPIC_NUM_PARTITIONS = Option(
    "offsets.topic.num.partitions",
    INT,
    50,
    "The partitions of __consumer_offsets.",
    validator=POSITIVE,
)
OFFSETS_TOPIC_REPLICATION_FACTOR = Option(
    "offsets.topic.replication.factor",
    SHORT,
    1,
    "The replicas of __consumer_offsets.",
    validator=POSITIVE,
    deviates=_ALONE,
)
SEGMENT_BYTES_VALID = at_least(1 << 20)
"""The bounds of a topic's ``segment.bytes``: with less the topic could not be created."""
OFFSETS_COMMIT_TIMEOUT_MS = Option(
    "offsets.commit.timeout.ms",
    INT,
    5_000,
    "How long an OffsetCommit may take to become durable before its client is told to retry.",
    validator=POSITIVE,
    unit="ms",
)
OFFSETS_TOPIC_COMPRESSION_CODEC = Option(
    "offsets.topic.compression.codec",
    INT,
    0,
    "The compression of batches in __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    validator=between(0, 4),
)
OFFSETS_TOPIC_SEGMENT_BYTES = Option(
    "offsets.topic.segment.bytes",
    INT,
    104_857_600,
    "The segment size of __consumer_offsets.",
    validator=SEGMENT_BYTES_VALID,
    unit="bytes",
)
OFFSETS_RETENTION_MINUTES = Option(
    "offsets.retention.minutes",
    INT,
    10_080,
    "How long an empty group's offsets are kept.",
    validator=POSITIVE,
    unit="minutes",
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS = Option(
    "offsets.retention.check.interval.ms",
    LONG,
    600_000,
    "How often expired offsets are looked for.",
    validator=POSITIVE,
    unit="ms",
)
TRANSACTION_MAX_TIMEOUT_MS = Option(
    "transaction.max.timeout.ms",
    INT,
    900_000,
    "The longest transaction timeout that a producer may ask for.",
    validator=POSITIVE,
    unit="ms",
)
TRANSACTION_STATE_LOG_NUM_PARTITIONS = Option(
    "transaction.state.log.num.partitions",
    INT,
    50,
    "The partitions of __transaction_state.",
    validator=POSITIVE,
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = Option(
    "transaction.state.log.replication.factor",
    SHORT,
    1,
    "The replicas of __transaction_state.",
    validator=POSITIVE,
    deviates=_ALONE,
)
TRANSACTION_STATE_LOG_MIN_ISR = Option(
    "transaction.state.log.min.isr",
    INT,
    1,
    "The min.insync.replicas of __transaction_state.",
    validator=POSITIVE,
    deviates=_ALONE.replace("3", "2"),
)
TRANSACTION_STATE_LOG_SEGMENT_BYTES = Option(
    "transaction.state.log.segment.bytes",
    INT,
    104_857_600,
    "The segment size of __transaction_state.",
    validator=SEGMENT_BYTES_VALID,
    unit="bytes",
)
TRANSACTIONAL_ID_EXPIRATION_MS = Option(
    "transactional.id.expiration.ms",
    INT,
    604_800_000,
    "How long an idle transactional id is remembered.",
    validator=POSITIVE,
    unit="ms",
)
TRANSACTION_REMOVE_EXPIRED_CLEANUP_INTERVAL_MS = Option(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    INT,
    3_600_000,
    "How often expired transactional ids are looked for.",
    validator=POSITIVE,
    unit="ms",
)
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS = Option(
    "add.partitions.to.txn.retry.backoff.max.ms",
    INT,
    100,
    "How long a Produce or TxnOffsetCommit that begins a transaction waits for the end of the"
    " producer's last one; then its client is told to retry.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
TRANSACTIONAL_IDS_MAX = Option(
    "ottla.transactional.ids.max",
    INT,
    20_000,
    "How many transactional ids each partition of __transaction_state may hold; InitProducerId"
    " for a further one is refused with POLICY_VIOLATION until some expire.",
    validator=POSITIVE,
)
TRANSACTIONS_WAITING_MAX = Option(
    "ottla.transaction.waiting.max",
    INT,
    1_000,
    "How many requests may wait for add.partitions.to.txn.retry.backoff.max.ms at the same time,"
    " for each partition of __transaction_state; clients of further ones are told to retry at"
    " once.",
    validator=NOT_NEGATIVE,
)
PRODUCER_ID_EXPIRATION_MS = Option(
    "producer.id.expiration.ms",
    INT,
    86_400_000,
    "How long a partition remembers an idle producer's sequence numbers.",
    Scope.CLUSTER_WIDE,
    POSITIVE,
    "ms",
)
# fmt: on

OPTIONS: tuple[Option[object], ...] = (
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MIN_SESSION_TIMEOUT_MS,
    GROUP_MAX_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
    GROUP_METADATA_MAX_BYTES,
    GROUP_PENDING_IDS_MAX,
    GROUP_MEMBER_NAMES_MAX,
    GROUPS_MAX,
    GROUP_CONFIGS_MAX,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_SIZE,
    GROUP_CONSUMER_MIGRATION_POLICY,
    OFFSET_METADATA_MAX_BYTES,
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_COMMIT_TIMEOUT_MS,
    OFFSETS_TOPIC_COMPRESSION_CODEC,
    OFFSETS_TOPIC_SEGMENT_BYTES,
    OFFSETS_RETENTION_MINUTES,
    OFFSETS_RETENTION_CHECK_INTERVAL_MS,
    TRANSACTION_MAX_TIMEOUT_MS,
    TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_MIN_ISR,
    TRANSACTION_STATE_LOG_SEGMENT_BYTES,
    TRANSACTIONAL_ID_EXPIRATION_MS,
    TRANSACTION_REMOVE_EXPIRED_CLEANUP_INTERVAL_MS,
    ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS,
    TRANSACTIONAL_IDS_MAX,
    TRANSACTIONS_WAITING_MAX,
    PRODUCER_ID_EXPIRATION_MS,
)
