"""Random requests, mostly sensible: filled by the fields' names from small pools.

A pool is a function of the rng and the script. What a schema's field is not named in, gets a value
by its type.
"""

import dataclasses
import typing

from tests.campaigns.beside.references import (
    UNKNOWN_ID,
    Batch,
    MemberOf,
    ProducerOf,
    Session,
    TopicIdOf,
)
from tools.wire_client import _api

ODD = 0.06
"""How often a value is one that makes no sense."""
ODD_NUMBERS = (-1, -2, 7, 1000, 2**31 - 1, -(2**31))
ODD_NAMES = ("", ".", "..", "a b", "é", "x" * 250)

CONFIGS = {
    "retention.ms": ("1000000", "-1", "-2", "x", "", None),
    "cleanup.policy": ("compact", "delete", "compact,delete", "", "delete,delete", "other", None),
    "max.message.bytes": ("1000", "0", "-1", "2000000", "99999999999", None),
    "compression.type": ("producer", "gzip", "none", "uncompressed", "lz5", None),
    "compression.gzip.level": ("1", "9", "10", "-1", "0", None),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime", None),
    "min.insync.replicas": ("1", "2", "0", None),
    "segment.bytes": ("1048576", "10", "14", None),
    "segment.ms": ("1", "0", "100000", None),
    "min.cleanable.dirty.ratio": ("0.5", "1", "1.1", "-0.1", "nan", None),
    "unclean.leader.election.enable": ("true", "false", "TRUE", "yes", None),
    "leader.replication.throttled.replicas": ("*", "0:1", "x", "", None),
    "local.retention.ms": ("-2", "-1", "1", None),
    "remote.storage.enable": ("false", "true", None),
    "flush.messages": ("1", "0", "10", None),
    "no.such.config": ("1", None),
    "": ("1",),
}
GROUP_CONFIGS = {
    "consumer.session.timeout.ms": ("45000", "1", "60000", "60001", None),
    "consumer.heartbeat.interval.ms": ("5000", "4999", "15001", "x", None),
    "retention.ms": ("1", None),
}
BROKER_CONFIGS = {
    "log.retention.ms": ("1000000", "x", "-5", None),
    "message.max.bytes": ("1000000", "-1", None),
    "log.dirs": ("/x", None),
    "max.connections": ("1000", "x", None),
    "no.such.config": ("1", None),
}


class Script:
    """What one run of requests is about: its names, and how far each producer is."""

    def __init__(self, rng, name):
        self.rng = rng
        self.topics = [f"{name}-t{number}" for number in range(4)]
        self.groups = [f"{name}-g{number}" for number in range(3)]
        self.producers = [f"{name}-x{number}" for number in range(3)]
        self.idle = f"{name}-idle"
        """A producer without a transactional id."""
        self.sequences = {}

    def pick(self, *values):
        return self.rng.choice(values)

    def odd(self):
        return self.rng.random() < ODD

    def topic(self):
        if self.odd():
            return self.pick(*ODD_NAMES, self.topics[0].upper(), self.topics[0].replace("-", "."))
        return self.pick(*self.topics[:2], *self.topics)

    def partition(self):
        return self.pick(*ODD_NUMBERS) if self.odd() else self.pick(0, 0, 0, 1, 1, 2)

    def group(self):
        return self.pick("", "é", self.producers[0]) if self.odd() else self.pick(*self.groups)

    def producer(self):
        return self.pick("", "nobody") if self.odd() else self.pick(*self.producers)

    def offset(self):
        return self.pick(*ODD_NUMBERS, -3) if self.odd() else self.rng.randrange(12)

    def config(self, table):
        name = self.pick(*table)
        return name, self.pick(*table[name])


NUMBERS = {
    "num_partitions": (1, 1, 2, 3, -1, 0, -2),
    "replication_factor": (1, 1, -1, -1, 2, 0, -2),
    "count": (1, 2, 3, 4, 0, -1),
    "broker_ids": (1, 1, 1, 2, -1),
    "replicas": (1, 1, 1, 2),
    "timestamp": (-1, -2, -3, -4, -5, -6, 0, 1_700_000_000_000, 1_700_000_000_003, 2**62),
    "isolation_level": (0, 1),
    "acks": (-1, 1),
    "leader_epoch": (0, 0, 1, -1, 5),
    "current_leader_epoch": (-1, -1, 0, 1),
    "last_fetched_epoch": (-1, -1, 0, 1),
    "committed_leader_epoch": (-1, 0, 3),
    "min_bytes": (0, 1),
    "max_bytes": (2**20, 2**20, 100, 1, 0),
    "partition_max_bytes": (2**20, 2**20, 100, 1, 0),
    "log_start_offset": (-1, 0),
    "resource_type": (2, 2, 2, 2, 2, 4, 32),
    "resource_types": (2, 4, 8, 16, 32, 1, 99),
    "config_operation": (0, 0, 1, 2, 3),
    "key_type": (0, 0, 1, 2, 3),
    "endpoint_type": (1, 1, 2, 3),
    "election_type": (0, 1, 2),
    "generation_id": (-1, -1, 0, 1),
    "generation_id_or_member_epoch": (-1, -1, -1, 0, 1),
    "member_epoch": (-1, -1, 0, 1, -2),
    "match_type": (0, 1, 2, 3),
    "mechanism": (1, 2, 0, 3),
    "iterations": (4096, 8192, 4095, 16384, 16385, 0),
    "coordinator_epoch": (0, 1, -1),
    "max_version_level": (0, 1, 2, 17, 99),
    "upgrade_type": (1, 2, 3, 0),
    "response_partition_limit": (2000, 1, 2, 0, -1),
    "broker_id": (1, 2, 3),
    "transaction_timeout": (60_000, 60_000, 0, -1, 900_001),
    "duration_filter": (-1, -1, 0, 1_000_000),
    "producer_id_filters": (-1, 0),
    "session_epoch": (-1, -1, 0, 1, 2),
    "retention_time": (-1, 60_000),
    "pattern_type_filter": (3, 1, 2, 4, 0),
    "resource_pattern_type": (3, 4, 1),
    "resource_type_filter": (1, 2, 3, 4, 0),
    "operation": (1, 2, 3, 4, 0),
    "permission_type": (1, 2, 3, 0),
}
TEXTS = {
    "metadata": (None, "", "m", "x" * 5000),
    "committed_metadata": (None, "", "m", "é" * 10, "x" * 4097),
    "states_filter": ("Empty", "stable", "Stable", "Dead", "nonsense", ""),
    "types_filter": ("consumer", "Classic", "share", "streams", "nonsense"),
    "state_filters": ("Ongoing", "Empty", "CompleteCommit", "CompleteAbort", "nonsense", ""),
    "transactional_id_pattern": (None, "", ".*x0", "(", "a{1,}"),
    "entity_type": ("user", "client-id", "ip", "nonsense", ""),
    "entity_name": (None, "alice", "127.0.0.1", "", "nowhere.invalid"),
    "match": (None, "alice", ""),
    "key": (
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "connection_creation_rate",
        "controller_mutation_rate",
        "nonsense",
    ),
    "feature": ("metadata.version", "group.version", "transaction.version", "nonsense"),
    "principal": ("User:alice", "User:*", "alice", ""),
    "host": ("*", "127.0.0.1", ""),
    "configuration_keys": ("retention.ms", "cleanup.policy", "no.such.config", "log.dirs"),
    "protocol_type": ("consumer", "consumer", "connect", ""),
    "protocol_name": ("range", None),
    "server_assignor": (None, "uniform", "range", "nonsense"),
    "subscribed_topic_regex": (None, "", ".*t0", "("),
    "client_software_name": ("x", ""),
    "path": ("/nowhere",),
    "rack_id": ("", "r"),
}
NAMING = (
    "name",
    "topic",
    "topic_id",
    "topic_name",
    "partition",
    "partition_index",
    "index",
    "resource_name",
    "group_id",
    "producer_id",
)
"""What tells an element of a list from others."""
TRIPLES = (
    ("transactional_id", "producer_id", "producer_epoch"),
    (
        "v3_and_below_transactional_id",
        "v3_and_below_producer_id",
        "v3_and_below_producer_epoch",
    ),
)


def request_of(script, api, version):
    """Return the fields of a random request, with references."""
    schema, _, _ = _api(api, version)
    return _struct(script, api, schema)


def _struct(script, api, schema):
    rng = script.rng
    hints = typing.get_type_hints(schema)
    fields = {}
    for field in dataclasses.fields(schema):
        if field.name.startswith("__"):
            continue
        kind = field.metadata.get("kafka_type", "")
        fields[field.name] = _value(script, api, field.name, kind, hints[field.name])
    for names in TRIPLES:
        if names[1] in fields:
            _producer(script, fields, names)
    if "configs" in fields and "resource_type" in fields:
        _resource(script, fields)
    if api == "metadata" and "topics" in fields and not fields["topics"]:
        fields["topics"] = [_struct(script, api, _nested(hints["topics"]))]
    if api == "metadata" and fields.get("topic_id") is not None:
        fields["name"] = script.topic() if rng.random() < 0.3 else None
    if "assignments" in fields and "num_partitions" in fields:
        _topic(script, fields)
    if api == "alter_user_scram_credentials" and "salted_password" in fields:
        fields |= {"salt": b"salt", "salted_password": b"p" * rng.choice((32, 64, 64, 3))}
    return fields


def _producer(script, fields, names):
    """Let the three fields speak of one producer, mostly."""
    producer = script.pick(*script.producers, script.idle)
    id_name, number, epoch = names
    known = producer if id_name in fields else script.idle
    plus = script.pick(-1, 1, 5) if script.odd() else 0
    if id_name in fields:
        fields[id_name] = producer if producer != script.idle else script.producer()
        known = fields[id_name]
    fields[number] = ProducerOf(known, "id", 1 if script.odd() else 0)
    fields[epoch] = ProducerOf(known, "epoch", plus)


def _topic(script, fields):
    """Let a topic to be made be one that can be, mostly."""
    if script.rng.random() < 0.8:
        fields["assignments"] = []
    else:
        fields |= {"num_partitions": -1, "replication_factor": -1}
        for number, one in enumerate(fields["assignments"] if not script.odd() else ()):
            one |= {"partition_index": number, "broker_ids": [1]}
    for config in fields["configs"]:
        config["name"], config["value"] = script.config(CONFIGS)
        if config["value"] is None and not script.odd():
            config |= {"name": "retention.ms", "value": "5000000"}
    fields["configs"] = [*{one["name"]: one for one in fields["configs"]}.values()]


def _resource(script, fields):
    kinds = {2: CONFIGS, 32: GROUP_CONFIGS, 4: BROKER_CONFIGS}
    table = kinds.get(fields["resource_type"], CONFIGS)
    names = {2: script.topic, 32: script.group, 4: lambda: script.pick("1", "", "2", "x")}
    fields["resource_name"] = names.get(fields["resource_type"], script.topic)()
    for config in fields["configs"] or ():
        config["name"], config["value"] = script.config(table)
    if fields["configs"]:
        fields["configs"] = [*{one["name"]: one for one in fields["configs"]}.values()]


def _value(script, api, name, kind, hint):
    rng = script.rng
    text = str(hint)
    is_nullable = "None" in text and kind != "uuid"
    nested = _nested(hint)
    if "tuple" in text:
        if is_nullable and rng.random() < 0.25:
            return None
        made = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            one = _one(script, api, name, kind, nested)
            if not any(_is_same(one, other) for other in made):
                made.append(one)
        return made
    if nested is not None:
        if is_nullable and rng.random() < 0.7:
            return None
        return _struct(script, api, nested)
    return _one(script, api, name, kind, None, is_nullable=is_nullable)


def _is_same(one, other):
    """Tell whether two elements are about one thing: brokers may answer these as they like."""
    if not isinstance(one, dict):
        return one == other
    return all(one.get(name) == other.get(name) for name in one if name in NAMING)


def _nested(hint):
    if dataclasses.is_dataclass(hint):
        return hint
    for argument in typing.get_args(hint):
        found = _nested(argument)
        if found is not None:
            return found
    return None


def _one(script, api, name, kind, nested, *, is_nullable=False):
    rng = script.rng
    if nested is not None:
        return _struct(script, api, nested)
    if kind == "uuid":
        return UNKNOWN_ID if script.odd() else TopicIdOf(script.topic())
    if kind == "records":
        return _records(script)
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.choice((1.0, 1000.0, 0.5, 0.0, -1.0, 1e300))
    if kind == "string":
        return _text(script, api, name, is_nullable=is_nullable)
    if kind == "bytes":
        return rng.choice((b"", b"m"))
    return _number(script, name)


def _text(script, api, name, *, is_nullable):
    if name in TEXTS:
        return script.pick(*TEXTS[name])
    if name == "resource_name":
        return script.topic()
    if name in ("name", "topic", "topic_name", "topics", "topic_names", "subscribed_topic_names"):
        if api == "create_topics" and name == "name":
            return script.topic()
        if "scram" in api:
            return script.pick("alice", "bob", "")
        return script.topic()
    if name in ("group_id", "groups", "groups_names", "group_ids"):
        return script.group()
    if name == "coordinator_keys":
        return script.pick(*script.groups, *script.producers, "")
    if "transactional_id" in name:
        if is_nullable and script.rng.random() < 0.3:
            return None
        return script.producer()
    if name == "member_id":
        if is_nullable:
            return None
        return script.pick("", "", "nobody") if script.rng.random() < 0.9 else MemberOf("", 0)
    if is_nullable:
        return None
    return ""


def _number(script, name):
    rng = script.rng
    if name in NUMBERS:
        return rng.choice(NUMBERS[name])
    if "partition" in name or name == "index":
        return script.partition()
    if "offset" in name:
        return script.offset()
    if name == "timeout" or name.endswith("_timeout"):
        return rng.choice((10_000, 30_000))
    if name == "max_wait":
        return rng.choice((0, 0, 10))
    if name == "replica_id":
        return -1
    if name == "session_id":
        return Session("")
    return rng.choice((0, 1, -1))


def _records(script):
    rng = script.rng
    odd = rng.random()
    fields = {"values": [b"v%d" % number for number in range(rng.choice((1, 1, 2, 5)))]}
    if odd < 0.2:
        fields |= rng.choice(
            (
                {"crc": 1},
                {"count": 9},
                {"last_offset_delta": 7},
                {"base_offset": 5},
                {"base_timestamp": -1},
                {"base_timestamp": 2**62},
                {"keys": [b"k"] * len(fields["values"])},
            )
        )
    return Batch(tuple(fields.items()))


def produce_of(script, version, *, is_transactional):
    """Return a Produce of one batch by an idempotent or transactional producer, and its place."""
    rng = script.rng
    producer = script.pick(*script.producers) if is_transactional else script.idle
    topic, partition = script.topic(), script.partition()
    place = (producer, topic, partition)
    count = rng.choice((1, 1, 2))
    sequence = script.sequences.get(place, 0)
    jump = rng.choice((0, 0, 0, 0, 0, 0, -1, 1, -count)) if rng.random() < 0.3 else 0
    sequence = max(sequence + jump, 0)
    attributes = 0x10 if is_transactional and not script.odd() else 0
    fields = (
        ("values", [b"p%d" % number for number in range(count)]),
        ("attributes", attributes),
        ("producer_id", ProducerOf(producer, "id")),
        (
            "producer_epoch",
            ProducerOf(producer, "epoch", rng.choice((-1, 1)) if script.odd() else 0),
        ),
        ("base_sequence", sequence),
    )
    named = {"index": partition, "records": Batch(fields)}
    where = {"topic_id": TopicIdOf(topic)} if version >= 13 else {"name": topic}
    request = {
        "transactional_id": producer if is_transactional else None,
        "acks": rng.choice((-1, -1, -1, 1)),
        "timeout": 10_000,
        "topic_data": [where | {"partition_data": [named]}],
    }
    return request, place, sequence + count
