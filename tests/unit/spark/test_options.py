"""The options of format("ottla")."""

import pickle
from pathlib import Path

import pytest

from ottla.client.wire.settings import Address
from ottla.ids import TopicPartition
from ottla.spark.connection import FETCH, OptionError
from ottla.spark.offsets import EARLIEST, LATEST, Bound
from ottla.spark.option_table import COLUMNS, Use, table
from ottla.spark.options import TriggerOptions, parse_options

GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


def test_the_least_one_must_say():
    options = parse_options(GIVEN, Use.BATCH)
    assert options.client.bootstrap == (Address("h", 1),)
    assert options.topics == ("a",)
    assert options.partitions == ()
    assert options.starting == Bound("startingOffsets", EARLIEST)
    assert options.ending == Bound("endingOffsets", LATEST)
    assert options.columns == COLUMNS
    assert options.fail_on_data_loss
    assert options.fetch == FETCH
    assert options.trigger == TriggerOptions(None, None, 900_000)
    assert options.settings(retry_timeout_ms=options.first_retry_ms).awaits_cluster
    assert (options.first_retry_ms, options.later_retry_ms, options.read_retry_ms) == (
        3_000,
        60_000,
        60_000,
    )


def test_a_stream_starts_at_the_end_unless_told():
    assert parse_options(GIVEN, Use.STREAM).starting == Bound("startingOffsets", LATEST)
    options = parse_options(GIVEN | {"startingOffsets": "earliest"}, Use.STREAM)
    assert options.starting == Bound("startingOffsets", EARLIEST)


def test_names_have_any_case():
    options = parse_options(
        {"bootstrap.servers": "h:1,i:2", "SUBSCRIBE": "a, b,a", "includeheaders": "TRUE"}
    )
    assert options.client.bootstrap == (Address("h", 1), Address("i", 2))
    assert options.topics == ("a", "b")
    assert options.columns == (*COLUMNS, "headers")


def test_assign_names_partitions():
    options = parse_options({"bootstrap.servers": "h:1", "assign": '{"a": [2]}'})
    assert options.partitions == (TopicPartition("a", 2),)
    assert options.topics == ()


def test_a_pattern_is_kept_as_it_is():
    assert parse_options({"bootstrap.servers": "h:1", "subscribePattern": "a.*"}).pattern == "a.*"


def test_timestamps_go_before_offsets_and_the_one_for_all_before_those_for_each():
    many = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"a": {"0": 7}}',
        "endingTimestamp": "9",
    }
    options = parse_options(GIVEN | many)
    assert options.starting.timestamps_ms == {TopicPartition("a", 0): 7}
    assert options.ending.timestamp_ms == 9
    options = parse_options(GIVEN | many | {"startingTimestamp": "5"})
    assert options.starting == Bound("startingTimestamp", timestamp_ms=5)


def test_columns_are_those_asked_for_in_that_order():
    assert parse_options(GIVEN | {"columns": "value, KEY"}).columns == ("value", "key")
    options = parse_options(GIVEN | {"columns": "timestamptype,headers"})
    assert options.columns == ("timestampType", "headers")
    assert options.include_headers


def test_settings_of_a_consumer_are_ours_where_they_mean_something():
    options = parse_options(
        GIVEN
        | {
            "kafka.client.id": "mine",
            "kafka.request.timeout.ms": "7000",
            "kafka.isolation.level": "read_committed",
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.fetch.max.bytes": "2000",
            "kafka.max.poll.records": "5",
            "kafka.group.id": "g",
            "kafka.security.protocol": "PLAINTEXT",
        }
    )
    assert options.client.client_id == "mine"
    assert options.client.request_timeout_ms == 7000
    assert options.read_committed
    assert (options.fetch.partition_max_bytes, options.fetch.max_bytes) == (1000, 2000)


def test_security_is_the_clients_business_and_no_secret_is_shown():
    secret = 'a.b.PlainLoginModule required username="u" password="hush";'
    options = parse_options(
        GIVEN
        | {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": secret,
        }
    )
    assert options.client.security != parse_options(GIVEN).client.security
    assert "hush" not in repr(options)


def test_retries_are_as_long_as_the_connectors_options_say():
    given = {"fetchOffset.numRetries": "5", "fetchOffset.retryIntervalMs": "10"}
    options = parse_options(GIVEN | given)
    assert (options.first_retry_ms, options.later_retry_ms) == (50, 50)
    options = parse_options(GIVEN | {"kafkaConsumer.pollTimeoutMs": "7"})
    assert options.read_retry_ms == 7
    options = parse_options(GIVEN | {"kafka.default.api.timeout.ms": "9"})
    assert (options.first_retry_ms, options.read_retry_ms) == (9, 9)


def test_triggers_have_their_limits():
    given = {"maxOffsetsPerTrigger": "10", "minOffsetsPerTrigger": "3", "maxTriggerDelay": "30s"}
    assert parse_options(GIVEN | given, Use.STREAM).trigger == TriggerOptions(10, 3, 30_000)
    assert parse_options(GIVEN | {"maxTriggerDelay": "70"}).trigger.max_delay_ms == 70


def test_options_travel_to_executors():
    options = parse_options(GIVEN | {"startingOffsets": '{"a": {"0": 1}}'})
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "h:x"}, "option kafka.bootstrap.servers: expected host:port"),
        ({"subscribe": "a,,b"}, "an empty topic name"),
        ({"assign": '{"a": [0]}'}, "exactly one of"),
        ({"subscribePattern": "a"}, "exactly one of"),
        ({"startingOffsets": "latest"}, "option startingOffsets: 'latest' makes no sense"),
        ({"endingOffsets": "earliest"}, "option endingOffsets: 'earliest' makes no sense"),
        ({"endingOffsets": "{"}, "option endingOffsets: expected"),
        ({"startingTimestamp": "noon"}, "option startingTimestamp: expected milliseconds"),
        ({"endingOffsetsByTimestamp": "{}"}, "option endingOffsetsByTimestamp: expected JSON"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "Strategy is error or latest, not 'x'"),
        ({"includeHeaders": "yes"}, "true or false, not 'yes'"),
        ({"failOnDataLoss": "no"}, "option failOnDataLoss is true or false, not 'no'"),
        ({"minPartitions": "0"}, "option minPartitions is a whole number from 1 on, not '0'"),
        ({"maxRecordsPerPartition": "x"}, "option maxRecordsPerPartition is a whole number"),
        (
            {"minRecordsPerPartition": "9", "minPartitions": "2"},
            "option minRecordsPerPartition makes fewer tasks, minPartitions more",
        ),
        ({"maxOffsetsPerTrigger": "-1"}, "option maxOffsetsPerTrigger is a whole number"),
        ({"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "2"}, r"\(2\) is above .*\(1\)"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay: "),
        ({"columns": "key,valuex"}, "no column 'valuex'; did you mean value?"),
        ({"columns": ""}, "no column ''"),
        ({"columns": "key,KEY"}, "a column is named twice"),
        ({"group.id": "g"}, "option group.id has a meaning in a streaming query only"),
        ({"startingOfset": "earliest"}, "did you mean startingOffsets?"),
        ({"zebra": "1"}, "unknown option 'zebra'.*there are kafka.bootstrap.servers, "),
        ({"kafka.zebra": "1"}, "unknown option 'kafka.zebra'.*no setting of a Kafka consumer"),
        ({"kafka.isolation.levelx": "1"}, "did you mean kafka.isolation.level?"),
        ({"kafka.isolation.level": "x"}, "is read_committed or read_uncommitted, not 'x'"),
        ({"kafka.fetch.max.bytes": "x"}, "option kafka.fetch.max.bytes is a whole number"),
        ({"kafka.request.timeout.ms": "x"}, "option kafka.request.timeout.ms: .*'x'"),
        ({"kafka.auto.offset.reset": "none"}, "kafka.auto.offset.reset .*: use startingOffsets"),
        ({"kafka.key.deserializer": "x"}, "kafka.key.deserializer cannot be used here"),
        ({"kafka.security.protocol": "TLS"}, "option kafka.security.protocol: "),
    ],
)
def test_a_wrong_option_is_named(change, why):
    with pytest.raises(OptionError, match=why):
        parse_options(GIVEN | change, Use.BATCH)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name):
    with pytest.raises(OptionError, match=f"option {name} has a meaning in a batch query only"):
        parse_options(GIVEN | {name: "latest"}, Use.STREAM)


@pytest.mark.parametrize("pattern", ["(", ""])
def test_a_pattern_that_is_none_is_refused(pattern):
    with pytest.raises(OptionError, match="option subscribePattern: "):
        parse_options({"bootstrap.servers": "h:1", "subscribePattern": pattern})


def test_nothing_to_read_is_refused():
    with pytest.raises(OptionError, match="exactly one of"):
        parse_options({"bootstrap.servers": "h:1"})


@pytest.mark.parametrize(
    "given",
    [
        {"kafka.fetch.max.bytes": str(1 << 31)},
        {"startingTimestamp": str(1 << 63)},
        {"startingTimestamp": "9" * 5000},
        {"startingOffsets": f'{{"t": {{"0": {1 << 63}}}}}'},
        {"startingOffsets": f'{{"t": {{"{1 << 31}": 1}}}}'},
        {"startingOffsets": f'{{"$ottla": {{"epochs": {{"t": {1 << 31}}}}}, "t": {{"0": 5}}}}'},
        {"startingOffsetsByTimestamp": f'{{"t": {{"0": {1 << 63}}}}}'},
        {"assign": f'{{"t": [{1 << 31}]}}'},
        {"maxOffsetsPerTrigger": str(1 << 63)},
        {"kafka.request.timeout.ms": str(1 << 31)},
        {"minPartitions": "9" * 5000},
    ],
)
def test_a_number_that_no_request_has_room_for_is_refused(given):
    """It ended a query in a worker, as an internal error."""
    way = {} if "assign" in given else {"subscribe": "t"}
    with pytest.raises(OptionError, match=next(iter(given))):
        parse_options({"bootstrap.servers": "h:1", **way, **given})


@pytest.mark.parametrize("name", ["path", "paths"])
def test_a_topic_given_as_a_path_is_told_where_to_go(name):
    """``.load("orders")`` said "unknown option 'path'"."""
    with pytest.raises(OptionError, match=r"no path \('orders'\).*option\('subscribe', "):
        parse_options({"bootstrap.servers": "h:1", name: "orders"})


@pytest.mark.parametrize("pattern", ["[a&&[b]]", "a[a[b]]", "[[a]]", "[a]x[b&&c]", "[^[a]]"])
def test_what_only_java_understands_is_refused(pattern):
    """It matched nothing, silently."""
    with pytest.raises(OptionError, match="Java's expressions only"):
        parse_options({"bootstrap.servers": "h:1", "subscribePattern": pattern})


@pytest.mark.parametrize(
    "pattern", ["[a][b]", "[a]&&b", r"\[a[b]", r"[\[a]", "[a&b]", "[]a]", "[^]a]x", "x{2}[a-z]"]
)
def test_what_python_understands_is_taken(pattern):
    assert parse_options({"bootstrap.servers": "h:1", "subscribePattern": pattern}).pattern


def test_the_page_has_every_option():
    page = Path(__file__).resolve().parents[3] / "docs" / "spark.md"
    assert table() in page.read_text(), "docs/spark.md: put ottla.spark.option_table.table() there"
