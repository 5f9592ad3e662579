"""Streams of format("ottla"): micro-batches, checkpoints, and what may become of a topic meanwhile.

Asked of Apache Kafka, too (``--target kafka``).
"""

import importlib.util
import os
import signal
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from pyspark.errors import StreamingQueryException

from ottla.spark import write_batch
from tools.wire_client import WireClient

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),  # one session, in one worker
    pytest.mark.timeout(300, func_only=True),
]


class Stream:
    """One query's place: a topic, a checkpoint, a table of Parquet files."""

    def __init__(self, spark, bootstrap, topic, directory):
        self.spark = spark
        self.bootstrap = bootstrap
        self.topic = topic
        self.directory = directory

    def start(self, *, available_now=True, **options):
        given = {"kafka.bootstrap.servers": self.bootstrap, "startingOffsets": "earliest"}
        if "subscribePattern" not in options:
            given["subscribe"] = self.topic
        frame = self.spark.readStream.format("ottla").options(**{**given, **options}).load()
        writer = frame.writeStream.format("parquet").option("path", str(self.directory / "table"))
        writer = writer.option("checkpointLocation", str(self.directory / "checkpoint"))
        trigger = (
            {"availableNow": True} if available_now else {"processingTime": "100 milliseconds"}
        )
        return writer.trigger(**trigger).start()

    def run(self, **options):
        """Read all there is; return the progress of the micro-batches that had rows."""
        query = self.start(**options)
        assert query.awaitTermination(120)
        return [each for each in query.recentProgress if each["numInputRows"]]

    def rows(self):
        frame = self.spark.read.parquet(str(self.directory / "table"))
        return sorted((row.partition, row.offset, bytes(row.value)) for row in frame.collect())


@pytest.fixture
def topic(target):
    name = f"stream-{uuid.uuid4().hex[:8]}"
    with WireClient(target.bootstrap) as wire:
        wire.create_topic(name, 2)
    return name


@pytest.fixture
def stream(spark, target, topic, tmp_path):
    return Stream(spark, target.bootstrap, topic, tmp_path)


@pytest.fixture
def produce(target, topic):
    from confluent_kafka import Producer

    def write(partition, first, count, *, to=topic, bootstrap=target.bootstrap):
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        for number in range(first, first + count):
            producer.produce(to, b"%d" % number, None, partition)
        assert producer.flush(30) == 0

    return write


def rows_of(partition, first, count):
    return [(partition, offset, b"%d" % offset) for offset in range(first, first + count)]


def test_available_now_reads_all_in_pieces_and_publishes_its_progress(
    stream, produce, topic, target
):
    from ottla.spark import lag

    produce(0, 0, 60)
    produce(1, 0, 20)
    batches = stream.run(maxOffsetsPerTrigger="30", **{"group.id": f"group-{topic}"})
    assert [each["numInputRows"] for each in batches] == [30, 30, 20]
    assert stream.rows() == rows_of(0, 0, 60) + rows_of(1, 0, 20)
    assert [sum(lag(each).values()) for each in batches] == [50, 20, 0]
    assert committed(target, f"group-{topic}", topic) == {0: 60, 1: 20}


def test_a_stream_of_quick_micro_batches_lets_small_ranges_share_tasks(spark, stream, produce):
    produce(0, 0, 100)
    produce(1, 0, 100)
    query = stream.start(maxOffsetsPerTrigger="20")
    assert query.awaitTermination(120)
    tracker = spark.sparkContext.statusTracker()
    jobs = tracker.getJobIdsForGroup(str(query.runId))
    stages = [each for job in jobs for each in tracker.getJobInfo(job).stageIds]
    tasks = [tracker.getStageInfo(each).numTasks for each in sorted(stages)]
    assert len(tasks) == 10
    assert set(tasks[:-1]) == {2}, "what waits needs all tasks there can be"
    assert tasks[-1] == 1
    assert stream.rows() == rows_of(0, 0, 100) + rows_of(1, 0, 100)


def test_a_micro_batch_that_is_repeated_is_divided_into_the_same_tasks(
    spark, target, topic, produce, tmp_path
):
    """Rows with an id by their task are the same again, so exactly once leaves them out."""
    given = {"kafka.bootstrap.servers": target.bootstrap, "startingOffsets": "earliest"}
    copy, killed = f"{topic}-copy", threading.Event()
    with WireClient(target.bootstrap) as wire:
        wire.create_topic(copy, 1)

    def function(frame, number):
        rows = frame.selectExpr("concat(value, '/', monotonically_increasing_id()) AS value")
        is_shared = frame.count() == 2 and frame.rdd.getNumPartitions() == 1
        write_batch(rows, number, name=copy, bootstrap=target.bootstrap, topic=copy)
        if is_shared and not killed.is_set():
            killed.set()
            raise RuntimeError("killed after the write")

    def start(**trigger):
        frame = spark.readStream.format("ottla").options(**given, subscribe=topic).load()
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.foreachBatch(function).trigger(**trigger).start()

    query = start(processingTime="500 milliseconds")
    for count in range(60):
        produce(0, count, 1)
        produce(1, count, 1)
        if killed.wait(1):
            break
    assert killed.is_set()
    with pytest.raises(StreamingQueryException, match="killed after the write"):
        query.awaitTermination(60)
    assert start(availableNow=True).awaitTermination(120)
    found = spark.read.format("ottla").options(**given, subscribe=copy).load().collect()
    values = sorted(int(row.value.partition(b"/")[0]) for row in found)
    assert values == sorted([*range(count + 1), *range(count + 1)])


def test_small_ranges_of_a_micro_batch_share_a_task(spark, stream, produce):
    produce(0, 0, 60)
    produce(1, 0, 20)
    tracker = spark.sparkContext.statusTracker()
    tasks = {}
    for option in ("100", "1"):
        (batch,) = stream.run(minRecordsPerPartition=option)
        jobs = tracker.getJobIdsForGroup(batch["runId"])
        stages = [each for job in jobs for each in tracker.getJobInfo(job).stageIds]
        tasks[option] = sum(tracker.getStageInfo(each).numTasks for each in stages)
        produce(0, 60, 10)
        produce(1, 20, 10)
    assert tasks == {"100": 1, "1": 2}
    assert stream.rows() == rows_of(0, 0, 70) + rows_of(1, 0, 30)


def committed(target, group, topic):
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Place

    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": group})
    try:
        places = consumer.committed([Place(topic, 0), Place(topic, 1)], timeout=30)
        return {place.partition: place.offset for place in places}
    finally:
        consumer.close()


def test_a_checkpoint_goes_on_where_it_was_also_in_partitions_that_are_new(
    stream, produce, topic, target
):
    from confluent_kafka.admin import AdminClient, NewPartitions

    produce(0, 0, 10)
    stream.run()
    produce(0, 10, 5)
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    produce(2, 0, 7)
    batches = stream.run(startingOffsets="latest")
    assert [each["numInputRows"] for each in batches] == [12]
    assert stream.rows() == rows_of(0, 0, 15) + rows_of(2, 0, 7)


def test_a_topic_made_anew_is_told_or_begun_anew(stream, produce, topic, target):
    from confluent_kafka.admin import AdminClient

    produce(0, 0, 10)
    stream.run()
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    with WireClient(target.bootstrap) as wire:
        wire.create_topic(topic, 2)
    produce(0, 0, 20)
    told = f"TopicRecreated.*{topic}-0: the topic was deleted and"
    with pytest.raises(Exception, match=told) as caught:
        stream.run()
    assert "Traceback" not in str(caught.value)
    batches = stream.run(failOnDataLoss="false")
    assert [each["numInputRows"] for each in batches] == [20]


def test_records_that_were_deleted_are_told_or_gone_over(stream, produce, topic, target):
    from confluent_kafka import TopicPartition as Place
    from confluent_kafka.admin import AdminClient

    produce(0, 0, 10)
    stream.run()
    produce(0, 10, 10)
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    (deleted,) = admin.delete_records([Place(topic, 0, 15)]).values()
    deleted.result(30)
    with pytest.raises(Exception, match=rf"DataAgedOut.*{topic}-0: offsets \[10, 15\) are gone"):
        stream.run()
    stream.run(failOnDataLoss="false")
    assert stream.rows() == rows_of(0, 0, 10) + rows_of(0, 15, 5)


def descendants():
    """The processes that this one, and so its JVM, has started: (process id, command)."""
    found, parents = {}, {}
    for place in Path("/proc").iterdir():
        try:
            found[int(place.name)] = (place / "cmdline").read_bytes().decode("utf-8", "replace")
            after_name = (place / "stat").read_text().rpartition(")")[2].split()
            parents[int(place.name)] = int(after_name[1])
        except (ValueError, OSError):
            continue

    def is_ours(number):
        while number > 1 and number != os.getpid():
            number = parents.get(number, 0)
        return number == os.getpid()

    return [(number, text) for number, text in found.items() if is_ours(number)]


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_stream_whose_planner_is_killed_is_started_again(stream, produce, caplog):
    import ottla.spark

    queries = []

    def start():
        queries.append(stream.start(available_now=False))
        return queries[-1]

    def until(is_so):
        for _ in range(600):
            if is_so():
                return
            time.sleep(0.1)
        raise AssertionError(queries and queries[-1].exception())

    def read():
        return sum(each["numInputRows"] for query in queries for each in query.recentProgress)

    produce(0, 0, 10)
    runner = threading.Thread(target=ottla.spark.keep_running, args=[start], daemon=True)
    runner.start()
    until(lambda: read() == 10)
    killed = [number for number, text in descendants() if "ottla.spark.planner" in text]
    for number in killed:
        os.kill(number, signal.SIGKILL)
    assert killed
    produce(0, 10, 5)
    until(lambda: len(queries) > 1 and read() == 15)
    assert "a Python process of Spark's has ended without a word" in caplog.text, caplog.text
    queries[-1].stop()
    runner.join(60)
    assert not runner.is_alive()
    assert stream.rows() == rows_of(0, 0, 15)


def test_an_option_without_meaning_in_a_stream_is_one_clear_error(stream):
    with pytest.raises(Exception, match="option endingOffsets has a meaning in a batch query only"):
        stream.run(endingOffsets="latest")


def test_a_running_stream_outlasts_its_broker(spark, ottla_server_factory, produce, tmp_path):
    from tools.kafka_peer import free_port

    server = ottla_server_factory(begin=False)
    server._asked_port = free_port()
    server.start()
    with WireClient(server.bootstrap) as wire:
        wire.create_topic("t", 1)
    stream = Stream(spark, server.bootstrap, "t", tmp_path)
    query = stream.start(available_now=False)
    try:
        produce(0, 0, 10, to="t", bootstrap=server.bootstrap)
        wait_for_rows(query, 10)
        server.kill9()
        server.start()
        produce(0, 10, 10, to="t", bootstrap=server.bootstrap)
        wait_for_rows(query, 20)
    finally:
        query.stop()
    assert stream.rows() == rows_of(0, 0, 20)


def wait_for_rows(query, count):
    deadline = time.monotonic() + 90
    while sum(each["numInputRows"] for each in query.recentProgress) < count:
        assert time.monotonic() < deadline, query.lastProgress
        assert query.exception() is None
        query.processAllAvailable()
        time.sleep(0.05)


def test_an_interrupted_query_reads_every_record_once(spark, target, topic, tmp_path):
    """The short form of tests/campaigns/interrupted_stream.py: errors instead of kills."""
    campaign = load_campaign()
    campaign.produce(target.bootstrap, topic, campaign.AT_ONCE)
    for stage in ("plan", "read", "sink"):
        query = campaign.start(spark, target.bootstrap, topic, tmp_path, stage=stage)
        with pytest.raises(Exception, match=f"interrupted at {stage}"):
            query.awaitTermination(60)
    campaign.start(spark, target.bootstrap, topic, tmp_path).awaitTermination(60)
    problems, count = campaign.judge(target.bootstrap, topic, tmp_path)
    assert problems == []
    assert count >= campaign.AT_ONCE


def load_campaign():
    from pyspark import cloudpickle

    path = Path(__file__).resolve().parent.parent / "campaigns" / "interrupted_stream.py"
    spec = importlib.util.spec_from_file_location("interrupted_stream", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # Spark's processes cannot import it
    return module
