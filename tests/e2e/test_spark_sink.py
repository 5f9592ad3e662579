"""PySpark writes topics with format("ottla"): rows, refusals, and each row exactly once.

Asked of Apache Kafka, too (``--target kafka``).
"""

import contextlib
import datetime as dt
import os
import time

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.coordinators import BlockingCoordinators
from ottla.client.wire.settings import ClientSettings, parse_bootstrap
from ottla.client.wire.transacting import OffsetToCommit
from ottla.ids import TopicPartition
from ottla.spark.writing.marker import read_marker
from tools.wire_client import WireClient

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),  # one session, in one worker
    pytest.mark.timeout(180),
]


@pytest.fixture
def topic(target, topic_name):
    """A topic of three partitions."""
    with WireClient(target.bootstrap) as wire:
        wire.create_topic(topic_name, 3)
    return topic_name


@pytest.fixture
def options(target):
    return {"kafka.bootstrap.servers": target.bootstrap}


@pytest.fixture
def save(topic, options):
    """Write a frame to the topic as a batch."""

    def write(frame, **more):
        frame.write.format("ottla").mode("append").options(
            **options | {"topic": topic} | more
        ).save()

    return write


@pytest.fixture
def read(target):
    """What kafka-python reads of a topic, committed only, sorted by partition and offset."""
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Partition

    def records(topic):
        consumer = KafkaConsumer(
            bootstrap_servers=target.bootstrap,
            group_id=None,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        try:
            places = [Partition(topic, p) for p in consumer.partitions_for_topic(topic)]
            consumer.assign(places)
            ends = consumer.end_offsets(places)
            consumer.seek_to_beginning()
            found = []
            deadline = time.monotonic() + 60
            while any(consumer.position(place) < ends[place] for place in places):
                assert time.monotonic() < deadline
                for messages in consumer.poll(timeout_ms=500).values():
                    found += messages
            return sorted(found, key=lambda m: (m.partition, m.offset))
        finally:
            consumer.close()

    return records


@pytest.fixture
def coordinators(target):
    with BlockingClient(ClientSettings(parse_bootstrap(target.bootstrap))) as client:
        yield BlockingCoordinators(client)


@pytest.fixture
def stream(spark, topic, options, tmp_path):
    """Run a query over the lines of files, a file a batch, until it has read them all."""
    from pyspark.errors import StreamingQueryException

    lines = tmp_path / "lines"
    lines.mkdir()

    def run(*files, **more):
        for number, text in enumerate(files, len(list(lines.iterdir()))):
            (lines / f"{number:03}.txt").write_text(text)
        query = (
            spark.readStream.option("maxFilesPerTrigger", 1)
            .text(str(lines))
            .selectExpr("value", "value AS key")
            .writeStream.format("ottla")
            .options(topic=topic, checkpointLocation=str(tmp_path / "checkpoint"))
            .options(**options | {"delivery": "exactly-once"} | more)
            .trigger(availableNow=True)
            .start()
        )
        with contextlib.suppress(StreamingQueryException):
            assert query.awaitTermination(60)
        return query

    return run


def forget_commit(tmp_path, batch):
    """Make the checkpoint what it is when Spark was killed before it had noted the batch's end."""
    for name in (f"{batch}", f".{batch}.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)


DELIVERIES = ["at-least-once", "exactly-once"]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_every_column_reaches_the_topic(spark, save, read, topic, delivery):
    when = dt.datetime(2026, 1, 2, 3, 4, 5, 678000, dt.UTC)
    rows = [
        (b"k1", "one", 2, [("a", b"1"), ("b", None)], when),
        (None, None, 0, None, None),
        (b"", "é世", 2, [], when),
    ]
    schema = (
        "key binary, value string, partition int, "
        "headers array<struct<key:string,value:binary>>, timestamp timestamp"
    )
    begin = time.time() * 1000
    save(spark.createDataFrame(rows, schema).coalesce(1), delivery=delivery)
    first, *others = read(topic)
    assert (first.partition, first.key, first.value) == (0, None, None)
    assert begin - 1000 <= first.timestamp <= time.time() * 1000
    millis = int(when.timestamp() * 1000)
    assert [(m.partition, m.key, m.value, m.headers, m.timestamp) for m in others] == [
        (2, b"k1", b"one", [("a", b"1"), ("b", None)], millis),
        (2, b"", "é世".encode(), [], millis),
    ]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_rows_of_many_tasks_each_once_with_keys_in_javas_partitions(
    spark, save, read, topic, delivery
):
    from kafka.partitioner.default import murmur2

    frame = spark.range(0, 3000, 1, 4).selectExpr(
        "CAST(id AS STRING) AS key", "CONCAT('value ', id) AS value"
    )
    save(frame, delivery=delivery, **{"kafka.compression.type": "lz4"})
    found = read(topic)
    assert sorted(m.value.decode() for m in found) == sorted(f"value {n}" for n in range(3000))
    assert all(m.partition == (murmur2(m.key) & 0x7FFFFFFF) % 3 for m in found)


@pytest.mark.usefixtures("spark")
def test_a_thread_that_asks_for_the_session_writes_in_it(save, read, topic):
    """Spark looks for the sink in the thread's session; so does one that was interrupted."""
    from concurrent.futures import ThreadPoolExecutor

    import ottla.spark

    def work():
        save(ottla.spark.session().sql("SELECT 'v' AS value"))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()
    assert [record.value for record in read(topic)] == [b"v"]


def test_the_column_says_the_topic_where_the_option_does_not(spark, options, read, topic, target):
    other = f"{topic}-other"
    with WireClient(target.bootstrap) as wire:
        wire.create_topic(other, 1)
    frame = spark.createDataFrame([(topic, "a"), (other, "b")], "topic string, value string")
    for delivery in DELIVERIES:
        frame.write.format("ottla").mode("append").options(delivery=delivery, **options).save()
    assert [m.value for m in read(topic)] == [b"a", b"a"]
    assert [m.value for m in read(other)] == [b"b", b"b"]


def test_what_cannot_be_written_is_one_clear_error(spark, save, read, topic):
    for columns, given, why in (
        ("1 AS value", {}, "column 'value' is binary or string, not int"),
        ("'v' AS value, 7 AS partition", {}, "3 partitions, numbered from 0"),
        ("'v' AS value", {"topci": "x"}, "did you mean topic"),
    ):
        with pytest.raises(Exception, match=why):
            save(spark.sql(f"SELECT {columns}"), **given)
    assert read(topic) == []


def test_a_topic_cannot_be_overwritten(spark, options, topic):
    writer = spark.sql("SELECT 'v' AS value").write.format("ottla").options(topic=topic, **options)
    with pytest.raises(Exception, match='cannot be written in the "ErrorIfExists" mode'):
        writer.save()
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.mode("overwrite").save()


def test_micro_batches_are_written_once_whenever_the_driver_dies(
    stream, read, topic, coordinators, tmp_path
):
    query = stream("a\nb\n", "c\n")
    assert query.exception() is None
    name, place = f"ottla-spark-{query.id}", TopicPartition(topic, 0)

    def batch_there():
        (there,) = coordinators.committed(name).items()
        assert there[0] == place
        return read_marker(there[1])[:3]

    assert batch_there() == (str(query.id), 1, topic)
    # Between EndTxn and Spark's own note of it: the batch is run once more.
    forget_commit(tmp_path, 1)
    # Before EndTxn: rows and a marker in a transaction that must not be carried on.
    zombie = coordinators.take_over(name, 60_000)
    coordinators.add_partitions(zombie, [place])
    coordinators.commit_offsets(zombie, name, {place: OffsetToCommit(2, "half done")})
    assert stream("d\ne\n").exception() is None
    assert sorted(m.value for m in read(topic)) == [b"a", b"b", b"c", b"d", b"e"]
    with pytest.raises(Exception, match="PRODUCER_FENCED"):
        coordinators.end(zombie, commit=True)
    assert batch_there() == (str(query.id), 2, topic)


def test_a_query_that_was_at_least_once_says_what_to_do(stream, read, topic):
    assert stream("a\n", delivery="at-least-once").exception() is None
    query = stream("b\n")
    assert "cannot tell whether batch 1" in str(query.exception())
    assert "onMissingMarker=write" in str(query.exception())
    assert [m.value for m in read(topic)] == [b"a"]
    assert stream(onMissingMarker="write").exception() is None
    assert sorted(m.value for m in read(topic)) == [b"a", b"b"]


def test_an_aggregates_whole_result_is_appended_with_each_batch(
    spark, read, topic, options, tmp_path
):
    """Output mode complete, as with the connector: the topic is the aggregate's changelog."""
    (tmp_path / "lines").mkdir()
    for number, text in enumerate(("a\nb\n", "a\n")):
        path = tmp_path / "lines" / f"{number}"
        path.write_text(text)
        os.utime(path, (number, number))  # Spark takes the oldest first.
    query = (
        spark.readStream.option("maxFilesPerTrigger", 1)
        .text(str(tmp_path / "lines"))
        .groupBy("value")
        .count()
        .selectExpr("value AS key", "CAST(count AS STRING) AS value")
        .writeStream.format("ottla")
        .outputMode("complete")
        .options(topic=topic, delivery="exactly-once", **options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert sorted((m.key, m.value) for m in read(topic)) == [
        (b"a", b"1"),
        (b"a", b"2"),
        (b"b", b"1"),
        (b"b", b"1"),
    ]
