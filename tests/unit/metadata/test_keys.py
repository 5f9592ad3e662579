"""Keys are made in one place and read back; values are checked."""

import json

import pytest

from ottla.ids import LeaderEpoch, NodeId, TopicId
from ottla.metadata import values
from ottla.metadata.keys import ConfigType, KeyKind, Keys, Place
from ottla.metadata.store import check_key
from ottla.metadata.values import (
    BrokerState,
    BrokerValue,
    KnownBrokerValue,
    ListenerAddress,
    MetaValue,
    PartitionState,
    TopicValue,
    UnreadableValue,
)

ID = TopicId(bytes(range(240, 256)))
KEYS = Keys("prod")


@pytest.mark.parametrize(
    ("key", "spelled", "place"),
    [
        (KEYS.meta, "/ottla/prod/meta", Place(KeyKind.META)),
        (KEYS.controller, "/ottla/prod/controller", Place(KeyKind.CONTROLLER)),
        (KEYS.controller_epoch, "/ottla/prod/controller_epoch", Place(KeyKind.CONTROLLER_EPOCH)),
        (KEYS.producer_id_block, "/ottla/prod/pid_block", Place(KeyKind.PRODUCER_ID_BLOCK)),
        (KEYS.live_broker(3), "/ottla/prod/brokers/live/3", Place(KeyKind.LIVE_BROKER, number=3)),
        (
            KEYS.known_broker(3),
            "/ottla/prod/brokers/known/3",
            Place(KeyKind.KNOWN_BROKER, number=3),
        ),
        (KEYS.topic("a.b_c-1"), "/ottla/prod/topics/a.b_c-1", Place(KeyKind.TOPIC, name="a.b_c-1")),
        (
            KEYS.topic_id(ID),
            "/ottla/prod/topic_ids/8PHy8_T19vf4-fr7_P3-_w",
            Place(KeyKind.TOPIC_ID, topic_id=ID),
        ),
        (
            KEYS.partition(ID, 12),
            "/ottla/prod/p/8PHy8_T19vf4-fr7_P3-_w/12",
            Place(KeyKind.PARTITION, number=12, topic_id=ID),
        ),
        (
            KEYS.config(ConfigType.TOPIC, "orders"),
            "/ottla/prod/config/topic/orders",
            Place(KeyKind.CONFIG, name="orders", config_type=ConfigType.TOPIC),
        ),
        (
            KEYS.config(ConfigType.BROKER, ""),
            "/ottla/prod/config/broker/<default>",
            Place(KeyKind.CONFIG, name="", config_type=ConfigType.BROKER),
        ),
        (
            KEYS.config(ConfigType.USER, "<default>"),
            "/ottla/prod/config/user/%3Cdefault%3E",
            Place(KeyKind.CONFIG, name="<default>", config_type=ConfigType.USER),
        ),
        (
            KEYS.config(ConfigType.USER, "../é/x"),
            "/ottla/prod/config/user/..%2F%C3%A9%2Fx",
            Place(KeyKind.CONFIG, name="../é/x", config_type=ConfigType.USER),
        ),
    ],
)
def test_keys_are_spelled_and_read_back(key, spelled, place):
    assert key == spelled
    check_key(key)
    assert KEYS.place(key) == place


@pytest.mark.parametrize(
    "key",
    [
        "/ottla/other/meta",
        "/ottla/prod/",
        "/ottla/prod/future/thing",
        "/ottla/prod/p/short/1",
        "/ottla/prod/p/8PHy8_T19vf4-fr7_P3-_w/x",
        "/ottla/prod/p/8PHy8_T19vf4-fr7_P3-_w/-1",
        "/ottla/prod/p/8PHy8_T19vf4-fr7_P3-_w",
        "/ottla/prod/brokers/live/",
        "/ottla/prod/config/gadget/x",
        "/ottla/prod/topics/",
    ],
)
def test_unknown_keys_are_of_the_kind_other(key):
    assert KEYS.place(key).kind is KeyKind.OTHER


def test_a_topics_partitions_share_a_prefix():
    assert KEYS.partition(ID, 7).startswith(KEYS.topic_partitions(ID))


STATE = PartitionState(
    replicas=(NodeId(1), NodeId(2)),
    isr=(NodeId(2),),
    leader=NodeId(2),
    leader_epoch=LeaderEpoch(5),
    partition_epoch=9,
    adding=(NodeId(3),),
    removing=(NodeId(1),),
    unclean=True,
)
BROKER = BrokerValue(
    host="h",
    port=9092,
    rack="r1",
    listeners=(ListenerAddress("PLAINTEXT", "h", 9092), ListenerAddress("SSL", "h", 9093)),
    incarnation="abc",
    state=BrokerState.DRAINING,
)
ROUND_TRIPS = [
    ("meta", MetaValue("cluster-1")),
    ("controller", NodeId(3)),
    ("number", 17),
    ("name", "orders"),
    ("topic", TopicValue(ID, 6)),
    ("topic", TopicValue(ID, 8, grown_from=6)),
    ("partition", STATE),
    ("partition", STATE._replace(elr=(NodeId(1),))),
    ("partition", STATE._replace(left=(NodeId(4),))),
    ("broker", BROKER),
    ("broker", BrokerValue("h", 1)),
    ("broker", BrokerValue("h", 1, is_full=True)),
    ("known_broker", KnownBrokerValue({"d1": "/data 1", "d2": "/never"})),
    ("config", {"retention.ms": "1000", "cleanup.policy": "compact"}),
]


@pytest.mark.parametrize(("kind", "value"), ROUND_TRIPS)
def test_values_are_read_back(kind, value):
    data = getattr(values, f"encode_{kind}")(value)
    assert getattr(values, f"decode_{kind}")(data) == value
    assert json.loads(data)["v"] == 1
    assert b" " not in data.replace(b"/data 1", b"")


@pytest.mark.parametrize(("kind", "value"), ROUND_TRIPS)
def test_unknown_fields_are_tolerated_and_unknown_versions_refused(kind, value):
    fields = json.loads(getattr(values, f"encode_{kind}")(value))
    decode = getattr(values, f"decode_{kind}")
    assert decode(json.dumps({**fields, "of_the_future": [1]}).encode()) == value
    with pytest.raises(UnreadableValue, match="version 2"):
        decode(json.dumps({**fields, "v": 2}).encode())
    for name in fields:
        missing = {key: field for key, field in fields.items() if key != name}
        if name not in {"rack", "grown_from", "elr", "left", "full"}:
            with pytest.raises(UnreadableValue, match=name):
                decode(json.dumps(missing).encode())
        for wrong in (5 if isinstance(fields[name], bool) else True, {"x": 1}, [None], -7):
            with pytest.raises(UnreadableValue, match=name):
                decode(json.dumps({**fields, name: wrong}).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"1", b"\xff\xfe", b"null", b"[" * 100_000])
def test_garbage_is_refused(data):
    for kind, _ in ROUND_TRIPS:
        with pytest.raises(UnreadableValue):
            getattr(values, f"decode_{kind}")(data)
