"""What the sink says on the driver, before any task: options and columns, without a session."""

import os
import pickle
import sys

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from pyspark.sql import types

from ottla.ids import TopicPartition
from ottla.spark.connection import OptionError
from ottla.spark.planning.source import OttlaDataSource
from ottla.spark.writing import delivery
from ottla.spark.writing.identity import BatchOf, Content, Step
from ottla.spark.writing.marker import DeliveryError, Marker, Rules
from ottla.spark.writing.messages import Staged, Wrote
from ottla.spark.writing.planned import planned
from ottla.spark.writing.sink import (
    ColumnError,
    OttlaStreamWriter,
    OttlaWriter,
    check_columns,
    commit_batch,
    stage_of,
)
from ottla.spark.writing.sink_options import Delivery, parse_sink_options
from ottla.spark.writing.staged_files import StagedFile
from ottla.spark.writing.staging_place import Place
from ottla.spark.writing.transaction import Delivered
from ottla.spark.writing.write_batch import BatchError, write_batch

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
    """What was to be delivered: (transactional id, marker, batches, rules)."""
    calls = []

    def deliver(_options, name, marker, outgoing, rules=None):
        calls.append((name, marker, list(outgoing), rules))
        return Delivered(Step.WRITE, marker)

    monkeypatch.setattr(delivery, "deliver", deliver)
    return calls


def commit(options, tasks, batch_id=None):
    """End a batch as a writer does."""
    commit_batch(options, stage_of(options), tasks, batch_id)


def test_the_defaults():
    options = parse_sink_options(OPTIONS)
    assert options.delivery is Delivery.AT_LEAST_ONCE
    assert options.topic == "t"
    assert options.write.sending.is_idempotent
    assert (options.transactional_id, options.transaction_timeout_ms) == (None, None)
    assert options.message_bytes_max == 16 << 20
    assert options.staging_location is None
    assert options.missing is None


def test_every_option_is_understood():
    options = parse_sink_options(
        {
            "bootstrap.servers": "h:1",
            "DELIVERY": "Exactly-Once",
            "kafka.transactional.id": "x",
            "kafka.transaction.timeout.ms": "90s",
            "exactlyoncemaxbytes": "64m",
            "staginglocation": "s3://bucket/staging",
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
    assert options.message_bytes_max == 64 << 20
    assert options.staging_location == "s3://bucket/staging"
    assert options.missing is Step.WRITE


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"topci": "t"}, "unknown option 'topci' .* did you mean topic"),
        ({"path": "orders"}, r"no path \('orders'\).*option\('topic', "),
        ({"startingoffsets": "latest"}, "unknown option 'startingoffsets' for writing"),
        ({"topic": " "}, "option topic is empty"),
        ({"kafka.bootstrap.servers": ""}, r"option kafka\.bootstrap\.servers is missing"),
        ({"delivery": "twice"}, "option delivery is at-least-once or exactly-once, not 'twice'"),
        ({"kafka.acks": "some"}, r"option kafka\.acks"),
        ({"kafka.zebra": "1"}, "zebra"),
        ({"exactlyoncemaxbytes": "much"}, "option exactlyOnceMaxBytes is a size"),
        ({"exactlyoncemaxbytes": "2g"}, "option exactlyOnceMaxBytes is at most 1 GiB"),
        ({"stagingLocation": "/s"}, "option stagingLocation needs delivery=exactly-once"),
        (
            {"delivery": "exactly-once", "staginglocation": "data/staging"},
            "option stagingLocation is an absolute path or a URI",
        ),
        ({"onmissingmarker": "shrug"}, "option onMissingMarker is fail or skip or write"),
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


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ("value string, value string", "value"),
        ("value string, key string, KEY binary", "key"),
        ("value string, Topic string, topic string", "topic"),
    ],
)
def test_a_column_that_is_there_twice_is_not_guessed(columns, name):
    """Of names that differ in their case only the last one was written."""
    with pytest.raises(ColumnError, match=f"column '{name}' is there 2 times"):
        check_columns(schema(columns), topic_given=False)


def test_columns_that_are_left_alone_may_be_there_twice():
    check_columns(schema("value string, topic string, Topic string"), topic_given=True)
    check_columns(schema("value string, offset bigint, offset bigint"), topic_given=True)


def test_a_timestamp_that_is_ignored_may_be_of_any_type():
    columns = schema("value string, timestamp string, Timestamp int")
    check_columns(columns, topic_given=True, timestamp_ignored=True)
    with pytest.raises(ColumnError, match="timestamp"):
        check_columns(columns, topic_given=True)


def test_a_column_topics_is_no_slip_where_the_option_says_the_topic():
    check_columns(schema("value string, topics string"), topic_given=True)
    with pytest.raises(ColumnError, match="did you mean 'topic'"):
        check_columns(schema("value string, topics string"), topic_given=False)


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
    commit(parse_sink_options(OPTIONS), [Wrote({PLACE: 1}), None], 3)


def staged(batch_of=None, *batches, rows=0, total=0):
    return Staged(batch_of, list(batches), Content(rows, total))


Q3 = BatchOf("q", 3, "run")


def test_a_micro_batch_is_delivered_under_its_querys_id_with_all_its_rows(delivered):
    half = 1 << 63
    tasks = [
        staged(Q3, (PLACE, bytearray(b"a")), rows=1, total=half),
        None,
        staged(Q3, rows=2, total=half + 5),
    ]
    commit(parse_sink_options(EXACTLY), tasks, 3)
    marker = Marker("q", 3, "t", "run", Content(3, 5))
    assert delivered == [("ottla-spark-q", marker, [(PLACE, b"a")], Rules())]


def test_a_job_outside_of_streams_has_no_marker_and_an_id_of_its_own(delivered):
    for _ in range(2):
        commit(parse_sink_options(EXACTLY), [staged()])
    (first, marker, _, _), (second, _, _, _) = delivered
    assert marker is None
    assert first != second


@pytest.mark.parametrize("tasks", [[staged()], []])
def test_an_id_without_a_known_batch_is_refused(delivered, tasks):
    """Over Connect and in threads: written as a job that comes once, a replay would be double."""
    with pytest.raises(DeliveryError, match=r"not known: over Spark Connect.*write_batch"):
        commit(parse_sink_options(EXACTLY | {"transactional.id": "x"}), tasks)
    assert delivered == []


class Frame:
    """No more of a frame than its columns."""

    def __init__(self, columns):
        self.schema = schema(columns)
        self.columns = self.schema.names


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("key string", "column 'value' .* is missing"),  # a null would be a tombstone
        ("values string", "did you mean 'value'"),
        ("value string, keys string", "did you mean 'key'"),
        ("value int", "column 'value' is binary or string"),
    ],
)
def test_frames_by_topic_are_held_to_what_one_frame_is(columns, why):
    frames = {"rejects": Frame(columns)}
    with pytest.raises(ColumnError, match=why):
        write_batch(frames, 1, name="n", bootstrap="h:1")


@pytest.mark.parametrize("name", ["Delivery", "txnappid", "txnVersion", "topic"])
def test_options_do_not_say_what_the_arguments_of_write_batch_say(name):
    with pytest.raises(BatchError, match="leave it out"):
        write_batch({}, 1, name="n", bootstrap="h:1", options={name: "x"})


def test_in_foreach_batch_each_sink_needs_an_id_and_may_leave_batches_out(delivered):
    with pytest.raises(DeliveryError, match=r"needs the option transactional\.id"):
        commit(parse_sink_options(EXACTLY), [staged(Q3)])
    commit(parse_sink_options(EXACTLY | {"transactional.id": "x"}), [staged(Q3)])
    marker = Marker("q", 3, "t", "run", Content(0, 0))
    assert delivered == [("x", marker, [], Rules(are_gaps_legal=True))]


BY_HAND = EXACTLY | {"txnappid": "orders", "txnversion": "7"}


def test_a_batch_is_named_by_hand_as_deltas_are(delivered):
    options = parse_sink_options(BY_HAND)
    assert options.by_hand == BatchOf("orders", 7)
    tasks = [staged(options.by_hand)]
    commit(options, tasks)
    commit(parse_sink_options(BY_HAND | {"transactional.id": "x"}), tasks)
    marker = Marker("orders", 7, "t", None, Content(0, 0))
    rules = Rules(are_gaps_legal=True)
    assert delivered == [("ottla-spark-orders", marker, [], rules), ("x", marker, [], rules)]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"ignoreTimestamp": "maybe"}, "option ignoreTimestamp is false or true"),
        ({"txnAppId": "a"}, "are given together"),
        ({"txnVersion": "1"}, "are given together"),
        ({"txnAppId": "", "txnVersion": "1"}, "are given together"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "a whole number from 0"),
        ({"txnAppId": "a", "txnVersion": "1.0"}, "a whole number from 0"),
        ({"txnAppId": "a", "txnVersion": "9" * 5000}, "a whole number from 0"),
        ({"kafka.transaction.timeout.ms": "0"}, "from 1 ms to 2147483647 ms, not '0'"),
        ({"kafka.transaction.timeout.ms": "30d"}, "from 1 ms to 2147483647 ms, not '30d'"),
        ({"onChangedBatch": "x"}, "fail or skip or write"),
    ],
)
def test_a_batch_that_is_named_badly_is_refused(given, why):
    with pytest.raises(OptionError, match=why):
        parse_sink_options(EXACTLY | given)


def test_a_name_by_hand_is_for_neither_at_least_once_nor_streams():
    with pytest.raises(OptionError, match="option txnAppId needs delivery=exactly-once"):
        parse_sink_options(OPTIONS | {"txnappid": "orders", "txnversion": "7"})
    with pytest.raises(OptionError, match="writeStream knows its batches by itself"):
        OttlaDataSource(BY_HAND).streamWriter(schema("value string"), overwrite=False)


def plan(tmp_path, text):
    (tmp_path / "offsets").mkdir(exist_ok=True)
    (tmp_path / "offsets" / "3").write_text(f'v1\n{{"batchTimestampMs": 1}}\n{{"t": {text}}}')
    return parse_sink_options(EXACTLY | {"checkpointlocation": f"file://{tmp_path}"})


def test_a_streams_batch_is_known_by_its_plan_too(delivered, tmp_path):
    for text in ("1", "1", "2"):
        options = plan(tmp_path, text)
        os.utime(tmp_path / "offsets" / "3")
        commit(options, [staged(Q3)], 3)
    (one, other, third) = [each[1].plan for each in delivered]
    assert len(one) == 16
    assert one == other != third


def test_a_plan_that_nobody_sees_is_not_known(tmp_path, monkeypatch):
    plan(tmp_path, "1")
    assert planned(str(tmp_path), 3) == planned(f"file:{tmp_path}", 3)
    assert planned(str(tmp_path), 1) is None
    assert planned("s3://bucket/checkpoint", 3) is None
    assert planned("relative", 3) is None
    assert planned(None, 3) is None
    monkeypatch.chdir(tmp_path.parent)
    assert planned(tmp_path.name, 3) == planned(str(tmp_path), 3) is not None


@pytest.mark.parametrize(
    "tasks",
    [
        [],
        [staged(Q3._replace(batch_id=2))],
        [staged(Q3), staged(Q3._replace(query_id="other"))],
        [staged(Q3), staged(Q3._replace(run_id="other"))],
        [staged(Q3), staged()],
    ],
)
def test_tasks_of_another_batch_are_refused(delivered, tasks):
    with pytest.raises(DeliveryError, match="tasks of different batches"):
        commit(parse_sink_options(EXACTLY), tasks, 3)
    assert delivered == []


def test_what_to_do_with_a_batch_in_doubt_can_be_said(delivered):
    for word, step in (("fail", None), ("skip", Step.SKIP), ("write", Step.WRITE)):
        commit(parse_sink_options(EXACTLY | {"onchangedbatch": word}), [staged(Q3)], 3)
        commit(parse_sink_options(EXACTLY | {"onmissingmarker": word}), [staged(Q3)], 3)
        assert [each[3].changed for each in delivered[-2:]] == [step, None]
        assert [each[3].missing for each in delivered[-2:]] == [None, step]


@pytest.fixture
def cleared(monkeypatch):
    """What was cleared: (location, transactional id, the number that is done)."""
    calls = []
    monkeypatch.setattr(delivery, "_clear", lambda location, _, *of: calls.append((location, *of)))
    return calls


def test_a_run_begins_with_clearing_what_the_last_one_left(
    delivered, cleared, monkeypatch, tmp_path
):
    """It may have been killed; and a location that nobody staged in is not asked for that."""
    options = parse_sink_options(EXACTLY)
    found = iter([None, Marker("q", 2, "t", "before"), Marker("q", 2, "t", "run")] * 2)
    monkeypatch.setattr(delivery, "deliver", lambda *_: Delivered(Step.WRITE, next(found)))
    for place in (Place(str(tmp_path)), Place("s3://bucket/staging")):
        for _ in range(3):
            delivery.deliver_staged(options, [staged(Q3)], 3, place)
    assert cleared == [(str(tmp_path), "ottla-spark-q", 3)] * 2


def test_a_failed_job_removes_its_own_files(cleared):
    file = StagedFile("/staging", "owner/3-1-aa/0.batches", 9, 9, 9, "host")
    writer = OttlaWriter(parse_sink_options(EXACTLY))
    writer.abort([None, staged(Q3), staged(Q3)])
    assert cleared == []
    writer.abort([None, Staged(Q3, file=file), staged(Q3)])
    assert cleared == [("/staging",)]


def test_the_option_to_ignore_timestamps_reaches_the_writer():
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
    assert not parse_sink_options(given).write.ignores_timestamp
    assert parse_sink_options(given | {"ignoreTimestamp": "true"}).write.ignores_timestamp
