"""The table of all APIs: key, versions, first flexible version, and where the messages are.

Owns what Kafka 4.3 serves to clients; what this broker serves of it is in ``handlers.routes``. A
message module is imported when its API is first used, so a start costs nothing for the others.
Controller-only APIs (4-7, 52-54, 56, 58, 59, 62, 63, 67, 70, 73, 82) are left out on purpose.
Source: a live Apache Kafka 4.3.0's ApiVersions answer.
"""

from enum import IntEnum
from functools import cached_property
from importlib import import_module

from ottla.protocol.fields import Versions
from ottla.protocol.schema import Message


class ApiKey(IntEnum):
    """The API keys of the protocol, named as Kafka names them."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Api:
    """One API. ``versions`` are those that its message tables can decode and encode.

    ``flexible_from`` is the first version with compact lengths and tagged fields (None: never).
    ``advertised`` is what ApiVersions says if that differs: Produce says 0-13 although v0-2 are
    refused, because librdkafka takes a missing v0 for "no compression" (librdkafka#4956).
    """

    def __init__(
        self, key: ApiKey, versions_text: str, flexible_from: int | None, advertised: str = ""
    ) -> None:
        self.key = key
        self.versions_text = versions_text
        self.flexible_from = flexible_from
        self.advertised = advertised

    @property
    def name(self) -> str:
        """Kafka's name: ``ListOffsets``."""
        return "".join(word.capitalize() for word in self.key.name.split("_"))

    @cached_property
    def versions(self) -> Versions:
        """The versions that requests and responses exist in."""
        return Versions.parse(self.versions_text)

    @cached_property
    def advertised_versions(self) -> Versions:
        """The versions in the answer to ApiVersions."""
        return Versions.parse(self.advertised or self.versions_text)

    @cached_property
    def request(self) -> type[Message]:
        """The request's class. Imports its module on first use."""
        return self._message("Request")

    @cached_property
    def response(self) -> type[Message]:
        """The response's class. Imports its module on first use."""
        return self._message("Response")

    def is_flexible(self, version: int) -> bool:
        """Whether a version has compact lengths and tagged fields, in its header, too."""
        return self.flexible_from is not None and version >= self.flexible_from

    def _message(self, kind: str) -> type[Message]:
        module = import_module(f"ottla.protocol.messages.{self.key.name.lower()}")
        message: type[Message] = getattr(module, self.name + kind)
        return message


API_TABLE: dict[ApiKey, Api] = {
    api.key: api
    for api in (
        Api(ApiKey.PRODUCE, "3-13", 9, advertised="0-13"),
        Api(ApiKey.FETCH, "4-18", 12),
        Api(ApiKey.LIST_OFFSETS, "1-11", 6),
        Api(ApiKey.METADATA, "0-13", 9),
        Api(ApiKey.OFFSET_COMMIT, "2-10", 8),
        Api(ApiKey.OFFSET_FETCH, "1-10", 6),
        Api(ApiKey.FIND_COORDINATOR, "0-6", 3),
        Api(ApiKey.JOIN_GROUP, "0-9", 6),
        Api(ApiKey.HEARTBEAT, "0-4", 4),
        Api(ApiKey.LEAVE_GROUP, "0-5", 4),
        Api(ApiKey.SYNC_GROUP, "0-5", 4),
        Api(ApiKey.DESCRIBE_GROUPS, "0-6", 5),
        Api(ApiKey.LIST_GROUPS, "0-5", 3),
        Api(ApiKey.SASL_HANDSHAKE, "0-1", None),
        Api(ApiKey.API_VERSIONS, "0-4", 3),
        Api(ApiKey.CREATE_TOPICS, "2-7", 5),
        Api(ApiKey.DELETE_TOPICS, "1-6", 4),
        Api(ApiKey.DELETE_RECORDS, "0-2", 2),
        Api(ApiKey.INIT_PRODUCER_ID, "0-5", 2),
        Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "2-4", 4),
        Api(ApiKey.ADD_PARTITIONS_TO_TXN, "0-5", 3),
        Api(ApiKey.ADD_OFFSETS_TO_TXN, "0-4", 3),
        Api(ApiKey.END_TXN, "0-5", 3),
        Api(ApiKey.WRITE_TXN_MARKERS, "1-2", 1),
        Api(ApiKey.TXN_OFFSET_COMMIT, "0-5", 3),
        Api(ApiKey.DESCRIBE_ACLS, "1-3", 2),
        Api(ApiKey.CREATE_ACLS, "1-3", 2),
        Api(ApiKey.DELETE_ACLS, "1-3", 2),
        Api(ApiKey.DESCRIBE_CONFIGS, "1-4", 4),
        Api(ApiKey.ALTER_CONFIGS, "0-2", 2),
        Api(ApiKey.ALTER_REPLICA_LOG_DIRS, "1-2", 2),
        Api(ApiKey.DESCRIBE_LOG_DIRS, "1-5", 2),
        Api(ApiKey.SASL_AUTHENTICATE, "0-2", 2),
        Api(ApiKey.CREATE_PARTITIONS, "0-3", 2),
        Api(ApiKey.CREATE_DELEGATION_TOKEN, "1-3", 2),
        Api(ApiKey.RENEW_DELEGATION_TOKEN, "1-2", 2),
        Api(ApiKey.EXPIRE_DELEGATION_TOKEN, "1-2", 2),
        Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, "1-3", 2),
        Api(ApiKey.DELETE_GROUPS, "0-2", 2),
        Api(ApiKey.ELECT_LEADERS, "0-2", 2),
        Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "0-1", 1),
        Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "0-1", 0),
        Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "0", 0),
        Api(ApiKey.OFFSET_DELETE, "0", None),
        Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, "0-1", 1),
        Api(ApiKey.ALTER_CLIENT_QUOTAS, "0-1", 1),
        Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "0", 0),
        Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "0", 0),
        Api(ApiKey.DESCRIBE_QUORUM, "0-2", 0),
        Api(ApiKey.UPDATE_FEATURES, "0-2", 0),
        Api(ApiKey.DESCRIBE_CLUSTER, "0-2", 0),
        Api(ApiKey.DESCRIBE_PRODUCERS, "0", 0),
        Api(ApiKey.UNREGISTER_BROKER, "0", 0),
        Api(ApiKey.DESCRIBE_TRANSACTIONS, "0", 0),
        Api(ApiKey.LIST_TRANSACTIONS, "0-2", 0),
        Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "0-1", 0),
        Api(ApiKey.CONSUMER_GROUP_DESCRIBE, "0-1", 0),
        Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "0", 0),
        Api(ApiKey.PUSH_TELEMETRY, "0", 0),
        Api(ApiKey.LIST_CONFIG_RESOURCES, "0-1", 0),
        Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "0", 0),
        Api(ApiKey.SHARE_GROUP_HEARTBEAT, "1", 0),
        Api(ApiKey.SHARE_GROUP_DESCRIBE, "1", 0),
        Api(ApiKey.SHARE_FETCH, "1-2", 0),
        Api(ApiKey.SHARE_ACKNOWLEDGE, "1-2", 0),
        Api(ApiKey.ADD_RAFT_VOTER, "0-1", 0),
        Api(ApiKey.REMOVE_RAFT_VOTER, "0", 0),
        Api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, "0", 0),
        Api(ApiKey.READ_SHARE_GROUP_STATE, "0", 0),
        Api(ApiKey.WRITE_SHARE_GROUP_STATE, "0-1", 0),
        Api(ApiKey.DELETE_SHARE_GROUP_STATE, "0", 0),
        Api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, "0-1", 0),
        Api(ApiKey.STREAMS_GROUP_HEARTBEAT, "0", 0),
        Api(ApiKey.STREAMS_GROUP_DESCRIBE, "0", 0),
        Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "0-1", 0),
        Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "0", 0),
        Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, "0", 0),
    )
}


def api(key: int) -> Api | None:
    """Return the API of a key as it came from the wire; None if there is none."""
    return _BY_NUMBER.get(key)


_BY_NUMBER: dict[int, Api] = {int(key): entry for key, entry in API_TABLE.items()}
