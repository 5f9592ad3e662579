"""The table of the APIs that this broker serves. Others are neither served nor advertised."""

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.answer_memory import AnswerMemory
from ottla.cluster.configs import Configs
from ottla.cluster.controller import Controller
from ottla.cluster.credentials import Credentials
from ottla.cluster.producer_ids import ProducerIds
from ottla.config import broker as options
from ottla.config import coordinator as coordinator_options
from ottla.config.config import Config
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.internal_topics import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    InternalTopicMaker,
)
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.env.clock import Clock
from ottla.env.rng import Rng
from ottla.handlers.advertised import Advertised
from ottla.handlers.apis.add_offsets_to_txn import AddOffsetsToTxn
from ottla.handlers.apis.add_partitions_to_txn import AddPartitionsToTxn
from ottla.handlers.apis.alter_configs import AlterConfigs, IncrementalAlterConfigs
from ottla.handlers.apis.alter_replica_log_dirs import AlterReplicaLogDirs
from ottla.handlers.apis.alter_user_scram_credentials import AlterUserScramCredentials
from ottla.handlers.apis.api_versions import ApiVersions
from ottla.handlers.apis.consumer_group_describe import ConsumerGroupDescribe
from ottla.handlers.apis.consumer_group_heartbeat import ConsumerGroupHeartbeat
from ottla.handlers.apis.create_partitions import CreatePartitions
from ottla.handlers.apis.create_topics import CreateTopics
from ottla.handlers.apis.delete_groups import DeleteGroups
from ottla.handlers.apis.delete_records import DeleteRecords
from ottla.handlers.apis.delete_topics import DeleteTopics
from ottla.handlers.apis.describe_cluster import DescribeCluster
from ottla.handlers.apis.describe_configs import DescribeConfigs
from ottla.handlers.apis.describe_groups import DescribeGroups
from ottla.handlers.apis.describe_log_dirs import DescribeLogDirs, MeasuredDirectory
from ottla.handlers.apis.describe_producers import DescribeProducers
from ottla.handlers.apis.describe_topic_partitions import DescribeTopicPartitions
from ottla.handlers.apis.describe_transactions import DescribeTransactions
from ottla.handlers.apis.describe_user_scram_credentials import DescribeUserScramCredentials
from ottla.handlers.apis.end_txn import EndTxn
from ottla.handlers.apis.fetch import Fetch
from ottla.handlers.apis.find_coordinator import (
    GROUP,
    TRANSACTION,
    Coordinated,
    FindCoordinator,
)
from ottla.handlers.apis.heartbeat import Heartbeat
from ottla.handlers.apis.init_producer_id import InitProducerId
from ottla.handlers.apis.join_group import JoinGroup
from ottla.handlers.apis.leave_group import LeaveGroup
from ottla.handlers.apis.list_config_resources import ListConfigResources
from ottla.handlers.apis.list_groups import ListGroups
from ottla.handlers.apis.list_offsets import ListOffsets
from ottla.handlers.apis.list_transactions import ListTransactions
from ottla.handlers.apis.metadata import Metadata
from ottla.handlers.apis.offset_commit.ordinary import OffsetCommit
from ottla.handlers.apis.offset_delete import OffsetDelete
from ottla.handlers.apis.offset_fetch import OffsetFetch
from ottla.handlers.apis.offset_for_leader_epoch import OffsetForLeaderEpoch
from ottla.handlers.apis.produce.ordinary import Produce
from ottla.handlers.apis.sasl_authenticate import SaslAuthenticate
from ottla.handlers.apis.sasl_handshake import SaslHandshake
from ottla.handlers.apis.sync_group import SyncGroup
from ottla.handlers.apis.txn_offset_commit import TxnOffsetCommit
from ottla.handlers.apis.write_txn_markers import WriteTxnMarkers
from ottla.handlers.call import Handler
from ottla.handlers.fetch_session import FetchSessionCache
from ottla.handlers.leadership import Leaderships
from ottla.handlers.router import Router
from ottla.housekeeping.deletion import Deletion
from ottla.housekeeping.relocation import Relocation
from ottla.ids import NodeId
from ottla.metadata.image import MetadataImage
from ottla.pending import Pending
from ottla.protocol.apis import ApiKey
from ottla.replication.replica_manager import ReplicaManager
from ottla.sliced import Slices
from ottla.turns import Turns


class Services(NamedTuple):
    """Everything that the handlers are built with."""

    node_id: NodeId
    config: Config
    image: MetadataImage
    topic_config: Callable[[str], Config]
    replica_manager: ReplicaManager
    deletion: Deletion
    relocation: Relocation
    broker_config: Callable[[], Config]
    """Returns the configuration in force now; ``config`` is the one at the start."""
    controller: Controller
    configs: Configs
    credentials: Credentials
    measure_log_dirs: Callable[[], Pending[list[MeasuredDirectory]]]
    producer_ids: ProducerIds
    groups: GroupCoordinator
    group_topic: InternalTopicMaker
    transactions: TransactionCoordinator
    transaction_topic: InternalTopicMaker
    advertised: Advertised
    clock: Clock
    rng: Rng
    turns: Turns
    answers: AnswerMemory


def router_of(services: Services) -> Router:
    """Return a router with a handler for every API that is served."""
    node_id, config, image, replicas = (
        services.node_id,
        services.config,
        services.image,
        services.replica_manager,
    )
    controller, advertised = services.controller, services.advertised
    leaderships = Leaderships(node_id, replicas.offline)
    elements_max = config[options.ANSWER_MAX_ELEMENTS]
    router = Router(
        {
            ApiKey.PRODUCE: Produce(replicas, image, advertised, services.transactions),
            ApiKey.FETCH: Fetch(
                replicas,
                image,
                advertised,
                _fetch_sessions(services),
                services.clock,
                response_bytes_max=config[options.FETCH_MAX_BYTES],
                wait_ms_max=config[options.FETCH_MAX_WAIT_MS],
            ),
            ApiKey.LIST_OFFSETS: ListOffsets(replicas),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpoch(replicas),
            ApiKey.METADATA: Metadata(
                image,
                controller,
                advertised,
                leaderships,
                auto_create=config[options.AUTO_CREATE_TOPICS_ENABLE],
            ),
            ApiKey.CREATE_TOPICS: CreateTopics(
                controller, services.clock, elements_max=elements_max
            ),
            ApiKey.DELETE_TOPICS: DeleteTopics(controller, image, services.clock),
            ApiKey.CREATE_PARTITIONS: CreatePartitions(controller, services.clock),
            ApiKey.DELETE_RECORDS: DeleteRecords(replicas, services.deletion),
            ApiKey.DESCRIBE_CLUSTER: DescribeCluster(image, advertised),
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitions(
                image,
                leaderships,
                partition_limit=config[options.MAX_REQUEST_PARTITION_SIZE_LIMIT],
            ),
            ApiKey.DESCRIBE_CONFIGS: DescribeConfigs(
                node_id,
                image,
                services.broker_config,
                services.topic_config,
                elements_max=elements_max,
            ),
            ApiKey.ALTER_CONFIGS: AlterConfigs(services.configs),
            ApiKey.INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigs(services.configs),
            ApiKey.LIST_CONFIG_RESOURCES: ListConfigResources(image),
            ApiKey.ALTER_REPLICA_LOG_DIRS: AlterReplicaLogDirs(services.relocation),
            ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirs(
                replicas, services.relocation, services.measure_log_dirs
            ),
            ApiKey.DESCRIBE_PRODUCERS: DescribeProducers(
                replicas, image, elements_max=elements_max
            ),
            ApiKey.FIND_COORDINATOR: _find_coordinator(services),
            ApiKey.SASL_HANDSHAKE: SaslHandshake(),
            ApiKey.SASL_AUTHENTICATE: SaslAuthenticate(),
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DescribeUserScramCredentials(image.credentials),
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentials(services.credentials),
            **_group_handlers(services),
            **_transaction_handlers(services),
        },
        Slices(services.turns, services.answers),
    )
    router.add(ApiKey.API_VERSIONS, ApiVersions(router.served))
    return router


def _find_coordinator(services: Services) -> FindCoordinator:
    groups, transactions = services.groups.runtime, services.transactions.runtime
    return FindCoordinator(
        services.image,
        services.advertised,
        {
            GROUP: Coordinated(
                GROUP_METADATA_TOPIC,
                services.group_topic,
                groups.partition_for,
                groups.has_failed,
            ),
            TRANSACTION: Coordinated(
                TRANSACTION_STATE_TOPIC,
                services.transaction_topic,
                transactions.partition_for,
                transactions.has_failed,
            ),
        },
    )


def _transaction_handlers(services: Services) -> dict[ApiKey, Handler[Any]]:
    groups, transactions, image = services.groups, services.transactions, services.image
    return {
        ApiKey.INIT_PRODUCER_ID: InitProducerId(services.producer_ids, transactions),
        ApiKey.ADD_PARTITIONS_TO_TXN: AddPartitionsToTxn(transactions, image),
        ApiKey.ADD_OFFSETS_TO_TXN: AddOffsetsToTxn(transactions, groups.runtime.partition_for),
        ApiKey.END_TXN: EndTxn(transactions),
        ApiKey.TXN_OFFSET_COMMIT: TxnOffsetCommit(groups, transactions, image),
        ApiKey.WRITE_TXN_MARKERS: WriteTxnMarkers(transactions),
        ApiKey.LIST_TRANSACTIONS: ListTransactions(
            transactions,
            services.clock,
            elements_max=services.config[options.ANSWER_MAX_ELEMENTS],
        ),
        ApiKey.DESCRIBE_TRANSACTIONS: DescribeTransactions(
            transactions, elements_max=services.config[options.ANSWER_MAX_ELEMENTS]
        ),
    }


def _group_handlers(services: Services) -> dict[ApiKey, Handler[Any]]:
    groups, image = services.groups, services.image
    elements_max = services.config[options.ANSWER_MAX_ELEMENTS]
    names_max = services.config[coordinator_options.GROUP_MEMBER_NAMES_MAX]
    return {
        ApiKey.OFFSET_COMMIT: OffsetCommit(groups, image),
        ApiKey.OFFSET_FETCH: OffsetFetch(groups, image, elements_max=elements_max),
        ApiKey.OFFSET_DELETE: OffsetDelete(groups, image),
        ApiKey.JOIN_GROUP: JoinGroup(groups, services.rng, protocols_max=names_max),
        ApiKey.SYNC_GROUP: SyncGroup(groups),
        ApiKey.HEARTBEAT: Heartbeat(groups),
        ApiKey.LEAVE_GROUP: LeaveGroup(groups),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: ConsumerGroupHeartbeat(
            groups, services.rng, names_max=names_max
        ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribe(
            groups, image, elements_max=elements_max
        ),
        ApiKey.LIST_GROUPS: ListGroups(groups, elements_max=elements_max),
        ApiKey.DESCRIBE_GROUPS: DescribeGroups(groups, elements_max=elements_max),
        ApiKey.DELETE_GROUPS: DeleteGroups(groups),
    }


def _fetch_sessions(services: Services) -> FetchSessionCache:
    config = services.config
    return FetchSessionCache(
        services.rng,
        slots=config[options.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS],
        partitions_max=config[options.FETCH_SESSIONS_MAX_PARTITIONS],
    )
