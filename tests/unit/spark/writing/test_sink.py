"""What the sink says on the driver, before any task: options and columns, without a session."""

import pickle
import sys

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from pyspark.sql import types

from ottla.ids import TopicPartition
from ottla.spark.connection import OptionError
from ottla.spark.planning.source import OttlaDataSource
from ottla.spark.writing import delivery
from ottla.spark.writing.marker import DeliveryError, Marker
from ottla.spark.writing.sink import (
    ColumnError,
    OttlaStreamWriter,
    OttlaWriter,
    Staged,
    Wrote,
    check_columns,
    commit_batch,
)
from ottla.spark.writing.sink_options import Delivery, parse_sink_options

OPTIONS = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
EXACTLY = OPTIONS | {"delivery": "exactly-once"}
PLACE = TopicPartition("t", 0)


NAMED = {
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "timestamp": types.TimestampType(),
    "void": types.NullType(),
    "strings": types.ArrayType(types.StringType()),
    "headers": types.ArrayType(
        types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
    ),
    "turned": types.ArrayType(
        types.StructType().add("value", types.BinaryType()).add("key", types.StringType())
    ),
}


def schema(text):
    """The columns ``name type, ...``, without asking Spark."""
    columns = types.StructType()
    for column in text.split(", "):
        name, kind = column.split()
        columns.add(name, NAMED[kind])
    return columns


@pytest.fixture
def delivered(monkeypatch):
    """What was to be delivered: (transactional id, marker, batches)."""
    calls = []
    monkeypatch.setattr(delivery, "deliver", lambda _options, *what: calls.append(what))
    return calls


def test_the_defaults():
    options = parse_sink_options(OPTIONS)
    assert options.delivery is Delivery.AT_LEAST_ONCE
    assert options.topic == "t"
    assert options.write.sending.is_idempotent
    assert (options.transactional_id, options.transaction_timeout_ms) == (None, 60_000)
    assert options.staged_bytes_max == 128 << 20
    assert not options.missing_is_new


def test_every_option_is_understood():
    options = parse_sink_options(
        {
            "bootstrap.servers": "h:1",
            "DELIVERY": "Exactly-Once",
            "kafka.transactional.id": "x",
            "kafka.transaction.timeout.ms": "90s",
            "exactlyoncemaxbytes": "64m",
            "onmissingmarker": "write",
            "kafka.compression.type": "zstd",
            "kafka.metadata.max.age.ms": "1000",  # of no use here, but a producer's
            "checkpointlocation": "/c",
            "queryname": "q",
            "includeheaders": "true",
        }
    )
    assert options.is_exactly_once
    assert options.topic is None
    assert (options.transactional_id, options.transaction_timeout_ms) == ("x", 90_000)
    assert options.staged_bytes_max == 64 << 20
    assert options.missing_is_new


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"topci": "t"}, "unknown option 'topci' .* did you mean topic"),
        ({"startingoffsets": "latest"}, "unknown option 'startingoffsets' for writing"),
        ({"topic": " "}, "option topic is empty"),
        ({"kafka.bootstrap.servers": ""}, r"option kafka\.bootstrap\.servers is missing"),
        ({"delivery": "twice"}, "option delivery is at-least-once or exactly-once, not 'twice'"),
        ({"kafka.acks": "some"}, r"option kafka\.acks"),
        ({"kafka.zebra": "1"}, "zebra"),
        ({"exactlyoncemaxbytes": "much"}, "option exactlyOnceMaxBytes is a size"),
        ({"exactlyoncemaxbytes": "2g"}, "option exactlyOnceMaxBytes is at most 1 GiB"),
        ({"onmissingmarker": "shrug"}, "option onMissingMarker is fail or write"),
        ({"transactional.id": "x"}, "option transactional.id needs delivery=exactly-once"),
        (
            {"delivery": "exactly-once", "kafka.transaction.timeout.ms": "soon"},
            r"option kafka\.transaction\.timeout\.ms is a time",
        ),
        ({"delivery": "exactly-once", "kafka.acks": "1"}, "needs kafka.acks=all"),
        ({"delivery": "exactly-once", "kafka.enable.idempotence": "false"}, "needs kafka.acks=all"),
    ],
)
def test_a_wrong_option_is_named(given, why):
    with pytest.raises(OptionError, match=why):
        parse_sink_options(OPTIONS | given)


@pytest.mark.parametrize(
    "columns",
    [
        "value string",
        "value binary, key string, partition int, timestamp timestamp",
        "Value binary, KEY binary, headers headers",
        "value void, key void, partition void, headers void, timestamp void",
        "value binary, offset bigint, timestampType int, anything strings",
        "value binary, keys strings, key string",
        "value string, topic int",  # the option says the topic
    ],
)
def test_columns_that_can_be_written(columns):
    check_columns(schema(columns), topic_given=True)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("key string", r"column 'value' \(binary or string\) is missing; .*key:string"),
        ("value int", "column 'value' is binary or string, not int"),
        ("value string, key bigint", "column 'key' is binary or string, not bigint"),
        ("value string, partition bigint", "column 'partition' is int, not bigint"),
        ("value string, timestamp bigint", "column 'timestamp' is timestamp, not bigint"),
        ("value string, headers strings", "column 'headers' is array<struct<key:string"),
        ("value string, headers turned", "column 'headers' is"),
        ("value string, keys string", "column 'keys': did you mean 'key'"),
        ("value string, haeders string", "did you mean 'headers'"),
    ],
)
def test_columns_that_cannot(columns, why):
    with pytest.raises(ColumnError, match=why):
        check_columns(schema(columns), topic_given=True)


def test_without_the_option_a_column_must_say_the_topic():
    check_columns(schema("value string, topic string"), topic_given=False)
    with pytest.raises(ColumnError, match="no topic to write to"):
        check_columns(schema("value string"), topic_given=False)
    with pytest.raises(ColumnError, match="column 'topic' is string, not int"):
        check_columns(schema("value string, topic int"), topic_given=False)


def test_the_writers_travel_and_overwriting_is_refused():
    source = OttlaDataSource(OPTIONS)
    writer = source.writer(schema("value string"), overwrite=False)
    assert isinstance(pickle.loads(pickle.dumps(writer)), OttlaWriter)
    stream = source.streamWriter(schema("value string"), overwrite=True)  # output mode complete
    assert isinstance(pickle.loads(pickle.dumps(stream)), OttlaStreamWriter)
    with pytest.raises(OptionError, match="cannot be overwritten"):
        source.writer(schema("value string"), overwrite=True)
    with pytest.raises(ColumnError):
        source.streamWriter(schema("value int"), overwrite=False)


def test_at_least_once_the_driver_has_nothing_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "ottla.spark.writing.delivery", None)  # importing it now fails
    commit_batch(parse_sink_options(OPTIONS), [Wrote({PLACE: 1}), None], 3)


def test_a_micro_batch_is_delivered_under_its_querys_id(delivered):
    staged = [Staged("q", 3, [(PLACE, bytearray(b"a"))]), None, Staged("q", 3, [])]
    commit_batch(parse_sink_options(EXACTLY), staged, 3)
    expected = [(PLACE, b"a")]
    assert delivered == [("ottla-spark-q", Marker("q", 3, "t"), expected)]


def test_a_job_outside_of_streams_has_no_marker_and_an_id_of_its_own(delivered):
    for _ in range(2):
        commit_batch(parse_sink_options(EXACTLY), [Staged(None, None, [])])
    (first, marker, _), (second, _, _) = delivered
    assert marker is None
    assert first != second
    commit_batch(parse_sink_options(EXACTLY | {"transactional.id": "x"}), [Staged()])
    assert delivered[-1][0] == "x"


def test_in_foreach_batch_each_sink_needs_an_id(delivered):
    with pytest.raises(DeliveryError, match=r"needs the option transactional\.id"):
        commit_batch(parse_sink_options(EXACTLY), [Staged("q", 3, [])])
    commit_batch(parse_sink_options(EXACTLY | {"transactional.id": "x"}), [Staged("q", 3, [])])
    assert delivered == [("x", Marker("q", 3, "t"), [])]


@pytest.mark.parametrize(
    "staged",
    [
        [],
        [Staged("q", 2, [])],
        [Staged("q", 3, []), Staged("other", 3, [])],
        [Staged("q", 3, []), Staged(None, None, [])],
    ],
)
def test_tasks_of_another_batch_are_refused(delivered, staged):
    with pytest.raises(DeliveryError, match="tasks of different batches"):
        commit_batch(parse_sink_options(EXACTLY), staged, 3)
    assert delivered == []


def test_more_than_the_driver_should_hold_is_refused(delivered):
    options = parse_sink_options(EXACTLY | {"exactlyoncemaxbytes": "10"})
    batch = (PLACE, bytearray(6))
    commit_batch(options, [Staged("q", 3, [batch])], 3)
    with pytest.raises(DeliveryError, match="raise exactlyOnceMaxBytes"):
        commit_batch(options, [Staged("q", 4, [batch]), Staged("q", 4, [batch])], 4)
    assert len(delivered) == 1
