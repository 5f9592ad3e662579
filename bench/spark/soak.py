"""Streams that run for long, and what grows meanwhile.

    python -m bench.spark.soak                          an hour
    python -m bench.spark.soak --minutes 10 --streams 3 --rate 1000 --json FILE

One broker, one session (local[2], ``ottla.spark.session``), a topic that another process fills
evenly with values of 100 bytes, and streams with a trigger of one second that copy it: the first at
least once and with a group that shows its progress, the others exactly once, and of these every
second one through files (no message may hold more than a kilobyte). Each minute it notes the
JVM's heap and what lies beside it after a search for garbage, what the JVM and Spark's Python
processes hold (proportional set size: what several share counts once), how many processes and
descriptors there are, files in the checkpoints, and the batch times of that minute. At the end the
slope of each, per hour, by least squares over all but the first third, in which Spark fills up what
it keeps (a hundred batches in a checkpoint, compiled code); and what the sinks hold beside what
the sources gave.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.spark.large_batch import below, now_bytes
from bench.spark.steady import PRODUCER
from tools.ottla_peer import OttlaPeer

SAMPLE_SECONDS = 60
KINDS = (
    {"delivery": "at-least-once"},
    {"delivery": "exactly-once"},
    {"delivery": "exactly-once", "exactlyOnceMaxBytes": "1"},
)
"""How the streams write, in turn."""


def start(spark: Any, bootstrap: str, number: int, work: str) -> Any:
    """Start a stream into a topic of its own."""
    from confluent_kafka.admin import AdminClient, NewTopic

    sink = f"sink-{number}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(sink, 2, 1)])[sink].result(30)
    given = {"kafka.bootstrap.servers": bootstrap}
    group = {} if number else {"group.id": "shown"}
    return (
        spark.readStream.format("ottla")
        .options(**given, **group, subscribe="source", startingOffsets="earliest")
        .load()
        .select("key", "value")
        .writeStream.format("ottla")
        .options(**given, **KINDS[number % len(KINDS)], topic=sink)
        .option("checkpointLocation", f"{work}/checkpoints/{number}")
        .trigger(processingTime="1 second")
        .start()
    )


def sample(spark: Any, queries: Sequence[Any], work: str, since: Sequence[int]) -> dict[str, float]:
    """Return what there is now; ``since`` has each query's last batch before this minute."""
    management = spark._jvm.java.lang.management.ManagementFactory  # noqa: SLF001
    memory = management.getMemoryMXBean()
    for _ in range(2):  # what finalizers and cleaners let go of goes the second time
        memory.gc()
    heap, beside = memory.getHeapMemoryUsage().getUsed(), memory.getNonHeapMemoryUsage().getUsed()
    jvm, python = now_bytes()
    jvm_files = python_files = python_processes = 0
    for pid in below(os.getpid()):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            files = len(os.listdir(f"/proc/{pid}/fd"))
            if b"java" in command[0]:  # or a child that is about to be chmod, with all of its files
                jvm_files = files if not jvm_files else min(jvm_files, files)
            elif b"serve" not in command and b"-c" not in command:
                python_files += files
                python_processes += 1
    times = [
        each["durationMs"]["triggerExecution"]
        for query, last in zip(queries, since, strict=True)
        for each in query.recentProgress
        if each["batchId"] > last
    ]
    return {
        "heap_mb": heap / 2**20,
        "beside_heap_mb": beside / 2**20,
        "jvm_mb": jvm / 2**20,
        "python_mb": python / 2**20,
        "python_processes": python_processes,
        "jvm_descriptors": jvm_files,
        "python_descriptors": python_files,
        "jvm_threads": management.getThreadMXBean().getThreadCount(),
        "checkpoint_files": sum(len(files) for _, _, files in os.walk(f"{work}/checkpoints")),
        "socket_files": socket_files(),
        "batches": len(times),
        "p50_ms": median(times),
        "p99_ms": sorted(times)[int((len(times) - 1) * 0.99)],
    }


def socket_files() -> int:
    """Return how many files are in this process's directory of sockets."""
    from ottla.spark.made_files import socket_directory

    directory = socket_directory()
    return 0 if directory is None else sum(1 for _ in directory.iterdir())


def slope(values: Sequence[float]) -> float:
    """Return the growth per sample, by least squares."""
    count = len(values)
    mean_x, mean_y = (count - 1) / 2, sum(values) / count
    apart = sum((x - mean_x) ** 2 for x in range(count))
    return sum((x - mean_x) * (y - mean_y) for x, y in enumerate(values)) / apart if apart else 0.0


def tell(samples: Sequence[dict[str, float]]) -> dict[str, float]:
    """Print where each figure began, ended, and how it grew; return the slopes per hour."""
    settled = samples[len(samples) // 3 :]
    slopes = {}
    print(f"{'':20} {'first':>9} {'settled':>9} {'last':>9} {'per hour':>9}")
    for name in samples[0]:
        values = [each[name] for each in settled]
        slopes[name] = slope(values) * 3600 / SAMPLE_SECONDS
        row = (samples[0][name], values[0], values[-1], slopes[name])
        print(f"{name:20} " + " ".join(f"{each:9.1f}" for each in row))
    return slopes


def counted(bootstrap: str, topic: str) -> int:
    """Return how many committed records a topic has, by librdkafka."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "count", "enable.partition.eof": True}
    consumer = Consumer(settings | {"isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    count, left = 0, 2
    while left:
        for message in consumer.consume(100_000, 1.0):
            error = message.error()
            if error is None:
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                left -= 1
    consumer.close()
    return count


def main(arguments: Sequence[str]) -> int:
    """Run the command line of the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--streams", type=int, default=3)
    parser.add_argument("--rate", type=int, default=1000, help="records a second, into the source")
    parser.add_argument("--heap", default="512m")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)

    from confluent_kafka.admin import AdminClient, NewTopic

    from ottla.spark.local import session

    samples: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as work:
        peer = OttlaPeer(Path(work, "data"))
        spark = session(master="local[2]", confs={"spark.driver.memory": options.heap})
        with peer:
            peer.start()
            admin = AdminClient({"bootstrap.servers": peer.bootstrap})
            admin.create_topics([NewTopic("source", 2, 1)])["source"].result(30)
            command = [sys.executable, "-c", PRODUCER, peer.bootstrap, str(options.rate)]
            queries = [start(spark, peer.bootstrap, n, work) for n in range(options.streams)]
            with subprocess.Popen(command) as producer:
                try:
                    for minute in range(options.minutes):
                        since = [(q.lastProgress or {"batchId": -1})["batchId"] for q in queries]
                        time.sleep(SAMPLE_SECONDS)
                        samples.append(sample(spark, queries, work, since))
                        told = {name: round(value, 1) for name, value in samples[-1].items()}
                        print(minute + 1, json.dumps(told), flush=True)
                finally:
                    producer.kill()
            for query in queries:
                query.processAllAvailable()
                query.stop()
            there = counted(peer.bootstrap, "source")
            copied = [counted(peer.bootstrap, f"sink-{n}") for n in range(options.streams)]
        spark.stop()
    slopes = tell(samples)
    print(f"source {there}, sinks {copied}")
    if options.json:
        Path(options.json).write_text(json.dumps({"samples": samples, "slopes": slopes}))
    return 0 if all(each == there for each in copied) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
