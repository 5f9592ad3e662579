"""Micro-batches written exactly once where Spark says little of them: foreachBatch in its forms.

In the function itself, in threads, over Spark Connect, with sinks that are written only sometimes,
with a checkpoint that lost a batch. A kill is an error after the write: Spark has not noted the
batch's end, and repeats it. Asked of Apache Kafka, too (``--target kafka``).
"""

import os
import shutil
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

import ottla.spark
from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.coordinators import BlockingCoordinators
from ottla.client.wire.settings import ClientSettings, parse_bootstrap
from ottla.client.wire.transacting import OffsetToCommit
from ottla.ids import TopicPartition
from ottla.spark.active import make_active
from ottla.spark.writing.marker import FOR_EVER_MS, begun_group, read_begun, write_begun
from tests.connect_session import COPY_TWICE
from tools.wire_client import WireClient

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),  # one session, in one worker
    pytest.mark.timeout(180),
]


@pytest.fixture
def topic(target, topic_name):
    with WireClient(target.bootstrap) as wire:
        wire.create_topic(topic_name, 2)
        wire.create_topic(f"{topic_name}-rejects", 1)
    return topic_name


@pytest.fixture
def values(target):
    """The values of a topic that a consumer of committed records sees, sorted."""
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka import TopicPartition as Partition

    def read(topic):
        consumer = Consumer(
            {
                "bootstrap.servers": target.bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        left = set(consumer.list_topics(topic, 30).topics[topic].partitions)
        consumer.assign([Partition(topic, number, 0) for number in left])
        found = []
        while left:
            for message in consumer.consume(1000, 1.0):
                if not message.error():
                    found.append(message.value().decode())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
        consumer.close()
        return sorted(found)

    return read


@pytest.fixture
def name():
    return uuid.uuid4().hex


@pytest.fixture
def save(target, topic, name):
    """Write a frame as plain code in foreachBatch does."""

    def write(frame, **more):
        options = {
            "kafka.bootstrap.servers": target.bootstrap,
            "topic": topic,
            "delivery": "exactly-once",
            "transactional.id": name,
        } | more
        given = {key: each for key, each in options.items() if each is not None}
        frame.write.format("ottla").mode("append").options(**given).save()

    return write


@pytest.fixture
def foreach(spark, tmp_path):
    """Run a query over lines of files, a file a batch, with a function; return its error."""
    from pyspark.errors import StreamingQueryException

    lines = tmp_path / "lines"
    lines.mkdir()

    def run(function, *files, checkpoint="checkpoint"):
        for number, text in enumerate(files, len(list(lines.iterdir()))):
            path = lines / f"{number:03}.txt"
            path.write_text(text)
            os.utime(path, (number, number))
        query = (
            spark.readStream.option("maxFilesPerTrigger", 1)
            .text(str(lines))
            .writeStream.foreachBatch(function)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(90)
        except StreamingQueryException as error:
            return str(error)
        return None

    return run


def killed_once(write):
    """Return a function that writes, and the first time ends as a kill after the write would."""
    calls = []

    def function(frame, number):
        write(frame, number)
        calls.append(number)
        if len(calls) == 1:
            raise RuntimeError("killed after the write")

    return function


def in_thread(work):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def test_a_repeated_batch_is_found_and_left_out(foreach, save, values, topic):
    function = killed_once(lambda frame, _: save(frame))
    assert "killed after the write" in foreach(function, "a\nb\n")
    assert foreach(function, "c\n") is None
    assert values(topic) == ["a", "b", "c"]


def test_a_second_write_under_one_id_is_refused_not_skipped(foreach, save, values, topic):
    def halves(frame, _):
        save(frame.where("value = 'a'"))
        save(frame.where("value = 'b'"))

    assert "a second time in the same run" in foreach(halves, "a\nb\n")

    def twice(frame, _):
        save(frame)
        save(frame)

    # The rows of the first half are there now under batch 0, and these are others.
    assert "onChangedBatch" in foreach(twice)
    assert values(topic) == ["a"]


def test_the_same_rows_twice_in_one_run_are_no_replay(foreach, save, values, topic):
    def twice(frame, _):
        save(frame)
        save(frame)

    assert "a second time in the same run" in foreach(twice, "a\n")
    assert values(topic) == ["a"]


def test_from_a_thread_an_id_without_a_batch_is_refused(spark, foreach, save, values, topic):
    def threaded(frame, _):
        def work():
            make_active(frame.sparkSession)
            save(frame)

        in_thread(work)

    assert "which micro-batch this is is not known" in foreach(threaded, "a\n")
    assert values(topic) == []


def test_each_sink_of_a_function_needs_an_id(foreach, save, values, topic):
    error = foreach(lambda frame, _: save(frame, **{"transactional.id": None}), "a\n")
    assert "needs the option transactional.id" in error
    assert values(topic) == []


def test_a_sink_that_is_written_only_sometimes_may_begin_and_pause(foreach, save, values, topic):
    """Rejects are what foreachBatch is for."""

    def rejects(frame, _):
        bad = frame.where("value LIKE 'bad%'")
        if not bad.isEmpty():
            save(bad)

    files = ["good\n", "good\n", "bad 2\n", "good\n", "good\n", "bad 5\n", "bad 6\n"]
    assert foreach(rejects, *files) is None
    assert values(topic) == ["bad 2", "bad 5", "bad 6"]


@pytest.fixture
def write_batch(target, name):
    def write(rows, number, **more):
        ottla.spark.write_batch(rows, number, name=name, bootstrap=target.bootstrap, **more)

    return write


@pytest.mark.parametrize("is_threaded", [False, True])
def test_one_line_writes_several_topics_exactly_once(
    foreach, write_batch, values, topic, is_threaded
):
    def write(frame, number):
        def work():
            bad = frame.value.startswith("bad")
            write_batch(
                {
                    topic: frame.where(~bad).selectExpr("value AS key", "value"),
                    f"{topic}-rejects": frame.where(bad),
                },
                number,
            )

        in_thread(work) if is_threaded else work()

    function = killed_once(write)
    assert "killed after the write" in foreach(function, "a\nbad 1\n")
    assert foreach(function, "b\n", "bad 2\n") is None
    assert values(topic) == ["a", "b"]
    assert values(f"{topic}-rejects") == ["bad 1", "bad 2"]


def test_one_line_writes_times_whatever_the_session_calls_a_timestamp(
    spark, foreach, write_batch, values, topic
):
    def write(frame, number):
        frame.sparkSession.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
        write_batch({topic: frame.selectExpr("value", "timestamp_millis(1) AS timestamp")}, number)

    assert foreach(write, "a\n") is None
    assert values(topic) == ["a"]


@pytest.fixture
def forget(target, name, topic):
    """Have the broker forget the marker, and what was begun be of eight days ago."""
    from confluent_kafka.admin import AdminClient

    def run():
        group, place = f"ottla-spark-{name}", TopicPartition(topic, 0)
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        admin.delete_consumer_groups([group])[group].result(30)
        with BlockingClient(ClientSettings(parse_bootstrap(target.bootstrap))) as client:
            coordinators = BlockingCoordinators(client)
            begun = read_begun(coordinators.committed(begun_group(group))[place])
            old = begun._replace(at_ms=begun.at_ms - 8 * 24 * 3_600_000)
            coordinators.keep(begun_group(group), {place: write_begun(old, 0)}, FOR_EVER_MS)

    return run


@pytest.mark.parametrize("is_threaded", [False, True])
def test_a_batch_whose_marker_has_expired_is_refused_not_doubled(
    foreach, write_batch, values, topic, forget, is_threaded
):
    """Killed after the write, and idle for longer than the broker keeps offsets of groups."""
    more = {}

    def write(frame, number):
        def work():
            write_batch(frame, number, topic=topic, **more)

        in_thread(work) if is_threaded else work()

    assert "killed after the write" in foreach(killed_once(write), "a\n")
    forget()
    for _ in range(2):
        assert "cannot tell whether" in foreach(write)
    assert values(topic) == ["a"]
    more["options"] = {"onMissingMarker": "skip"}  # somebody has looked: it is there
    assert foreach(write, "b\n") is None
    assert values(topic) == ["a", "b"]
    forget()
    del more["options"]
    assert foreach(write, "c\n") is None  # no batch is in doubt
    assert values(topic) == ["a", "b", "c"]


def test_one_line_refuses_other_rows_and_a_new_checkpoint(foreach, write_batch, values, topic):
    def write(frame, number):
        write_batch(frame, number, topic=topic)

    assert foreach(write, "a\n", "b\n") is None

    def other(frame, number):
        write_batch(frame.selectExpr("concat(value, '!') AS value"), number, topic=topic)

    assert "checkpoint is older" in foreach(other, checkpoint="another")
    assert values(topic) == ["a", "b"]


def test_one_line_with_other_rows_for_a_batch_is_refused(foreach, write_batch, values, topic):
    added = iter(["", "!"])

    def write(frame, number):
        write_batch(
            frame.selectExpr(f"concat(value, '{next(added)}') AS value"), number, topic=topic
        )
        raise RuntimeError("killed after the write")

    assert "killed after the write" in foreach(write, "a\n")
    assert "onChangedBatch" in foreach(write)
    assert values(topic) == ["a"]


def copied(spark, target, source, topic, checkpoint, **more):
    """Copy a topic exactly once, as far as it goes; return the error."""
    from pyspark.errors import StreamingQueryException

    options = {"kafka.bootstrap.servers": target.bootstrap}
    query = (
        spark.readStream.format("ottla")
        .options(subscribe=source, startingOffsets="earliest", **options)
        .load()
        .selectExpr("value", *more.pop("columns", ()))
        .writeStream.format("ottla")
        .options(topic=topic, delivery="exactly-once", **options, **more)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(90)
    except StreamingQueryException as error:
        return str(error)
    return None


@pytest.fixture
def produce(target, topic):
    from confluent_kafka import Producer

    def write(*texts):
        producer = Producer({"bootstrap.servers": target.bootstrap, "acks": "all"})
        for text in texts:
            producer.produce(f"{topic}-rejects", text)
        assert producer.flush(30) == 0

    return write


def test_a_checkpoint_that_lost_a_batch_is_refused_when_more_came(
    spark, target, topic, produce, values, tmp_path
):
    """Batch 1 is planned anew with what came since: its number is there, it is another batch."""
    path, kept = tmp_path / "checkpoint", tmp_path / "kept"

    def run(**more):
        return copied(spark, target, f"{topic}-rejects", topic, path, **more)

    produce("a")
    assert run() is None
    shutil.copytree(path, kept)
    produce("b")
    assert run() is None
    for more in ((), ("c",)):  # nothing came: the same rows are found. Then something did.
        shutil.rmtree(path)
        shutil.copytree(kept, path)
        produce(*more)
        error = run()
        assert (error is None) is (more == ())
    assert "was committed with 1 rows" in error
    assert "now it has 2" in error
    assert values(topic) == ["a", "b"]
    assert run(onChangedBatch="skip") is None
    produce("d")
    assert run() is None
    assert values(topic) == ["a", "b", "d"]


def test_rows_that_differ_each_time_are_found_by_the_plan(
    spark, target, topic, produce, values, tmp_path
):
    def run():
        columns = ("CAST(uuid() AS BINARY) AS key",)
        path = tmp_path / "checkpoint"
        return copied(spark, target, f"{topic}-rejects", topic, path, columns=columns)

    produce("a", "b")
    assert run() is None
    for each in ("0", ".0.crc"):  # killed before Spark noted the end
        (tmp_path / "checkpoint" / "commits" / each).unlink(missing_ok=True)
    assert run() is None
    assert values(topic) == ["a", "b"]


def test_a_stream_that_was_at_least_once_in_between_says_so(
    spark, target, topic, produce, values, tmp_path
):
    """The marker is older than the last batch: that one may have been cut short after its rows."""

    def run(**more):
        path = tmp_path / "checkpoint"
        return copied(spark, target, f"{topic}-rejects", topic, path, **more)

    for text, delivery in zip(
        "abc", ("exactly-once", "at-least-once", "exactly-once"), strict=True
    ):
        produce(text)
        error = run() if delivery == "exactly-once" else None
        if delivery == "at-least-once":
            error = at_least_once(spark, target, topic, tmp_path)
        assert (error is None) is (text != "c")
    assert "those in between were delivered in another way" in error
    assert run(onMissingMarker="write") is None
    assert values(topic) == ["a", "b", "c"]


def at_least_once(spark, target, topic, tmp_path):
    options = {"kafka.bootstrap.servers": target.bootstrap}
    query = (
        spark.readStream.format("ottla")
        .options(subscribe=f"{topic}-rejects", startingOffsets="earliest", **options)
        .load()
        .select("value")
        .writeStream.format("ottla")
        .options(topic=topic, **options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)


def test_markers_of_the_last_version_are_gone_on_from(
    spark, target, topic, produce, values, tmp_path
):
    """A checkpoint of today's users: the number was the offset, and nothing told the rows."""
    path = tmp_path / "checkpoint"

    def run():
        return copied(spark, target, f"{topic}-rejects", topic, path)

    produce("a")
    assert run() is None
    query_id = (path / "metadata").read_text().split('"')[3]
    name, place = f"ottla-spark-{query_id}", TopicPartition(topic, 0)
    metadata = f'{{"ottla": 1, "query": "{query_id}", "topic": "{topic}"}}'
    with BlockingClient(ClientSettings(parse_bootstrap(target.bootstrap))) as client:
        coordinators = BlockingCoordinators(client)
        producer = coordinators.take_over(name, 60_000)
        coordinators.commit_offsets(producer, name, {place: OffsetToCommit(0, metadata)})
        coordinators.end(producer, commit=True)
    for each in ("0", ".0.crc"):
        (path / "commits" / each).unlink(missing_ok=True)
    produce("b")
    assert run() is None
    assert values(topic) == ["a", "b"]


@pytest.mark.parametrize("way", ["helper", "forgotten", "plain"])
def test_over_connect_a_repeated_batch_is_left_out_or_refused(
    target, topic, name, values, tmp_path, forget, way
):
    """There the tasks know no batch: by name and number it is found, without them refused."""
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "0.txt").write_text("a\nb\n")
    command = [sys.executable, "-c", COPY_TWICE, target.bootstrap, topic, name, str(tmp_path), way]
    log = tmp_path / "log"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": tmp_path}
    with log.open("w") as errors, subprocess.Popen(command, **pipes, stderr=errors) as client:
        told = []
        for line in client.stdout:
            if line.startswith("ended:"):
                told.append(line)
                if way == "forgotten" and len(told) == 1:
                    forget()
                client.stdin.write("\n")
                client.stdin.flush()
            elif told:
                told[-1] += line
    assert len(told) == 2, log.read_text()
    if way == "plain":
        assert "which micro-batch this is is not known" in told[0]
        assert values(topic) == []
        return
    assert "killed after the write" in told[0]
    expected = "ended: fine" if way == "helper" else "cannot tell whether"
    assert expected in told[1]
    assert values(topic) == ["a", "b"]
