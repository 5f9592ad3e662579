"""The APIs of groups, offsets and transactions in the table of ``routes``, made as those there."""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.config import broker as options
from ottla.config import coordinator as coordinator_options
from ottla.handlers.call import Handler
from ottla.handlers.services import MakeHandler, Services
from ottla.handlers.when_ready import WhenReady
from ottla.protocol.apis import ApiKey


def _offset_commit(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.offset_commit.ordinary import OffsetCommit

    return OffsetCommit(services.groups, services.image)


def _offset_fetch(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.offset_fetch import OffsetFetch

    return OffsetFetch(services.groups, services.image, elements_max=_elements_max(services))


def _offset_delete(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.offset_delete import OffsetDelete

    return OffsetDelete(services.groups, services.image)


def _join_group(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.join_group import JoinGroup

    return JoinGroup(services.groups, services.rng, protocols_max=_member_names_max(services))


def _sync_group(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.sync_group import SyncGroup

    return SyncGroup(services.groups)


def _heartbeat(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.heartbeat import Heartbeat

    return Heartbeat(services.groups)


def _leave_group(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.leave_group import LeaveGroup

    return LeaveGroup(services.groups)


def _consumer_group_heartbeat(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.consumer_group_heartbeat import ConsumerGroupHeartbeat

    return ConsumerGroupHeartbeat(
        services.groups, services.rng, names_max=_member_names_max(services)
    )


def _consumer_group_describe(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.consumer_group_describe import ConsumerGroupDescribe

    return ConsumerGroupDescribe(
        services.groups, services.image, elements_max=_elements_max(services)
    )


def _list_groups(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.list_groups import ListGroups

    return ListGroups(services.groups, elements_max=_elements_max(services))


def _describe_groups(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.describe_groups import DescribeGroups

    return DescribeGroups(services.groups, elements_max=_elements_max(services))


def _delete_groups(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.delete_groups import DeleteGroups

    return DeleteGroups(services.groups)


def _init_producer_id(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.init_producer_id import InitProducerId

    return InitProducerId(services.producer_ids, services.coordinators)


def _add_partitions_to_txn(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.add_partitions_to_txn import AddPartitionsToTxn

    return AddPartitionsToTxn(services.transactions, services.image)


def _add_offsets_to_txn(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.add_offsets_to_txn import AddOffsetsToTxn

    return AddOffsetsToTxn(services.transactions, services.groups.runtime.partition_for)


def _end_txn(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.end_txn import EndTxn

    return EndTxn(services.transactions)


def _txn_offset_commit(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.txn_offset_commit import TxnOffsetCommit

    return TxnOffsetCommit(
        services.groups, services.transactions, services.image, services.replica_manager
    )


def _write_txn_markers(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.write_txn_markers import WriteTxnMarkers

    return WriteTxnMarkers(services.transactions)


def _list_transactions(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.list_transactions import ListTransactions

    return ListTransactions(
        services.transactions, services.clock, elements_max=_elements_max(services)
    )


def _describe_transactions(services: Services) -> Handler[Any]:
    from ottla.handlers.apis.describe_transactions import DescribeTransactions

    return DescribeTransactions(services.transactions, elements_max=_elements_max(services))


def _elements_max(services: Services) -> int:
    return services.config[options.ANSWER_MAX_ELEMENTS]


def _member_names_max(services: Services) -> int:
    return services.config[coordinator_options.GROUP_MEMBER_NAMES_MAX]


def _when_ready(make: MakeHandler) -> MakeHandler:
    """Return what makes the handler, or a stand-in for it while there are no coordinators."""

    def made(services: Services) -> Handler[Any]:
        if services.coordinators.made is not None:
            return make(services)
        return WhenReady(services.coordinators, partial(make, services))

    return made


_OF_COORDINATORS: dict[ApiKey, MakeHandler] = {
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.HEARTBEAT: _heartbeat,
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: _end_txn,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
}
GROUP_ROUTES: dict[ApiKey, MakeHandler] = {
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,  # Idempotence needs no coordinator.
    **{key: _when_ready(make) for key, make in _OF_COORDINATORS.items()},
}
"""Who makes the handler of each of these APIs."""
