"""The longest requests of each API within the limits, for tests and benchmarks of the loop's turns.

Owns what "worst" means: as many elements as a request may have (200,000), and as many as fit below
the size from which a request is decoded in steps; names that are there, names that are not, and one
name very often. Knows the broker's message tables, since an oracle would encode for minutes.
"""

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.header import encode_request_header
from ottla.records.builder import build_batch
from ottla.records.record import Record

ELEMENTS = 190_000
SHORT_BYTES = 32_000
"""A request of so many bytes is decoded in one go."""
GROUP = "worst"


class Topics(NamedTuple):
    """The topics of the broker that is asked."""

    names: Sequence[str]
    ids: Sequence[bytes]
    partitions: int
    """Of each."""


class Request(NamedTuple):
    """A request, framed, and what it is called in a table."""

    api: str
    what: str
    frame: bytes


Parts = Callable[[int], Any]
Named = Callable[[int, list[Any]], Any]


def requests(
    topics: Topics, elements: int = ELEMENTS, only: Collection[tuple[str, str]] | None = None
) -> Iterator[Request]:
    """Give the requests, one by one: each may take a second to make.

    ``only``: those of an API's name and a title.
    """
    for name, make in _MAKERS:
        if only is not None and name not in {api for api, _ in only}:
            continue
        for size in ("long", "short"):
            for names in ("known", "unknown", "one"):
                if only is not None and not any(
                    (api, what[: len(size) + len(names) + 2]) == (name, f"{size} {names} ")
                    for api, what in only
                ):
                    continue
                wish = _Wish(topics, names, elements if size == "long" else elements // 4)
                for api, version, fields in make(wish):
                    what = f"{size} {names} v{version}"
                    if only is None or (api, what) in only:
                        yield _request(api, what, version, fields, size)
    for request in _whole():
        if only is None or (request.api, request.what) in only:
            yield request


def _request(api: str, what: str, version: int, fields: dict[str, Any], size: str) -> Request:
    frame = framed(api, version, fields)
    if size == "short" and len(frame) > SHORT_BYTES:
        fields, frame = _shortened(api, version, fields, len(frame))
    return Request(api, what, frame)


def _shortened(
    api: str, version: int, fields: dict[str, Any], size: int
) -> tuple[dict[str, Any], bytes]:
    """Leave out of the longest lists what does not fit."""
    frame = b""
    while size > SHORT_BYTES:
        share = SHORT_BYTES / size * 0.98
        fields = {name: _cut(value, share) for name, value in fields.items()}
        frame = framed(api, version, fields)
        size = len(frame)
    return fields, frame


def _cut(value: Any, share: float) -> Any:
    if not isinstance(value, list):
        return value
    if len(value) > 20:
        return value[: int(len(value) * share)]
    for one in value:
        for name in getattr(one, "__slots__", None) or vars(one):
            inner = getattr(one, name)
            if isinstance(inner, list):
                setattr(one, name, _cut(inner, share))
    return value


def framed(api: str, version: int, fields: dict[str, Any]) -> bytes:
    """Return one request with its length before it."""
    key = ApiKey[api]
    body = API_TABLE[key].request(**fields).encode(version)
    frame = encode_request_header(key, version, 7, "worst") + body
    return struct.pack(">i", len(frame)) + frame


class _Wish:
    """Which topics and partitions a request names, and how many."""

    def __init__(self, topics: Topics, names: str, elements: int) -> None:
        self.topics = topics
        self.kind = names
        self.elements = elements

    def table(self, key: ApiKey, path: str) -> Any:
        """Return the class of the elements of a field, given as ``topics.partitions``."""
        table: Any = API_TABLE[key].request
        for name in path.split("."):
            table = table.FIELDS[name].of
        return table

    def texts(self, known: Sequence[str] = ()) -> list[str]:
        """Return names: distinct ones, or one very often."""
        if self.kind == "one":
            return [known[0] if known else "x"] * self.elements
        if self.kind == "known" and known:
            return list(known)[: self.elements]
        return [f"u{number}" for number in range(self.elements)]

    def named(self, make_topic: Callable[[str, bytes, list[Any]], Any], make_part: Parts) -> Any:
        """Return topics with partitions, ``elements`` in all."""
        names, ids, count = self.topics
        if self.kind == "unknown":
            half = self.elements // 2
            return [
                make_topic(f"u{number}", number.to_bytes(16, "big"), [make_part(0)])
                for number in range(half)
            ]
        if self.kind == "one":  # Many that exist, each again and again.
            parts = [make_part(number % count) for number in range(self.elements)]
            return [make_topic(names[0], ids[0], parts)]
        found: list[Any] = []
        left = self.elements
        while left > 0:  # Again from the start when all are named.
            for name, topic_id in zip(names, ids, strict=True):
                if left <= 0:
                    break
                found.append(make_topic(name, topic_id, [make_part(i) for i in range(count)]))
                left -= count + 1
            if self.elements < len(names) * (count + 1) or self.kind == "known":
                break
        return found


Made = Iterator[tuple[str, int, dict[str, Any]]]


def _fetch(wish: _Wish) -> Made:
    topic, part = wish.table(ApiKey.FETCH, "topics"), wish.table(ApiKey.FETCH, "topics.partitions")

    def topics() -> Any:
        return wish.named(
            lambda name, topic_id, parts: topic(topic=name, topic_id=topic_id, partitions=parts),
            lambda index: part(partition=index, fetch_offset=0, partition_max_bytes=1 << 20),
        )

    common = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20}
    yield "FETCH", 12, {**common, "topics": topics()}
    yield "FETCH", 13, {**common, "topics": topics()}
    yield "FETCH", 13, {**common, "topics": topics(), "session_epoch": 0}


def _partitions(api: str, version: int, name: str, parts: str, index: str, **fixed: Any) -> Any:
    """Return a maker of requests that name topics and partitions in the ordinary way."""

    def make(wish: _Wish) -> Made:
        key = ApiKey[api]
        topic = wish.table(key, "topics")
        inner = wish.table(key, f"topics.{parts}")
        has_id = "topic_id" in topic.FIELDS

        def make_topic(text: str, topic_id: bytes, members: list[Any]) -> Any:
            ids = {"topic_id": topic_id} if has_id else {}
            return topic(**{name: text, parts: members, **ids})

        def make_part(number: int) -> Any:
            part_fields = fixed.get("part", {})
            return inner(**{index: number, **part_fields}) if index else number

        yield api, version, {
            "topics": wish.named(make_topic, make_part), **fixed.get("request", {})
        }  # fmt: skip

    return make


def _texts(api: str, version: int, field: str, **fields: Any) -> Any:
    def make(wish: _Wish) -> Made:
        known = [f"{GROUP}-{number}" for number in range(1000)]
        yield api, version, {field: wish.texts(known), **fields}

    return make


def _named_topics(api: str, version: int, field: str, **fields: Any) -> Any:
    def make(wish: _Wish) -> Made:
        table = wish.table(ApiKey[api], "topics")
        more = {"topic_id": b"\0" * 16} if "topic_id" in table.FIELDS else {}
        topics = [table(**{field: name, **more}) for name in wish.texts(wish.topics.names)]
        yield api, version, {"topics": topics, **fields}

    return make


def _configs(wish: _Wish) -> Made:
    table = wish.table(ApiKey.DESCRIBE_CONFIGS, "resources")
    resources = [
        table(resource_type=2, resource_name=name, configuration_keys=None)
        for name in wish.texts(wish.topics.names)
    ]
    more = {"include_synonyms": True, "include_documentation": True}
    yield "DESCRIBE_CONFIGS", 4, {"resources": resources, **more}
    groups = [
        table(resource_type=32, resource_name=name, configuration_keys=["none"])
        for name in wish.texts()[: len(resources) // 2]
    ]
    yield "DESCRIBE_CONFIGS", 4, {"resources": groups, **more}


def _alter_configs(wish: _Wish) -> Made:
    for api, version in (("ALTER_CONFIGS", 2), ("INCREMENTAL_ALTER_CONFIGS", 1)):
        key = ApiKey[api]
        table = wish.table(key, "resources")
        config = wish.table(key, "resources.configs")
        more = {"config_operation": 0} if "config_operation" in config.FIELDS else {}
        one = [config(name="retention.ms", value="1000", **more)]
        yield api, version, {
            "resources": [
                table(resource_type=2, resource_name=name, configs=one)
                for name in wish.texts(wish.topics.names)[: wish.elements // 2]
            ],
            "validate_only": True,
        }  # fmt: skip


def _offset_fetch(wish: _Wish) -> Made:
    key = ApiKey.OFFSET_FETCH
    group = wish.table(key, "groups")
    topic = wish.table(key, "groups.topics")
    topics = wish.named(
        lambda name, topic_id, parts: topic(name=name, topic_id=topic_id, partition_indexes=parts),
        int,
    )
    yield "OFFSET_FETCH", 9, {"groups": [group(group_id=f"{GROUP}-1", topics=topics)]}
    known = [f"{GROUP}-{number}" for number in range(1000)]
    yield (
        "OFFSET_FETCH",
        9,
        {"groups": [group(group_id=name, topics=None) for name in wish.texts(known)]},
    )


def _add_partitions(wish: _Wish) -> Made:
    key = ApiKey.ADD_PARTITIONS_TO_TXN
    topic = wish.table(key, "v3_and_below_topics")
    topics = wish.named(lambda name, _, parts: topic(name=name, partitions=parts), int)
    yield (
        "ADD_PARTITIONS_TO_TXN",
        3,
        {
            "v3_and_below_transactional_id": "worst",
            "v3_and_below_producer_id": 0,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": topics,
        },
    )
    table = wish.table(key, "transactions")
    yield (
        "ADD_PARTITIONS_TO_TXN",
        5,
        {
            "transactions": [
                table(
                    transactional_id=name,
                    producer_id=0,
                    producer_epoch=0,
                    verify_only=True,
                    topics=[],
                )
                for name in wish.texts()
            ]
        },
    )


def _markers(wish: _Wish) -> Made:
    key = ApiKey.WRITE_TXN_MARKERS
    marker, topic = wish.table(key, "markers"), wish.table(key, "markers.topics")
    fixed = {"producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    topics = wish.named(lambda name, _, parts: topic(name=name, partition_indexes=parts), int)
    yield "WRITE_TXN_MARKERS", 1, {"markers": [marker(producer_id=9, topics=topics, **fixed)]}
    yield (
        "WRITE_TXN_MARKERS",
        1,
        {"markers": [marker(producer_id=n, topics=[], **fixed) for n in range(wish.elements)]},
    )


def _alter_dirs(wish: _Wish) -> Made:
    key = ApiKey.ALTER_REPLICA_LOG_DIRS
    directory, topic = wish.table(key, "dirs"), wish.table(key, "dirs.topics")
    topics = wish.named(lambda name, _, parts: topic(name=name, partitions=parts), int)
    yield "ALTER_REPLICA_LOG_DIRS", 2, {"dirs": [directory(path="/nowhere", topics=topics)]}


def _describe_dirs(wish: _Wish) -> Made:
    topic = wish.table(ApiKey.DESCRIBE_LOG_DIRS, "topics")
    topics = wish.named(lambda name, _, parts: topic(topic=name, partitions=parts), int)
    yield "DESCRIBE_LOG_DIRS", 4, {"topics": topics}


def _leave(wish: _Wish) -> Made:
    table = wish.table(ApiKey.LEAVE_GROUP, "members")
    members = [table(member_id=name, group_instance_id=None) for name in wish.texts()]
    yield "LEAVE_GROUP", 4, {"group_id": f"{GROUP}-1", "members": members}


def _topics_to_make(wish: _Wish) -> Made:
    if wish.kind == "known":
        return
    key = ApiKey.CREATE_TOPICS
    topic = wish.table(key, "topics")
    placed = wish.table(key, "topics.assignments")
    config = wish.table(key, "topics.configs")
    plain = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    if wish.kind == "unknown":
        made = [topic(name=name, **plain) for name in wish.texts()]
        yield "CREATE_TOPICS", 7, {"topics": made, "validate_only": True}
        return
    configs = [config(name=f"c{number}", value="x") for number in range(wish.elements)]
    yield "CREATE_TOPICS", 6, {"topics": [topic(name="x", **{**plain, "configs": configs})]}
    chosen = [
        placed(partition_index=number, broker_ids=[1]) for number in range(wish.elements // 2)
    ]
    fixed = {"num_partitions": -1, "replication_factor": -1, "configs": []}
    yield (
        "CREATE_TOPICS",
        7,
        {"topics": [topic(name="x", assignments=chosen, **fixed)], "validate_only": True},
    )


def _partitions_to_make(wish: _Wish) -> Made:
    key = ApiKey.CREATE_PARTITIONS
    topic = wish.table(key, "topics")
    placed = wish.table(key, "topics.assignments")
    common = {"timeout_ms": 1000, "validate_only": True}
    if wish.kind == "one":
        chosen = [placed(broker_ids=[1]) for _ in range(wish.elements // 2)]
        made = [topic(name=wish.topics.names[0], count=len(chosen), assignments=chosen)]
    else:
        made = [
            topic(name=name, count=20, assignments=None) for name in wish.texts(wish.topics.names)
        ]
    yield "CREATE_PARTITIONS", 3, {"topics": made, **common}


def _topics_to_delete(wish: _Wish) -> Made:
    if wish.kind != "known":
        yield "DELETE_TOPICS", 5, {"topic_names": wish.texts(), "timeout_ms": 1000}


def _many_configs(wish: _Wish) -> Made:
    """Very many configs of one resource."""
    if wish.kind != "unknown":
        return
    for api, version in (("ALTER_CONFIGS", 1), ("INCREMENTAL_ALTER_CONFIGS", 0)):
        key = ApiKey[api]
        config = wish.table(key, "resources.configs")
        more = {"config_operation": 0} if "config_operation" in config.FIELDS else {}
        one = wish.table(key, "resources")(
            resource_type=4,
            resource_name="",
            configs=[config(name=name, value="1", **more) for name in wish.texts()],
        )
        yield api, version, {"resources": [one], "validate_only": True}
    table = wish.table(ApiKey.DESCRIBE_CONFIGS, "resources")
    asked = table(
        resource_type=2, resource_name=wish.topics.names[0], configuration_keys=wish.texts()
    )
    yield "DESCRIBE_CONFIGS", 3, {"resources": [asked]}


def _join(wish: _Wish) -> Made:
    table = wish.table(ApiKey.JOIN_GROUP, "protocols")
    protocols = [table(name=name, metadata=b"") for name in wish.texts()]
    times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 1000}
    joining = {"member_id": "", "protocol_type": "consumer", "protocols": protocols, **times}
    yield "JOIN_GROUP", 3, {"group_id": f"join-{wish.kind}-{wish.elements}", **joining}


def _sync(wish: _Wish) -> Made:
    table = wish.table(ApiKey.SYNC_GROUP, "assignments")
    given = [table(member_id=name, assignment=b"") for name in wish.texts()]
    whose = {"group_id": f"{GROUP}-1", "generation_id": 1, "member_id": "x"}
    yield "SYNC_GROUP", 3, {"assignments": given, **whose}


def _beat(wish: _Wish) -> Made:
    table = wish.table(ApiKey.CONSUMER_GROUP_HEARTBEAT, "topic_partitions")
    whose = {"group_id": f"beat-{wish.kind}-{wish.elements}", "member_id": "m"}
    joining = {**whose, "member_epoch": 0, "rebalance_timeout_ms": 1000, "topic_partitions": []}
    names = wish.texts(wish.topics.names)
    yield "CONSUMER_GROUP_HEARTBEAT", 1, {**joining, "subscribed_topic_names": names}
    owned = [
        table(topic_id=one.to_bytes(16, "big"), partitions=[0]) for one in range(wish.elements // 2)
    ]
    yield "CONSUMER_GROUP_HEARTBEAT", 0, {**whose, "member_epoch": 1, "topic_partitions": owned}


def _produce(wish: _Wish) -> Made:
    key = ApiKey.PRODUCE
    topic, part = wish.table(key, "topic_data"), wish.table(key, "topic_data.partition_data")
    records = bytes(build_batch([Record(timestamp=1, key=None, value=b"v")]))
    if wish.kind == "one" or wish.elements < 50_000:
        return
    made = wish.named(
        lambda name, topic_id, parts: topic(name=name, topic_id=topic_id, partition_data=parts),
        lambda index: part(index=index, records=records),
    )
    yield "PRODUCE", 9, {"acks": -1, "timeout_ms": 1000, "topic_data": made}
    empty = wish.named(
        lambda name, topic_id, parts: topic(name=name, topic_id=topic_id, partition_data=parts),
        lambda index: part(index=index, records=None),
    )
    yield "PRODUCE", 9, {"acks": -1, "timeout_ms": 1000, "topic_data": empty}


_COMMIT = {"committed_offset": 1, "committed_metadata": ""}
_NOBODY = {"group_id": f"{GROUP}-1", "member_id": ""}

_MAKERS = (
    ("FETCH", _fetch),
    ("LIST_OFFSETS", _partitions("LIST_OFFSETS", 6, "name", "partitions", "partition_index",
                part={"timestamp": -1}, request={"replica_id": -1})),
    ("LIST_OFFSETS", _partitions("LIST_OFFSETS", 7, "name", "partitions", "partition_index",
                part={"timestamp": 5}, request={"replica_id": -1})),
    ("OFFSET_FOR_LEADER_EPOCH", _partitions("OFFSET_FOR_LEADER_EPOCH", 4, "topic", "partitions",
                "partition",                 part={"leader_epoch": 0}, request={"replica_id": -1})),
    ("METADATA", _named_topics("METADATA", 12, "name", allow_auto_topic_creation=False)),
    ("DESCRIBE_TOPIC_PARTITIONS", _named_topics("DESCRIBE_TOPIC_PARTITIONS", 0, "name")),
    ("DELETE_RECORDS", _partitions("DELETE_RECORDS", 2, "name", "partitions", "partition_index",
                part={"offset": 0}, request={"timeout_ms": 1000})),
    ("DESCRIBE_CONFIGS", _configs),
    ("ALTER_CONFIGS", _alter_configs),
    ("ALTER_REPLICA_LOG_DIRS", _alter_dirs),
    ("DESCRIBE_LOG_DIRS", _describe_dirs),
    ("DESCRIBE_PRODUCERS", _partitions("DESCRIBE_PRODUCERS", 0, "name", "partition_indexes", "")),
    ("FIND_COORDINATOR", _texts("FIND_COORDINATOR", 4, "coordinator_keys", key_type=0)),
    ("OFFSET_COMMIT", _partitions("OFFSET_COMMIT", 9, "name", "partitions", "partition_index",
                part=_COMMIT, request=_NOBODY)),
    ("OFFSET_FETCH", _offset_fetch),
    ("OFFSET_DELETE", _partitions("OFFSET_DELETE", 0, "name", "partitions", "partition_index",
                request={"group_id": f"{GROUP}-1"})),
    ("LEAVE_GROUP", _leave),
    ("CONSUMER_GROUP_DESCRIBE", _texts("CONSUMER_GROUP_DESCRIBE", 1, "group_ids",
                include_authorized_operations=True)),
    ("DESCRIBE_GROUPS", _texts("DESCRIBE_GROUPS", 5, "groups")),
    ("DELETE_GROUPS", _texts("DELETE_GROUPS", 2, "groups_names")),
    ("LIST_GROUPS", _texts("LIST_GROUPS", 4, "states_filter")),
    ("LIST_TRANSACTIONS", _texts("LIST_TRANSACTIONS", 1, "state_filters", producer_id_filters=[])),
    ("DESCRIBE_TRANSACTIONS", _texts("DESCRIBE_TRANSACTIONS", 0, "transactional_ids")),
    ("ADD_PARTITIONS_TO_TXN", _add_partitions),
    ("TXN_OFFSET_COMMIT", _partitions("TXN_OFFSET_COMMIT", 3, "name", "partitions",
                "partition_index", part=_COMMIT,
                request={"transactional_id": "worst", "group_id": f"{GROUP}-1",
                                       "producer_id": 0, "producer_epoch": 0})),
    ("WRITE_TXN_MARKERS", _markers),
    ("CREATE_TOPICS", _topics_to_make),
    ("CREATE_PARTITIONS", _partitions_to_make),
    ("DELETE_TOPICS", _topics_to_delete),
    ("MANY_CONFIGS", _many_configs),
    ("JOIN_GROUP", _join),
    ("SYNC_GROUP", _sync),
    ("CONSUMER_GROUP_HEARTBEAT", _beat),
    ("PRODUCE", _produce),
)  # fmt: skip


def _whole() -> Iterator[Request]:
    """Give short requests whose answers hold everything there is."""
    for api, version, fields in (
        ("METADATA", 12, {"topics": None}),
        ("DESCRIBE_TOPIC_PARTITIONS", 0, {"topics": []}),
        ("DESCRIBE_LOG_DIRS", 4, {"topics": None}),
        ("LIST_GROUPS", 5, {"states_filter": [], "types_filter": []}),
        ("LIST_TRANSACTIONS", 1, {"state_filters": [], "producer_id_filters": []}),
        ("OFFSET_FETCH", 7, {"group_id": f"{GROUP}-1", "topics": None}),
    ):
        yield Request(api, f"all v{version}", framed(api, version, fields))
