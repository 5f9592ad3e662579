"""The table of the APIs that this broker serves. Others are neither served nor advertised.

A line of the table names the function that makes the handler of an API. The router calls it when
the API is first asked for, and only then the modules of the handler and of its messages are
imported: a node starts without the APIs that nobody uses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.config import broker as options
from ottla.config import replication
from ottla.config.replication import is_rack_aware
from ottla.handlers.call import Handler
from ottla.handlers.group_routes import GROUP_ROUTES
from ottla.handlers.router import Router
from ottla.handlers.services import MakeHandler, Services
from ottla.protocol.apis import ApiKey
from ottla.sliced import Slices

if TYPE_CHECKING:
    from ottla.handlers.leadership import Leaderships


def _produce(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.produce.ordinary import Produce

    return Produce(
        services.replica_manager,
        services.image,
        services.advertised,
        lambda: services.transactions,
    )


def _fetch(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.fetch import Fetch
    from ottla.handlers.fetch_session import FetchSessionCache

    config = services.config
    sessions = FetchSessionCache(
        services.rng,
        slots=config[options.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS],
        partitions_max=config[options.FETCH_SESSIONS_MAX_PARTITIONS],
    )
    return Fetch(
        services.replica_manager,
        services.image,
        services.advertised,
        sessions,
        services.clock,
        response_bytes_max=config[options.FETCH_MAX_BYTES],
        wait_ms_max=config[options.FETCH_MAX_WAIT_MS],
        is_rack_aware=is_rack_aware(config[replication.REPLICA_SELECTOR_CLASS]),
    )


def _list_offsets(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.list_offsets import ListOffsets

    return ListOffsets(services.replica_manager)


def _offset_for_leader_epoch(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.offset_for_leader_epoch import OffsetForLeaderEpoch

    return OffsetForLeaderEpoch(services.replica_manager)


def _leaderships(services: Services) -> Leaderships:
    from ottla.handlers.leadership import Leaderships

    return Leaderships(services.node_id, services.replica_manager.offline, services.image.brokers)


def _metadata(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.metadata import Metadata

    return Metadata(
        services.image,
        services.controller,
        services.advertised,
        _leaderships(services),
        auto_create=services.config[options.AUTO_CREATE_TOPICS_ENABLE],
    )


def _create_topics(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.create_topics import CreateTopics

    return CreateTopics(services.controller, services.clock, elements_max=_elements_max(services))


def _delete_topics(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.delete_topics import DeleteTopics

    return DeleteTopics(services.controller, services.image, services.clock)


def _create_partitions(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.create_partitions import CreatePartitions

    return CreatePartitions(services.controller, services.clock)


def _elect_leaders(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.elect_leaders import ElectLeaders

    return ElectLeaders(services.replica_administration(), services.image, services.clock)


def _alter_partition_reassignments(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.alter_partition_reassignments import AlterPartitionReassignments

    return AlterPartitionReassignments(
        services.replica_administration(), services.image, services.clock
    )


def _list_partition_reassignments(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.list_partition_reassignments import ListPartitionReassignments

    return ListPartitionReassignments(
        services.replica_administration(), services.image, services.clock
    )


def _delete_records(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.delete_records import DeleteRecords

    return DeleteRecords(services.replica_manager, services.deletion)


def _describe_cluster(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.describe_cluster import DescribeCluster

    return DescribeCluster(services.image, services.advertised)


def _describe_quorum(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.describe_quorum import DescribeQuorum

    return DescribeQuorum(services.image, services.advertised, services.clock)


def _unregister_broker(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.unregister_broker import UnregisterBroker

    return UnregisterBroker(services.registrations())


def _update_features(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.update_features import UpdateFeatures

    del services
    return UpdateFeatures()


def _describe_topic_partitions(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.describe_topic_partitions import DescribeTopicPartitions

    return DescribeTopicPartitions(
        services.image,
        _leaderships(services),
        partition_limit=services.config[options.MAX_REQUEST_PARTITION_SIZE_LIMIT],
    )


def _describe_configs(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.describe_configs import DescribeConfigs

    return DescribeConfigs(
        services.node_id,
        services.image,
        services.broker_config,
        services.topic_config,
        elements_max=_elements_max(services),
    )


def _alter_configs(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.alter_configs import AlterConfigs

    return AlterConfigs(services.configs)


def _incremental_alter_configs(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.alter_configs import IncrementalAlterConfigs

    return IncrementalAlterConfigs(services.configs)


def _list_config_resources(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.list_config_resources import ListConfigResources

    return ListConfigResources(services.image)


def _alter_replica_log_dirs(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.alter_replica_log_dirs import AlterReplicaLogDirs

    return AlterReplicaLogDirs(services.relocation)


def _describe_log_dirs(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.describe_log_dirs import DescribeLogDirs

    return DescribeLogDirs(services.replica_manager, services.relocation, services.measure_log_dirs)


def _describe_producers(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.describe_producers import DescribeProducers

    return DescribeProducers(
        services.replica_manager, services.image, elements_max=_elements_max(services)
    )


def _find_coordinator(services: Services) -> Handler[Any]:
    from ottla.coordinator.internal_topics import (
        GROUP_METADATA_TOPIC,
        TRANSACTION_STATE_TOPIC,
    )
    from ottla.handlers.apis.find_coordinator import (
        GROUP,
        TRANSACTION,
        Coordinated,
        FindCoordinator,
    )

    coordinators = services.coordinators
    return FindCoordinator(
        services.image,
        services.advertised,
        {
            GROUP: Coordinated(
                GROUP_METADATA_TOPIC,
                services.group_topic,
                coordinators.ready,
                lambda: coordinators.groups.runtime,
            ),
            TRANSACTION: Coordinated(
                TRANSACTION_STATE_TOPIC,
                services.transaction_topic,
                coordinators.ready,
                lambda: coordinators.transactions.runtime,
            ),
        },
    )


def _sasl_handshake(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.sasl_handshake import SaslHandshake

    return SaslHandshake()


def _sasl_authenticate(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.sasl_authenticate import SaslAuthenticate

    return SaslAuthenticate()


def _describe_user_scram_credentials(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.describe_user_scram_credentials import DescribeUserScramCredentials

    return DescribeUserScramCredentials(services.image.credentials)


def _alter_user_scram_credentials(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.alter_user_scram_credentials import AlterUserScramCredentials

    return AlterUserScramCredentials(services.credentials())


def _describe_client_quotas(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.client_quotas import DescribeClientQuotas

    return DescribeClientQuotas(services.client_quotas())


def _alter_client_quotas(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.client_quotas import AlterClientQuotas

    return AlterClientQuotas(services.client_quotas())


def _describe_acls(services: Services) -> Handler[Any]:
    if services.authorization is not None:
        return services.authorization.describe_acls()
    from ottla.handlers.apis.acls_off import DescribeNoAcls

    return DescribeNoAcls()


def _create_acls(services: Services) -> Handler[Any]:
    if services.authorization is not None:
        return services.authorization.create_acls()
    from ottla.handlers.apis.acls_off import CreateNoAcls

    return CreateNoAcls()


def _delete_acls(services: Services) -> Handler[Any]:
    if services.authorization is not None:
        return services.authorization.delete_acls()
    from ottla.handlers.apis.acls_off import DeleteNoAcls

    return DeleteNoAcls()


def _create_delegation_token(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.delegation_tokens_off import CreateDelegationToken

    del services
    return CreateDelegationToken()


def _renew_delegation_token(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.delegation_tokens_off import RenewDelegationToken

    del services
    return RenewDelegationToken()


def _expire_delegation_token(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.delegation_tokens_off import ExpireDelegationToken

    del services
    return ExpireDelegationToken()


def _describe_delegation_token(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.delegation_tokens_off import DescribeDelegationToken

    del services
    return DescribeDelegationToken()


def _elements_max(services: Services) -> int:
    return services.config[options.ANSWER_MAX_ELEMENTS]


ROUTES: dict[ApiKey, MakeHandler] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.METADATA: _metadata,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_partition_reassignments,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_QUORUM: _describe_quorum,
    ApiKey.UNREGISTER_BROKER: _unregister_broker,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.LIST_CONFIG_RESOURCES: _list_config_resources,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.SASL_HANDSHAKE: _sasl_handshake,
    ApiKey.SASL_AUTHENTICATE: _sasl_authenticate,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_user_scram_credentials,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.DESCRIBE_ACLS: _describe_acls,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _expire_delegation_token,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _describe_delegation_token,
    **GROUP_ROUTES,
}
"""Who makes the handler of each API; ApiVersions, which tells them all, is added to them."""


def router_of(services: Services) -> Router:
    """Return a router with every API that is served."""
    makers: dict[ApiKey, Callable[[], Handler[Any]]] = {
        key: partial(make, services) for key, make in ROUTES.items()
    }
    authorization = services.authorization
    if authorization is not None:
        makers = authorization.behind_guards(makers)
    router = Router(makers, Slices(services.turns, services.answers))
    router.add(ApiKey.API_VERSIONS, lambda: _api_versions(router))
    if authorization is not None:
        router.known = authorization.known
    return router


def _api_versions(router: Router) -> Handler[Any]:
    from ottla.handlers.apis.api_versions import ApiVersions

    return ApiVersions(router.served)
