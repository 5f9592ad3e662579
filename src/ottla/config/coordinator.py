"""The options of a node that concern groups, committed offsets, producers and transactions.

Owns their names, types, bounds and defaults only. Source: Kafka's broker configuration reference;
compared with the DescribeConfigs answer of Apache Kafka 4.3.
"""

from ottla.config.bounds import INT32_MAX, MIGRATION_POLICIES, NOT_NEGATIVE, POSITIVE
from ottla.config.option import INT, LONG, SHORT, STRING, Option, Scope, at_least, between

_ALONE = "Kafka's is 3; a node that is alone in its cluster cannot do that."

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
    "The shortest session timeout a member may ask for.",
    unit="ms",
)
GROUP_MAX_SESSION_TIMEOUT_MS = Option(
    "group.max.session.timeout.ms",
    INT,
    1_800_000,
    "The longest session timeout a member may ask for.",
    unit="ms",
)
GROUP_MAX_SIZE = Option(
    "group.max.size",
    INT,
    INT32_MAX,
    "The members of one group.",
    validator=POSITIVE,
)
GROUP_PENDING_IDS_MAX = Option(
    "ottla.group.pending.ids.max",
    INT,
    1_000,
    "The member ids of one group that were given out (JoinGroup v4 and later) and have not joined"
    " yet. For one more the oldest is forgotten: whoever has it asks for another.",
    validator=POSITIVE,
)
GROUP_MEMBER_NAMES_MAX = Option(
    "ottla.group.member.names.max",
    INT,
    10_000,
    "The protocols that a member may name in a JoinGroup (more: INCONSISTENT_GROUP_PROTOCOL), and"
    " the topics that it may subscribe to by name in a ConsumerGroupHeartbeat (more:"
    " INVALID_REQUEST).",
    validator=POSITIVE,
)
GROUPS_MAX = Option(
    "ottla.groups.max",
    INT,
    100_000,
    "The groups that this node coordinates, those included that are nothing but committed offsets."
    " A member of another one is refused with GROUP_MAX_SIZE_REACHED, a commit of another one with"
    " POLICY_VIOLATION, until some are deleted or expire (offsets.retention.minutes).",
    validator=POSITIVE,
)
GROUP_CONFIGS_MAX = Option(
    "ottla.group.configs.max",
    INT,
    10_000,
    "The groups that may have configs of their own; those of another one are refused with"
    " POLICY_VIOLATION. They stay until they are deleted by request.",
    validator=POSITIVE,
)
GROUP_CONSUMER_SESSION_TIMEOUT_MS = Option(
    "group.consumer.session.timeout.ms",
    INT,
    45_000,
    "How long a member of a consumer-protocol group may be silent before it is taken out.",
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
    "The least time between two assignments of a consumer-protocol group; what changes meanwhile "
    "waits and is assigned at once.",
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
    "The members of one consumer-protocol group.",
    validator=POSITIVE,
)
GROUP_CONSUMER_MIGRATION_POLICY = Option(
    "group.consumer.migration.policy",
    STRING,
    "bidirectional",
    "Whether groups go over from one protocol to the other while their members read on: a classic "
    "group when a member of the consumer protocol joins (upgrade), a consumer group when its last "
    "such member goes and classic ones are left (downgrade), both, or neither (disabled).",
    validator=MIGRATION_POLICIES,
)
OFFSET_METADATA_MAX_BYTES = Option(
    "offset.metadata.max.bytes",
    INT,
    4096,
    "The text stored with a committed offset.",
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
"""What ``segment.bytes`` of a topic takes: with less the topic could never be made."""
OFFSETS_COMMIT_TIMEOUT_MS = Option(
    "offsets.commit.timeout.ms",
    INT,
    5_000,
    "How long a commit may take to become durable before its client is told to ask again.",
    validator=POSITIVE,
    unit="ms",
)
OFFSETS_TOPIC_COMPRESSION_CODEC = Option(
    "offsets.topic.compression.codec",
    INT,
    0,
    "What batches of __consumer_offsets are compressed with: 0 nothing, 1 gzip, 2 snappy, 3 lz4, "
    "4 zstd.",
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
    "How often stale offsets are looked for.",
    validator=POSITIVE,
    unit="ms",
)
TRANSACTION_MAX_TIMEOUT_MS = Option(
    "transaction.max.timeout.ms",
    INT,
    900_000,
    "The longest transaction timeout accepted.",
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
    "How often idle transactional ids are looked for.",
    validator=POSITIVE,
    unit="ms",
)
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS = Option(
    "add.partitions.to.txn.retry.backoff.max.ms",
    INT,
    100,
    "How long a Produce or TxnOffsetCommit that begins a transaction waits for the end of the one"
    " before; then its client is told to ask again.",
    validator=NOT_NEGATIVE,
    unit="ms",
)
TRANSACTIONAL_IDS_MAX = Option(
    "ottla.transactional.ids.max",
    INT,
    20_000,
    "The transactional ids that are kept of each partition of __transaction_state; for another one"
    " InitProducerId is refused with POLICY_VIOLATION until some expire.",
    validator=POSITIVE,
)
TRANSACTIONS_WAITING_MAX = Option(
    "ottla.transaction.waiting.max",
    INT,
    1_000,
    "The requests that wait so at a time, in each partition of __transaction_state; more are told"
    " at once to ask again.",
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
