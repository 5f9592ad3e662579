"""Which module has the guard of which API: the one list of what is asked of whom.

An API without an entry is not served: ``behind_guards`` fails, and the node does not start. An API
that nobody is asked about stands in ``UNGUARDED`` with the reason. A guard is imported together
with its handler, when the API is first asked for.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ottla.handlers.authorization.guarded import Guard, Node, guarded
from ottla.handlers.call import Handler
from ottla.protocol.apis import ApiKey

MODULES = {
    ApiKey.LIST_OFFSETS: "records",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "records",
    ApiKey.DELETE_RECORDS: "records",
    ApiKey.DESCRIBE_PRODUCERS: "records",
    ApiKey.METADATA: "describing",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "describing",
    ApiKey.DESCRIBE_CLUSTER: "describing",
    ApiKey.FIND_COORDINATOR: "describing",
    ApiKey.JOIN_GROUP: "groups",
    ApiKey.SYNC_GROUP: "groups",
    ApiKey.HEARTBEAT: "groups",
    ApiKey.LEAVE_GROUP: "groups",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "groups",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "groups",
    ApiKey.DESCRIBE_GROUPS: "groups",
    ApiKey.DELETE_GROUPS: "groups",
    ApiKey.OFFSET_COMMIT: "offsets",
    ApiKey.OFFSET_FETCH: "offsets",
    ApiKey.OFFSET_DELETE: "offsets",
    ApiKey.TXN_OFFSET_COMMIT: "offsets",
    ApiKey.INIT_PRODUCER_ID: "transactions",
    ApiKey.ADD_PARTITIONS_TO_TXN: "transactions",
    ApiKey.ADD_OFFSETS_TO_TXN: "transactions",
    ApiKey.END_TXN: "transactions",
    ApiKey.WRITE_TXN_MARKERS: "transactions",
    ApiKey.DESCRIBE_TRANSACTIONS: "transactions",
    ApiKey.CREATE_TOPICS: "topics",
    ApiKey.DELETE_TOPICS: "topics",
    ApiKey.CREATE_PARTITIONS: "topics",
    ApiKey.ELECT_LEADERS: "replicas",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "replicas",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "replicas",
    ApiKey.DESCRIBE_QUORUM: "cluster",
    ApiKey.UNREGISTER_BROKER: "cluster",
    ApiKey.UPDATE_FEATURES: "cluster",
    ApiKey.DESCRIBE_CONFIGS: "configs",
    ApiKey.ALTER_CONFIGS: "configs",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "configs",
    ApiKey.LIST_CONFIG_RESOURCES: "configs",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "quotas",
    ApiKey.ALTER_CLIENT_QUOTAS: "quotas",
    ApiKey.DESCRIBE_LOG_DIRS: "administration",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "administration",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "administration",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "administration",
    ApiKey.DESCRIBE_ACLS: "administration",
    ApiKey.CREATE_ACLS: "administration",
    ApiKey.DELETE_ACLS: "administration",
    ApiKey.CREATE_DELEGATION_TOKEN: "delegation_tokens",
    ApiKey.RENEW_DELEGATION_TOKEN: "delegation_tokens",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "delegation_tokens",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "delegation_tokens",
}
"""The guards' modules. Produce, which must be served at once, has a way of its own."""
UNGUARDED = {
    ApiKey.FETCH: "its handler asks, because a session goes on without naming what it reads",
    ApiKey.LIST_GROUPS: "its handler asks, because what is not seen must not count",
    ApiKey.LIST_TRANSACTIONS: "likewise",
    ApiKey.API_VERSIONS: "a client must know them before it can say who it is",
    ApiKey.SASL_HANDSHAKE: "a client that says it late is only told that it is late",
    ApiKey.SASL_AUTHENTICATE: "likewise",
}
"""The APIs without a guard, and why."""

Make = Callable[[], Handler[Any]]


def behind_guards(makers: Mapping[ApiKey, Make], node: Node) -> dict[ApiKey, Make]:
    """Return what makes the handlers, each behind its guard.

    Raises LookupError for an API that nobody has decided about.
    """
    return {key: _behind_guard(key, make, node) for key, make in makers.items()}


def _behind_guard(key: ApiKey, make: Make, node: Node) -> Make:
    if key in UNGUARDED:
        return make
    if key == ApiKey.PRODUCE:
        return lambda: _produce(make(), node)
    if key not in MODULES:
        raise LookupError(f"nobody has decided who may ask {key.name}")
    return lambda: guarded(make(), guard_of(key, node))


def guard_of(key: ApiKey, node: Node) -> Guard:
    """Return the guard of an API."""
    module = import_module(f"ottla.handlers.authorization.{MODULES[key]}")
    guards: dict[ApiKey, Guard] = module.guards_of(node)
    return guards[key]


def _produce(handler: Handler[Any], node: Node) -> Handler[Any]:
    from ottla.handlers.authorization.records import GuardedProduce  # noqa: PLC0415 - when asked

    return GuardedProduce(handler, node.image)
