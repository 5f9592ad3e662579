"""Random requests of every served API, in a small world of names.

Each request is made so that its answer is the same every time if it is allowed: nobody joins a
group for good, and nothing is deleted.
"""

import datetime as dt
import uuid

from tests.random_acls import (
    GROUP,
    NAMES,
    TOPIC,
    TOPICS,
    TRANSACTION,
    random_acl,
    random_filter,
)
from tools.wire_client import batch

NO_ID = uuid.UUID(int=7)
TIME = dt.timedelta(milliseconds=6000)
KEYS = ("retention.ms", "num.partitions", "consumer.session.timeout.ms")


class Requests:
    """Makes requests; ``ids`` are the topics' ids on one broker."""

    def __init__(self, rng, ids):
        self.rng = rng
        self.ids = ids

    def some(self, kind, least=1):
        names = list(NAMES[kind])
        self.rng.shuffle(names)
        return sorted(names[: self.rng.randint(least, len(names))])

    def one(self, kind):
        return self.rng.choice(NAMES[kind])

    def id_of(self, name):
        return self.ids.get(name, NO_ID)

    def records(self, **fields):
        return batch([b"v"], **fields)

    # Each returns (API, version, fields).

    def metadata(self):
        rng = self.rng
        version = rng.choice((0, 1, 4, 8, 9, 10, 12, 13))
        topics = None if version and rng.random() < 0.3 else [
            {"name": name} for name in self.some(TOPIC)
        ]  # fmt: skip
        if version >= 12 and topics and rng.random() < 0.4:
            topics = [{"topic_id": self.id_of(one["name"]), "name": None} for one in topics]
        fields = {"topics": topics}
        if version >= 4:
            fields["allow_auto_topic_creation"] = False
        if version >= 8:
            fields["include_topic_authorized_operations"] = rng.random() < 0.5
        if 8 <= version <= 10:
            fields["include_cluster_authorized_operations"] = rng.random() < 0.5
        return "metadata", version, fields

    def describe_topic_partitions(self):
        rng = self.rng
        topics = [] if rng.random() < 0.4 else [{"name": name} for name in self.some(TOPIC)]
        topics = [one for one in topics if one["name"] != "nobody"]  # Kafka: -1, as ever.
        cursor = None
        if rng.random() < 0.3:
            begin = rng.choice(topics)["name"] if topics else "t-b"
            cursor = {"topic_name": begin, "partition_index": rng.choice((0, 0, -1))}
        fields = {"topics": topics, "response_partition_limit": 100, "cursor": cursor}
        return "describe_topic_partitions", 0, fields

    def describe_cluster(self):
        asks = self.rng.random() < 0.7
        fields = {"include_cluster_authorized_operations": asks, "endpoint_type": 1}
        return "describe_cluster", 1, fields

    def produce(self):
        rng = self.rng
        version = rng.choice((3, 7, 8, 9, 12, 13))
        names, transaction = self.some(TOPIC), None
        fields = {}
        if rng.random() < 0.3:
            transaction = rng.choice((None, "tx-a", "tx-b"))
            fields = {"attributes": 16, "producer_id": 900, "producer_epoch": 0, "base_sequence": 0}
        topics = [
            {
                **({"topic_id": self.id_of(name)} if version >= 13 else {"name": name}),
                "partition_data": [{"index": 0, "records": self.records(**fields)}],
            }
            for name in names
        ]
        if fields and transaction is not None:
            topics = topics[:1]
        # With acks=1 consumers see a record only when it is durable: a little later than in Kafka.
        asked = {"transactional_id": transaction, "acks": -1, "timeout": TIME}
        return "produce", version, {**asked, "topic_data": topics}

    def fetch(self):
        rng = self.rng
        version = rng.choice((4, 7, 11, 12, 13, 16))
        topics = [
            {
                **({"topic_id": self.id_of(name)} if version >= 13 else {"topic": name}),
                "partitions": [
                    {
                        "partition": 0,
                        "fetch_offset": 0,
                        "partition_max_bytes": 100,
                    }
                ],
            }
            for name in self.some(TOPIC)
        ]
        fields = {"max_wait": TIME * 0, "min_bytes": 0, "max_bytes": 1000, "topics": topics}
        if version >= 7:
            fields |= {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": []}
        if version < 15:
            fields["replica_id"] = rng.choice((-1, -1, -1, 5))
            if fields["replica_id"] > 0:  # With one node a follower is refused in any case.
                fields["topics"] = [one for one in topics if one.get("topic") in TOPICS]
        return "fetch", version, fields

    def list_offsets(self):
        topics = [
            {"name": name, "partitions": [{"partition_index": 0, "timestamp": -2}]}
            for name in self.some(TOPIC)
        ]
        return "list_offsets", self.rng.choice((1, 5, 7)), {"replica_id": -1, "topics": topics}

    def offset_for_leader_epoch(self):
        topics = [
            {
                "topic": name,
                "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
            }
            for name in self.some(TOPIC)
        ]
        return "offset_for_leader_epoch", 4, {"replica_id": -1, "topics": topics}

    def delete_records(self):
        topics = [
            {"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}
            for name in self.some(TOPIC)
        ]
        return "delete_records", self.rng.choice((0, 2)), {"topics": topics, "timeout": TIME}

    def describe_producers(self):
        names = self.rng.choice((self.some(TOPIC), [*self.some(TOPIC), "a/b"]))
        topics = [{"name": name, "partition_indexes": [0]} for name in names]
        return "describe_producers", 0, {"topics": topics}

    def find_coordinator(self):
        rng = self.rng
        kind, number = rng.choice(((GROUP, 0), (TRANSACTION, 1)))
        version = rng.choice((1, 3, 4, 5))
        if version < 4:
            return "find_coordinator", version, {"key": self.one(kind), "key_type": number}
        return (
            "find_coordinator",
            version,
            {"coordinator_keys": self.some(kind), "key_type": number},
        )

    def join_group(self):
        version = self.rng.choice((2, 5, 7, 9))
        fields = {
            "group_id": self.one(GROUP),
            "session_timeout": TIME * 0,
            "rebalance_timeout": TIME,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        return "join_group", version, fields

    def sync_group(self):
        version = self.rng.choice((1, 3, 5))
        fields = {
            "group_id": self.one(GROUP),
            "generation_id": 1,
            "member_id": "who",
            "assignments": [],
        }
        if version >= 5:
            kind = self.rng.choice((None, "consumer"))
            fields |= {"protocol_type": kind, "protocol_name": kind and "range"}
        return "sync_group", version, fields

    def heartbeat(self):
        fields = {"group_id": self.one(GROUP), "generation_id": 1, "member_id": "who"}
        return "heartbeat", self.rng.choice((0, 4)), fields

    def leave_group(self):
        version = self.rng.choice((2, 5))
        fields = {"group_id": self.one(GROUP)}
        who = {"member_id": "who", "group_instance_id": None}
        fields |= {"members": [who]} if version > 2 else {"member_id": "who"}
        return "leave_group", version, fields

    def offset_commit(self):
        version = self.rng.choice((2, 5, 7, 8, 9, 10))
        part = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        topics = [
            {
                **({"topic_id": self.id_of(name)} if version >= 10 else {"name": name}),
                "partitions": [part],
            }
            for name in self.some(TOPIC)
        ]
        fields = {"group_id": self.one(GROUP), "member_id": "", "topics": topics}
        return "offset_commit", version, {**fields, "generation_id_or_member_epoch": -1}

    def offset_fetch(self):
        rng = self.rng
        version = rng.choice((1, 2, 5, 7, 8, 9, 10))
        names = None if version >= 2 and rng.random() < 0.3 else self.some(TOPIC)
        if version < 8:
            topics = None if names is None else [
                {"name": name, "partition_indexes": [0]} for name in names
            ]  # fmt: skip
            return "offset_fetch", version, {"group_id": self.one(GROUP), "topics": topics}
        topics = None if names is None else [
            {
                **({"topic_id": self.id_of(name)} if version >= 10 else {"name": name}),
                "partition_indexes": [0],
            }
            for name in names
        ]  # fmt: skip
        groups = [{"group_id": one, "topics": topics} for one in self.some(GROUP)]
        return "offset_fetch", version, {"groups": groups, "require_stable": False}

    def offset_delete(self):
        topics = [
            {"name": name, "partitions": [{"partition_index": 5}]} for name in self.some(TOPIC)
        ]
        return "offset_delete", 0, {"group_id": self.one(GROUP), "topics": topics}

    def delete_groups(self):
        return "delete_groups", 2, {"groups_names": ["never", *self.some(GROUP)][:1]}

    def describe_groups(self):
        version = self.rng.choice((0, 3, 5, 6))
        fields = {"groups": self.some(GROUP)}
        if version >= 3:
            fields["include_authorized_operations"] = self.rng.random() < 0.6
        return "describe_groups", version, fields

    def list_groups(self):
        return "list_groups", self.rng.choice((0, 3, 5)), {}

    def consumer_group_heartbeat(self):
        fields = {
            "group_id": self.one(GROUP),
            "member_id": "who",
            "member_epoch": 5,
            "rebalance_timeout": TIME,
            "subscribed_topic_names": self.some(TOPIC),
            "topic_partitions": [],
        }
        return "consumer_group_heartbeat", 1, fields

    def consumer_group_describe(self):
        asks = self.rng.random() < 0.5
        fields = {"group_ids": self.some(GROUP), "include_authorized_operations": asks}
        return "consumer_group_describe", 0, fields

    def init_producer_id(self):
        rng = self.rng
        fields = {
            "transactional_id": rng.choice((None, None, "tx-c", "tx-d")),
            "transaction_timeout": TIME,
        }
        return "init_producer_id", rng.choice((0, 2, 4)), fields

    def add_partitions_to_txn(self):
        rng = self.rng
        topics = [{"name": name, "partitions": [0]} for name in self.some(TOPIC)]
        if rng.random() < 0.3:
            one = {"transactional_id": self.one(TRANSACTION), "producer_id": 900}
            one |= {"producer_epoch": 0, "verify_only": True, "topics": topics}
            return "add_partitions_to_txn", 4, {"transactions": [one]}
        fields = {
            "v3_and_below_transactional_id": self.one(TRANSACTION),
            "v3_and_below_producer_id": 900,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": topics,
        }
        return "add_partitions_to_txn", rng.choice((0, 3)), fields

    def add_offsets_to_txn(self):
        fields = {
            "transactional_id": self.one(TRANSACTION),
            "producer_id": 900,
            "producer_epoch": 0,
            "group_id": self.one(GROUP),
        }
        return "add_offsets_to_txn", self.rng.choice((0, 3)), fields

    def end_txn(self):
        fields = {
            "transactional_id": self.one(TRANSACTION),
            "producer_id": 900,
            "producer_epoch": 0,
            "committed": True,
        }
        return "end_txn", self.rng.choice((0, 3)), fields

    def txn_offset_commit(self):
        part = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        topics = [{"name": name, "partitions": [part]} for name in self.some(TOPIC)]
        fields = {
            "transactional_id": self.one(TRANSACTION),
            "group_id": self.one(GROUP),
            "producer_id": 900,
            "producer_epoch": 0,
            "topics": topics,
        }
        return "txn_offset_commit", self.rng.choice((0, 3)), fields

    def write_txn_markers(self):
        marker = {
            "producer_id": 900,
            "producer_epoch": 0,
            "transaction_result": True,
            "coordinator_epoch": 0,
            "topics": [{"name": "nobody", "partition_indexes": [0]}],
        }
        return "write_txn_markers", 1, {"markers": [marker]}

    def describe_transactions(self):
        return "describe_transactions", 0, {"transactional_ids": self.some(TRANSACTION)}

    def list_transactions(self):
        fields = {"state_filters": [], "producer_id_filters": []}
        return "list_transactions", 0, fields

    def create_topics(self):
        rng = self.rng
        names = ["t-a", "t-new", "x-new", "nobody", *self.some(TOPIC)]
        rng.shuffle(names)
        topics = [
            {
                "name": name,
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
            for name in names[: rng.randint(1, 4)]
        ]
        if rng.random() < 0.1:
            topics[0]["name"] = "__cluster_metadata"
        fields = {"topics": topics, "timeout": TIME, "validate_only": True}
        return "create_topics", rng.choice((2, 4, 5, 7)), fields

    def delete_topics(self):
        rng = self.rng
        version = rng.choice((1, 5, 6))
        names = ["nobody", "t-never"]
        if version < 6:
            return "delete_topics", version, {"topic_names": names, "timeout": TIME}
        topics = [{"name": name, "topic_id": uuid.UUID(int=0)} for name in names]
        topics.append({"name": None, "topic_id": NO_ID})
        return "delete_topics", version, {"topics": topics, "timeout": TIME}

    def create_partitions(self):
        names = self.some(TOPIC)
        if self.rng.random() < 0.2:
            names.append(names[0])
        topics = [{"name": name, "count": 1, "assignments": None} for name in names]
        fields = {"topics": topics, "timeout": TIME, "validate_only": True}
        return "create_partitions", self.rng.choice((0, 3)), fields

    def elect_leaders(self):
        rng = self.rng
        named = [{"topic": name, "partitions": [0, 7]} for name in self.some(TOPIC)]
        fields = {"topic_partitions": named, "timeout": TIME}
        version = rng.choice((0, 1, 2))
        if version:
            fields["election_type"] = rng.choice((0, 1, 7))
        return "elect_leaders", version, fields

    def alter_partition_reassignments(self):
        rng = self.rng
        wanted = ([1], [], [1, 1], [9], None)
        topics = [
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "replicas": rng.choice(wanted)} for index in (0, 7)
                ],
            }
            for name in self.some(TOPIC)
        ]
        return "alter_partition_reassignments", 1, {"topics": topics, "timeout": TIME}

    def list_partition_reassignments(self):
        topics = [{"name": name, "partition_indexes": [0, 7]} for name in self.some(TOPIC)]
        return "list_partition_reassignments", 0, {"topics": topics, "timeout": TIME}

    def describe_quorum(self):
        name = self.rng.choice(("__cluster_metadata", "t-never"))
        topics = [{"topic_name": name, "partitions": [{"partition_index": 1}]}]
        return "describe_quorum", self.rng.choice((0, 1, 2)), {"topics": topics}

    def unregister_broker(self):
        return "unregister_broker", 0, {"broker_id": self.rng.choice((9, -1))}

    def update_features(self):
        update = {"feature": "transaction.version", "max_version_level": 2, "upgrade_type": 1}
        return "update_features", self.rng.choice((1, 2)), {"feature_updates": [update]}

    def resources(self):
        resources = [(2, name) for name in self.some(TOPIC)] + [(4, "1"), (32, "g-a"), (32, "h")]
        self.rng.shuffle(resources)
        return resources[: self.rng.randint(1, 4)]

    def describe_configs(self):
        resources = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": list(KEYS)}
            for kind, name in self.resources()
        ]
        return "describe_configs", self.rng.choice((1, 4)), {"resources": resources}

    def incremental_alter_configs(self):
        resources = [
            {"resource_type": kind, "resource_name": name, "configs": []}
            for kind, name in self.resources()
        ]
        fields = {"resources": resources, "validate_only": True}
        return "incremental_alter_configs", 1, fields

    def alter_configs(self):
        resources = [
            {"resource_type": kind, "resource_name": name, "configs": []}
            for kind, name in self.resources()
            if kind != 4
        ]
        fields = {"resources": resources, "validate_only": True}
        return "alter_configs", 2, fields

    def list_config_resources(self):
        return "list_config_resources", 1, {"resource_types": [32]}

    def describe_log_dirs(self):
        return "describe_log_dirs", self.rng.choice((1, 3, 4)), {"topics": []}

    def alter_replica_log_dirs(self):
        topics = [{"name": name, "partitions": [0]} for name in self.some(TOPIC)]
        fields = {"dirs": [{"path": "/nowhere", "topics": topics}]}
        return "alter_replica_log_dirs", self.rng.choice((1, 2)), fields

    def describe_user_scram_credentials(self):
        names = self.rng.choice((["alice"], ["alice", "bob"], ["alice", "alice"]))
        return "describe_user_scram_credentials", 0, {"users": [{"name": one} for one in names]}

    def alter_user_scram_credentials(self):
        deletions = [{"name": "nobody", "mechanism": 1}]
        return "alter_user_scram_credentials", 0, {"deletions": deletions, "upsertions": []}

    def describe_client_quotas(self):
        component = {"entity_type": "user", "match_type": 0, "match": "nobody"}
        return "describe_client_quotas", 1, {"components": [component], "strict": False}

    def alter_client_quotas(self):
        entity = [{"entity_type": "user", "entity_name": "nobody"}]
        ops = [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}]
        fields = {"entries": [{"entity": entity, "ops": ops}], "validate_only": True}
        return "alter_client_quotas", 1, fields

    def describe_acls(self):
        return "describe_acls", self.rng.choice((1, 3)), random_filter(self.rng)

    def create_acls(self):
        bad = random_acl(self.rng) | self.rng.choice(
            ({"resource_name": ""}, {"principal": "alice"}, {"resource_type": 4})
        )
        return "create_acls", 3, {"creations": [bad]}

    def delete_acls(self):
        nothing = random_filter(self.rng) | {"host_filter": "10.9.9.9"}
        return "delete_acls", 3, {"filters": [nothing]}


NOT_REQUESTS = {"some", "one", "id_of", "records", "resources"}
KINDS = tuple(
    name for name in vars(Requests) if not name.startswith("_") and name not in NOT_REQUESTS
)
