"""The coordinators of a node, put together from its configuration.

Imports all that groups and transactions are made of. So nobody imports this module before a node
needs a coordinator: see ``ottla.coordinator.on_demand``.
"""

from functools import partial

from ottla.cluster.producer_ids import ProducerIds
from ottla.config import coordinator as coordinator_options
from ottla.config.config import Config
from ottla.coordinator.group.classic.events import ClassicSettings
from ottla.coordinator.group.consumer.settings import ConsumerSettings, MigrationPolicy
from ottla.coordinator.group.settings import GroupSettings
from ottla.coordinator.making import Coordinators, CoordinatorSettings, coordinators_of
from ottla.coordinator.shard import Context
from ottla.coordinator.transaction.peers import Peers
from ottla.coordinator.transaction.settings import TransactionSettings
from ottla.env.awake_clock import AwakeClock
from ottla.environment import Environment
from ottla.node.configuration import Configuration
from ottla.node.data import Data
from ottla.node.links import NodeLinks
from ottla.records.compression import Codec
from ottla.replication.replica_manager import ReplicaManager
from ottla.settings import group_topic_of, transaction_topic_of
from ottla.turns import Turns


def make_coordinators(
    data: Data,
    environment: Environment,
    configuration: Configuration,
    replica_manager: ReplicaManager,
    *,
    producer_ids: ProducerIds,
    turns: Turns,
    awake_clock: AwakeClock,
    links: NodeLinks,
) -> Coordinators:
    """Return the coordinators of a node, which are not started yet."""
    return coordinators_of(
        Context(replica_manager, environment.executor, awake_clock, turns=turns),
        data.follower.image,
        producer_ids,
        coordinator_settings_of(configuration.at_start),
        node_id=configuration.node_id,
        open_peers=partial(_open_peers, links, environment),
    )


def _open_peers(links: NodeLinks, environment: Environment) -> Peers:
    """Return what asks other nodes; a single node never does."""
    from ottla.node.peers import NodePeers  # noqa: PLC0415 - only several nodes need it

    return NodePeers(links, environment.clock)


def coordinator_settings_of(config: Config) -> CoordinatorSettings:
    """Return the settings of both coordinators and the sizes of their topics."""
    return CoordinatorSettings(
        group_settings_of(config),
        group_topic_of(config).partition_count,
        transaction_settings_of(config),
        transaction_topic_of(config).partition_count,
        Codec(config[coordinator_options.OFFSETS_TOPIC_COMPRESSION_CODEC]),
    )


def group_settings_of(config: Config) -> GroupSettings:
    """Return the group coordinator's settings."""
    return GroupSettings(
        classic=ClassicSettings(
            initial_rebalance_delay_ms=config[coordinator_options.GROUP_INITIAL_REBALANCE_DELAY_MS],
            members_max=config[coordinator_options.GROUP_MAX_SIZE],
            metadata_max_bytes=config[coordinator_options.GROUP_METADATA_MAX_BYTES],
            pending_ids_max=config[coordinator_options.GROUP_PENDING_IDS_MAX],
        ),
        consumer=ConsumerSettings(
            session_timeout_ms=config[coordinator_options.GROUP_CONSUMER_SESSION_TIMEOUT_MS],
            heartbeat_interval_ms=config[coordinator_options.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS],
            assignment_interval_ms=config[
                coordinator_options.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS
            ],
            members_max=config[coordinator_options.GROUP_CONSUMER_MAX_SIZE],
            migration_policy=MigrationPolicy(
                config[coordinator_options.GROUP_CONSUMER_MIGRATION_POLICY].lower()
            ),
            classic_members_max=config[coordinator_options.GROUP_MAX_SIZE],
        ),
        session_timeout_min_ms=config[coordinator_options.GROUP_MIN_SESSION_TIMEOUT_MS],
        session_timeout_max_ms=config[coordinator_options.GROUP_MAX_SESSION_TIMEOUT_MS],
        metadata_length_max=config[coordinator_options.OFFSET_METADATA_MAX_BYTES],
        offsets_retention_ms=config[coordinator_options.OFFSETS_RETENTION_MINUTES] * 60_000,
        offsets_retention_check_interval_ms=config[
            coordinator_options.OFFSETS_RETENTION_CHECK_INTERVAL_MS
        ],
        groups_max=config[coordinator_options.GROUPS_MAX],
        offset_commit_timeout_ms=config[coordinator_options.OFFSETS_COMMIT_TIMEOUT_MS],
    )


def transaction_settings_of(config: Config) -> TransactionSettings:
    """Return the transaction coordinator's settings."""
    return TransactionSettings(
        timeout_max_ms=config[coordinator_options.TRANSACTION_MAX_TIMEOUT_MS],
        expiration_ms=config[coordinator_options.TRANSACTIONAL_ID_EXPIRATION_MS],
        expiration_check_interval_ms=config[
            coordinator_options.TRANSACTION_REMOVE_EXPIRED_CLEANUP_INTERVAL_MS
        ],
        add_partitions_wait_ms=config[
            coordinator_options.ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS
        ],
        ids_max=config[coordinator_options.TRANSACTIONAL_IDS_MAX],
        waiting_max=config[coordinator_options.TRANSACTIONS_WAITING_MAX],
    )
