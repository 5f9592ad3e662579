"""Batches too large for messages, exactly once, with a real Spark: staged in files, then sent.

What is too large is set to a few bytes here; large in earnest is bench/spark/large_batch.py. Asked
of Apache Kafka, too (``--target kafka``).
"""

import tempfile
import uuid
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

import ottla.spark
from ottla.spark.writing.staged_files import owner_directory
from tools.wire_client import WireClient

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),  # one session, in one worker
    pytest.mark.timeout(180),
]
ROWS = 4_000
SMALL = {"exactlyOnceMaxBytes": "1"}
"""Each task's message may hold a kilobyte then."""
LATER = "1-fffffffffff-c0ffeec0ffee"
"""An attempt of the next batch."""


@pytest.fixture
def topic(target, topic_name):
    with WireClient(target.bootstrap) as wire:
        wire.create_topic(topic_name, 3)
    return topic_name


@pytest.fixture
def options(target, topic):
    return {
        "kafka.bootstrap.servers": target.bootstrap,
        "topic": topic,
        "delivery": "exactly-once",
        **SMALL,
    }


@pytest.fixture
def committed(spark, target, topic):
    """The values of the topic that a consumer of committed records sees, sorted."""

    def read():
        frame = (
            spark.read.format("ottla")
            .option("kafka.bootstrap.servers", target.bootstrap)
            .options(**{"subscribe": topic, "kafka.isolation.level": "read_committed"})
            .load()
        )
        return sorted(row.value.decode() for row in frame.select("value").collect())

    return read


def rows(spark, start=0, end=ROWS, tasks=2):
    return spark.range(start, end, 1, tasks).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value"
    )


def numbers(*ranges):
    return sorted(str(number) for each in ranges for number in each)


@pytest.fixture
def stream(spark, tmp_path, options):
    """Run a query over files of numbers, a file a batch; return its error."""
    from pyspark.errors import StreamingQueryException

    source = tmp_path / "source"

    def run(*ranges, checkpoint=tmp_path / "checkpoint", **more):
        for each in ranges:
            frame = rows(spark, each.start, each.stop)
            frame.write.mode("append").parquet(str(source))
        query = (
            spark.readStream.schema("key STRING, value STRING")
            .parquet(str(source))
            .writeStream.format("ottla")
            .options(**options, **more)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(90)
        except StreamingQueryException as error:
            return str(error)
        return None

    return run


def files_in(directory):
    return [each for each in Path(directory).rglob("*") if each.is_file()]


@pytest.fixture
def staged_files(monkeypatch, tmp_path):
    """The names of files in the location while the driver sends."""
    # The commit runs in a process of Spark's, so this is what was left when it failed.
    return lambda: files_in(tmp_path / "checkpoint" / "ottla-staging")


def test_a_stream_stages_beside_its_checkpoint_and_leaves_nothing(
    stream, committed, tmp_path, staged_files
):
    assert stream(range(ROWS)) is None
    assert stream(range(ROWS, 2 * ROWS)) is None
    assert committed() == numbers(range(2 * ROWS))
    assert (tmp_path / "checkpoint" / "ottla-staging").is_dir()
    assert staged_files() == []


def test_a_repeated_batch_is_found_and_what_was_killed_is_cleared(
    stream, committed, tmp_path, staged_files
):
    assert stream(range(ROWS)) is None
    checkpoint = tmp_path / "checkpoint"
    for each in ("0", ".0.crc"):  # killed before Spark noted the end
        (checkpoint / "commits" / each).unlink(missing_ok=True)
    query_id = (checkpoint / "metadata").read_text().split('"')[3]
    owner = checkpoint / "ottla-staging" / owner_directory(f"ottla-spark-{query_id}")
    for attempt in ("0-00000019aab-c0ffeec0ffee", LATER, "notes"):
        (owner / attempt).mkdir(parents=True)
        (owner / attempt / "some.batches").write_bytes(b"left")
    assert stream() is None
    assert committed() == numbers(range(ROWS))
    # What is of a later batch, or has another name, is not ours to remove.
    assert sorted(each.parent.name for each in staged_files()) == [LATER, "notes"]
    assert stream(range(ROWS, 2 * ROWS)) is None
    assert committed() == numbers(range(2 * ROWS))
    assert [each.parent.name for each in staged_files()] == ["notes"]


def test_a_job_without_a_checkpoint_stages_on_its_machine(spark, options, committed, monkeypatch):
    rows(spark).write.format("ottla").mode("append").options(**options).save()
    assert committed() == numbers(range(ROWS))
    import os

    place = Path(tempfile.gettempdir(), f"ottla-staging-{os.getuid()}")
    assert place.stat().st_mode & 0o077 == 0
    assert not any("jobs" in str(each) for each in files_in(place))


def test_a_location_that_is_given_is_used(spark, options, committed, tmp_path):
    location = tmp_path / "given here"
    more = {"stagingLocation": f"file://{location}", "kafka.compression.type": "zstd"}
    rows(spark, tasks=5).write.format("ottla").mode("append").options(**options, **more).save()
    assert committed() == numbers(range(ROWS))
    assert location.is_dir()
    assert files_in(location) == []


@pytest.mark.parametrize("location", ["/dev/null/staging", "nowhere://bucket/staging"])
def test_a_location_that_cannot_be_used_is_told_with_the_way_out(
    spark, stream, options, committed, location
):
    error = stream(range(ROWS), stagingLocation=location)
    assert f"staging in {location}" in error
    assert "names a directory or URI that the driver and all executors share" in error
    assert committed() == []
    assert stream() is None  # the batch that was planned has a way on
    assert committed() == numbers(range(ROWS))


def test_in_foreach_batch_two_sinks_stage_side_by_side(spark, target, topic, committed, tmp_path):
    """Both batches have one number; each sink clears its own."""
    from concurrent.futures import ThreadPoolExecutor

    names = [uuid.uuid4().hex for _ in range(2)]
    location = tmp_path / "staging"

    def write(frame, number):
        def one(part):
            ottla.spark.write_batch(
                frame.where(f"CAST(value AS INT) % 2 = {part}"),
                number,
                name=names[part],
                bootstrap=target.bootstrap,
                topic=topic,
                options={**SMALL, "stagingLocation": str(location)},
            )

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(one, range(2)))

    rows(spark).write.parquet(str(tmp_path / "source"))
    query = (
        spark.readStream.schema("key STRING, value STRING")
        .parquet(str(tmp_path / "source"))
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert committed() == numbers(range(ROWS))
    assert len(list(location.iterdir())) == 2
    assert files_in(location) == []


def test_batches_without_rows_and_tasks_without_rows(spark, stream, options, committed):
    rows(spark, tasks=8).where("key = '7'").write.format("ottla").mode("append").options(
        **options
    ).save()
    rows(spark).where("false").write.format("ottla").mode("append").options(**options).save()
    assert committed() == ["7"]
