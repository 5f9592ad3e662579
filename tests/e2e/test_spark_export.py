"""Topics to Parquet and back: every record once, however often it was interrupted."""

import json
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from ottla import spark as ottla_spark
from ottla.spark.exporting.export_log import ExportError, ExportLog

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),  # one session, in one worker
    pytest.mark.timeout(180),
]

DAY_MS = 86_400_000
COLUMNS = ("key", "value", "partition", "offset", "timestamp", "timestampType")


@pytest.fixture
def make_topic(target, topic_name):
    """Make a topic, anew if it is there."""
    from confluent_kafka.admin import AdminClient, NewTopic

    def make(name=topic_name, partitions=3):
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        return name

    return make


@pytest.fixture
def topic(make_topic):
    return make_topic()


@pytest.fixture
def produce(target):
    """Write numbers as records: keys, nulls, headers, three partitions, two days."""
    from confluent_kafka import Producer

    start_ms = int(time.time() * 1000) // DAY_MS * DAY_MS - DAY_MS

    def write(topic, numbers):
        producer = Producer({"bootstrap.servers": target.bootstrap, "compression.type": "lz4"})
        for number in numbers:
            producer.produce(
                topic,
                None if number % 11 == 0 else f"value {number}",
                None if number % 5 == 0 else f"k{number % 4}",
                number % 3,
                headers=[("h", b"1"), ("n", None)] if number % 2 else [],
                timestamp=start_ms + number % 2 * DAY_MS + number,
            )
        assert producer.flush(30) == 0

    return write


@pytest.fixture
def export(spark, target, tmp_path):
    def run(topic, **options):
        directory = options.pop("directory", tmp_path / "out")
        return ottla_spark.to_parquet(
            topic, str(directory), bootstrap=target.bootstrap, spark=spark, **options
        )

    return run


@pytest.fixture
def topic_rows(spark, target):
    """All rows of a topic as the source has them, by partition and offset."""

    def read(topic, columns=COLUMNS):
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", target.bootstrap)
        frame = reader.option("subscribe", topic).option("includeHeaders", "true").load()
        return sorted(frame.select(*columns).collect(), key=lambda row: (row.partition, row.offset))

    return read


def parquet_rows(spark, directory, columns=COLUMNS):
    frame = spark.read.parquet(str(directory)).select(*columns)
    return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))


def test_a_topic_and_what_comes_later_by_day(spark, topic, produce, export, topic_rows, tmp_path):
    produce(topic, range(500))
    first = export(topic, partition_by="date", records_per_file=50, records_per_commit=200)
    assert first.rows == 500
    assert len(first.commits) > 1
    assert export(topic, partition_by="date").commits == ()
    produce(topic, range(500, 600))
    second = export(topic, partition_by="date")
    assert second.rows == 100
    assert parquet_rows(spark, tmp_path / "out") == topic_rows(topic)
    days = {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()} - {"_ottla"}
    assert len(days) == 2
    by_day = spark.read.parquet(str(tmp_path / "out")).selectExpr("date = to_date(timestamp) AS ok")
    assert {row.ok for row in by_day.distinct().collect()} == {True}


def test_an_export_that_died_after_its_commit_is_finished_by_the_next(
    spark, topic, produce, export, topic_rows, tmp_path, monkeypatch
):
    produce(topic, range(90))

    def die(self, commit):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ExportLog, "_publish", die)
        with pytest.raises(KeyboardInterrupt):
            export(topic)
    assert list((tmp_path / "out").glob("*.parquet")) == []
    assert export(topic).commits == ()
    assert parquet_rows(spark, tmp_path / "out") == topic_rows(topic)


def test_an_export_that_died_in_its_job_leaves_nothing(
    spark, topic, produce, export, topic_rows, tmp_path, monkeypatch
):
    produce(topic, range(90))
    with monkeypatch.context() as patched:
        patched.setattr(ExportLog, "add", lambda self, commit: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export(topic)
    assert list((tmp_path / "out" / "_ottla" / "staging").rglob("*-0"))
    assert export(topic).rows == 90
    assert parquet_rows(spark, tmp_path / "out") == topic_rows(topic)
    assert list((tmp_path / "out" / "_ottla" / "staging").iterdir()) == []


def test_a_topic_that_was_made_anew_is_not_mixed_with_the_old_one(
    topic, produce, export, make_topic, target
):
    from confluent_kafka.admin import AdminClient

    produce(topic, range(9))
    export(topic)
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    make_topic()
    produce(topic, range(30))
    with pytest.raises(ExportError, match="made anew"):
        export(topic)


def test_another_form_in_the_same_directory_is_refused(topic, produce, export):
    produce(topic, range(9))
    export(topic)
    with pytest.raises(ExportError, match="partition_by"):
        export(topic, partition_by="key")
    with pytest.raises(ExportError, match="none of date, hour, key"):
        export(topic, partition_by="weekday")
    with pytest.raises(ExportError, match="object stores"):
        export(topic, directory="s3://bucket/x")


def test_back_to_a_topic_as_it_was(
    spark, target, topic, produce, export, topic_rows, make_topic, tmp_path
):
    produce(topic, range(300))
    export(topic, partition_by=("date", "key"), options={"includeHeaders": "true"})
    copy = make_topic(topic + "-copy")
    count = ottla_spark.from_parquet(
        str(tmp_path / "out"), copy, bootstrap=target.bootstrap, spark=spark
    )
    assert count == 300
    columns = ("partition", "offset", "key", "value", "timestamp", "headers")
    assert topic_rows(copy, columns) == topic_rows(topic, columns)


def test_a_directory_without_an_export_is_told(tmp_path, target):
    Path(tmp_path, "x.parquet").touch()
    with pytest.raises(ExportError, match="holds no export"):
        ottla_spark.from_parquet(str(tmp_path), "t", bootstrap=target.bootstrap)


def numbers_of(directory):
    import pyarrow.parquet as pq

    files = sorted(Path(directory).glob("*.parquet"))
    rows = [row for each in files for row in pq.ParquetFile(each).read().to_pylist()]
    return sorted((row["partition"], row["offset"]) for row in rows)


def test_what_a_first_call_left_out_stays_out(export, topic, produce, tmp_path):
    """Partition 1 had nothing behind its start: the next call must not begin it at the earliest."""
    produce(topic, range(9))  # three in each partition
    starts = json.dumps({topic: {"0": 0, "1": 3, "2": -2}})
    assert export(topic, options={"startingOffsets": starts}).rows == 6
    produce(topic, range(3))
    assert export(topic).rows == 3
    left_out = {(1, offset) for offset in range(3)}
    everything = {(partition, offset) for partition in range(3) for offset in range(4)}
    assert numbers_of(tmp_path / "out") == sorted(everything - left_out)


@pytest.mark.parametrize("others", [0, 3])
def test_what_retention_takes_of_a_partition_that_was_empty_is_told(
    export, topic, produce, target, others
):
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    produce(topic, [0] * others)  # partition 0 has something in the first call, or nothing has
    export(topic)
    produce(topic, [1] * 10)
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 1, 4)]).values():
        assert deleted.result(timeout=30).low_watermark == 4
    with pytest.raises(Exception, match=f"{topic}-1: offsets .0, 4. are gone"):
        export(topic)
    assert export(topic, options={"failOnDataLoss": "false"}).rows == 6


def test_a_partition_whose_turn_did_not_come_keeps_its_start(
    export, topic, produce, monkeypatch, tmp_path
):
    """Killed after the first of several commits: the others' begin is known all the same."""
    produce(topic, range(9))
    starts = json.dumps({topic: {"0": 1, "1": 1, "2": 1}})
    add, calls = ExportLog.add, []

    def once(self, commit):
        if calls:
            raise KeyboardInterrupt
        calls.append(commit)
        add(self, commit)

    with monkeypatch.context() as patch:
        patch.setattr(ExportLog, "add", once)
        with pytest.raises(KeyboardInterrupt):
            export(topic, options={"startingOffsets": starts}, records_per_commit=1)
    export(topic)
    assert numbers_of(tmp_path / "out") == [(p, offset) for p in range(3) for offset in (1, 2)]


def test_raw_and_typed_values_are_not_mixed(export, topic, produce):
    produce(topic, range(3))
    assert export(topic).rows == 3
    produce(topic, range(3))
    typed = {"value.format": "json", "value.schema": "a int"}
    with pytest.raises(ExportError, match="exported with value binary, not struct<a:int>"):
        export(topic, options=typed)
    assert export(topic).rows == 3


def test_keys_of_any_length_name_directories(spark, export, topic, target, tmp_path):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": target.bootstrap})
    for key in (b"ok", b"k" * 300, b"k" * 301):
        producer.produce(topic, b"v", key, 0)
    assert producer.flush(30) == 0
    assert export(topic, partition_by="key").files == 3
    assert export(topic, partition_by="key").rows == 0
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(len(row.key) for row in rows) == [2, 300, 301]
