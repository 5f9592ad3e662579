"""A task that hangs, and another attempt of it that Spark starts beside it: speculation.

Spark speculates on a cluster only, and on another host only, so this is a master and two workers on
two addresses of this machine. The attempt that hangs has handed its rows to the sink and never
ends; Spark kills it when the other one is done.
"""

import json
import subprocess
import sys
from collections import Counter

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from tools.ottla_peer import OttlaPeer
from tools.spark_cluster import SHARE, SparkCluster
from tools.wire_client import WireClient

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is there on Linux only"),
]
ROWS = 4_000
ONCE = {"delivery": "exactly-once", "stagingLocation": "@"}
WAYS = {
    "messages": ONCE,
    "files": {**ONCE, "exactlyOnceMaxBytes": "1"},
    "least": {"kafka.batch.size": "1000"},
}
JOB = """
import json, sys, time
import pyarrow as pa
from pathlib import Path
import ottla.spark

master, bootstrap, work, rows, ways, share = sys.argv[1:]
confs = dict(each.split("=", 1) for each in json.loads(share)) | {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
}
spark = ottla.spark.session("speculation", master=master, confs=confs, log_level="off")


def hanging(way):
    def one(batches):
        from pyspark import TaskContext

        task = TaskContext.get()
        for batch in batches:
            texts = pa.array([str(each) for each in batch.column(0).to_pylist()])
            yield pa.record_batch({"key": texts, "value": texts})
        Path(work, f"{way}-{task.partitionId()}-{task.attemptNumber()}").touch()
        if task.partitionId() == 0 and task.attemptNumber() == 0:
            deadline = time.monotonic() + 300
            while time.monotonic() < deadline:  # until it is killed
                time.sleep(0.05)

    return one


for way, options in json.loads(ways).items():
    frame = spark.range(0, int(rows), 1, 3).mapInArrow(hanging(way), "key string, value string")
    writer = frame.write.format("ottla").mode("append").option("topic", way).options(**options)
    writer.option("kafka.bootstrap.servers", bootstrap).save()
spark.stop()
"""


def values(bootstrap, topic):
    """What the topic has for readers of committed records, by librdkafka: value -> how often."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "enable.partition.eof": True}
    consumer = Consumer(settings | {"isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    found, left = Counter(), 2
    while left:
        for message in consumer.consume(10_000, 0.5):
            if message.error() is None:
                found[int(message.value())] += 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left -= 1
    consumer.close()
    return found


def test_a_task_that_runs_twice_writes_once_exactly_once_and_loses_nothing_else(tmp_path):
    with (
        OttlaPeer(tmp_path / "data", {}) as peer,
        SparkCluster(tmp_path / "cluster", hosts=2) as cluster,
    ):
        peer.start()
        with WireClient(peer.bootstrap) as wire:
            for way in WAYS:
                wire.create_topic(way, 2)
        ways = json.dumps(WAYS).replace("@", str(tmp_path / "staging"))
        given = [cluster.master, peer.bootstrap, str(tmp_path), str(ROWS), ways]
        done = subprocess.run(
            [sys.executable, "-c", JOB, *given, json.dumps(SHARE)],
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found = {way: values(peer.bootstrap, way) for way in WAYS}
    for way in WAYS:
        # The attempt that hangs had handed over its rows, and the other one has ended.
        assert (tmp_path / f"{way}-0-0").exists()
        assert (tmp_path / f"{way}-0-1").exists()
        assert found[way].keys() == set(range(ROWS)), way
    assert found["messages"].total() == found["files"].total() == ROWS
    assert [each for each in (tmp_path / "staging").rglob("*") if each.is_file()] == []
