"""Values and refusals as Apache Kafka 4.3 has them (its own texts, asked of a live one)."""

import pytest

from ottla.config import Config, InvalidConfig, Layer, Scope, Source, broker, log, topic
from ottla.config.broker import BROKER_TABLE
from ottla.config.topic import TOPIC_TABLE, segment_bytes, topic_config

DEFAULTS = Config(BROKER_TABLE)


NOT_LONG = "Not a number of type LONG"
SHAPE = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
REPLICAS = "leader.replication.throttled.replicas"
REPLICAS_WHY = (
    f"{REPLICAS} must be the literal '*' or a list of replicas in the following format: {SHAPE}"
)


@pytest.mark.parametrize(
    ("key", "text", "shown", "why"),
    [
        ("retention.ms", "abc", "abc", NOT_LONG),
        ("retention.ms", "1_000", "1_000", NOT_LONG),
        ("retention.ms", "", "", NOT_LONG),
        ("retention.ms", "-2", "-2", "Value must be at least -1"),
        ("segment.bytes", "99999999999", "99999999999", "Not a number of type INT"),
        ("segment.bytes", "10", "10", "Value must be at least 1048576"),
        ("cleanup.policy", "delete,x", "x", "String must be one of: compact, delete"),
        ("min.cleanable.dirty.ratio", "2", "2.0", "Value must be no more than 1"),
        ("compression.gzip.level", "0", "0", "Value must be between 1 and 9 or equal to -1"),
        ("preallocate", "maybe", "maybe", "Expected value to be either true or false"),
        (
            REPLICAS,
            "zz",
            "[zz]",
            REPLICAS_WHY,
        ),
    ],
)
def test_refusals_read_as_kafkas(key, text, shown, why):
    with pytest.raises(InvalidConfig) as caught:
        topic_config({key: text}, DEFAULTS)
    assert str(caught.value) == f"Invalid value {shown} for configuration {key}: {why}"


def test_an_unknown_name_reads_as_kafkas():
    with pytest.raises(InvalidConfig) as caught:
        topic_config({"nope.nope": "1"}, DEFAULTS)
    assert str(caught.value) == "Unknown topic config name: nope.nope"


@pytest.mark.parametrize(
    ("key", "text", "shown"),
    [
        ("retention.ms", " +5 ", "5"),
        ("preallocate", "TRUE", "true"),
        ("cleanup.policy", "delete, compact ,delete", "delete,compact"),
        ("cleanup.policy", "", ""),
        ("compression.type", " gzip ", "gzip"),
        ("min.cleanable.dirty.ratio", "1e-1", "0.1"),
        ("leader.replication.throttled.replicas", "0:1,1:2", "0:1,1:2"),
    ],
)
def test_values_are_shown_as_kafka_shows_them(key, text, shown):
    assert topic_config({key: text}, DEFAULTS).text(TOPIC_TABLE[key]) == shown


def test_a_topic_follows_its_broker_until_it_says_otherwise():
    node = Config(BROKER_TABLE, Layer(Source.STATIC_BROKER, {"log.retention.hours": "2"}))
    assert topic_config({}, node)[topic.RETENTION_MS] == 7_200_000
    assert topic_config({"retention.ms": "5"}, node)[topic.RETENTION_MS] == 5
    stronger = Config(
        BROKER_TABLE,
        Layer(Source.STATIC_BROKER, {"log.retention.hours": "2", "log.retention.ms": "-1"}),
    )
    assert topic_config({}, stronger)[topic.RETENTION_MS] == -1


def test_no_limit_in_hours_is_no_limit_in_milliseconds():
    node = Config(BROKER_TABLE, Layer(Source.STATIC_BROKER, {"log.retention.hours": "-1"}))
    assert topic_config({}, node)[topic.RETENTION_MS] == -1


def test_the_source_of_a_value_is_told():
    node = Config(BROKER_TABLE, Layer(Source.STATIC_BROKER, {"message.max.bytes": "99"}))
    config = topic_config({"retention.ms": "5"}, node)
    assert config.source(topic.RETENTION_MS) is Source.TOPIC
    assert config.source(topic.MAX_MESSAGE_BYTES) is Source.STATIC_BROKER
    assert config.source(topic.SEGMENT_BYTES) is Source.DEFAULT
    assert [(s.key, s.text) for s in config.settings(topic.MAX_MESSAGE_BYTES)] == [
        ("message.max.bytes", "99"),
        ("message.max.bytes", "1048588"),
    ]
    assert config.given() == {"retention.ms": "5"}


def test_the_strongest_layer_wins():
    config = Config(
        BROKER_TABLE,
        Layer(Source.DYNAMIC_BROKER, {"log.segment.bytes": "2097152"}),
        Layer(Source.STATIC_BROKER, {"log.segment.bytes": "3145728", "num.partitions": "4"}),
    )
    assert config[log.LOG_SEGMENT_BYTES] == 2 << 20
    assert config[broker.NUM_PARTITIONS] == 4
    assert config.source(log.LOG_SEGMENT_BYTES) is Source.DYNAMIC_BROKER


def test_contradicting_values_are_refused():
    with pytest.raises(
        InvalidConfig, match=r"min.compaction.lag.ms \(10\) > max.compaction.lag.ms"
    ):
        topic_config({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, DEFAULTS)


def test_tests_may_ask_for_small_segments():
    assert segment_bytes(topic_config({}, DEFAULTS)) == 1 << 30
    assert segment_bytes(topic_config({"internal.segment.bytes": "4096"}, DEFAULTS)) == 4096


def test_durable_by_default():
    assert topic_config({}, DEFAULTS)[topic.FLUSH_MESSAGES] == 1


def test_every_default_passes_its_own_check():
    for option in (*BROKER_TABLE, *TOPIC_TABLE):
        if option.default is not None and option.default != ():
            assert option.parse(DEFAULTS.text(option) or "") == option.default, option.key
        assert option.doc.endswith((".", ":")), option.key
        assert (option.scope is Scope.TOPIC) == (
            option.key in TOPIC_TABLE._by_key and option in list(TOPIC_TABLE)
        )


def test_listeners_are_read():
    assert broker.LISTENERS.parse("PLAINTEXT://[::1]:0")[0].host == "::1"
    for bad in (
        "9092",
        "PLAINTEXT://h",
        "PLAINTEXT://h:70000",
        "A.B://h:1",
        "PLAINTEXT://::1:9092",
        "",
    ):
        with pytest.raises(InvalidConfig):
            broker.LISTENERS.parse(bad)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        (broker.LISTENERS, "PLAINTEXT://:9092, plaintext://x:1"),
        (broker.LISTENERS, "PLAINTEXT://:9092,INSIDE://:9092"),
        (broker.ADVERTISED_LISTENERS, "PLAINTEXT://:9092, plaintext://x:1"),
    ],
)
def test_listeners_that_would_take_each_others_clients_are_refused(option, text):
    with pytest.raises(InvalidConfig, match="Each listener must have a different"):
        option.parse(text)
