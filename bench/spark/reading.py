"""Reading topics in Spark: ``format("ottla")`` beside Spark's own Kafka connector, tuned.

    python -m bench.spark.reading                      all of it: ten minutes and up
    python -m bench.spark.reading --sizes 100 --codecs none,lz4 --rounds 3 --json FILE
    python -m bench.spark.reading --streaming          AvailableNow to noop, ten micro-batches, too
    python -m bench.spark.reading --queries stream     nothing but that
    python -m bench.spark.reading --ceiling            what Spark takes of prebuilt Arrow batches

One broker, one session (local[2], ``ottla.spark.session``), topics of two partitions. In each
round every arm runs each query once, in turn; round 0 is left out, of the others the median is
shown, with least and most. CPU is user and system of the driver: this process, the JVM and every
Python worker; not the broker's. The connector's jars come from Maven (tools/kafka_peer.py), its
Kafka client is tuned: fetches of 16 MiB a partition, 20,000 records a poll, a 4 MiB receive buffer,
which about doubles its speed. Both arms of "value" and "two" are asked for the same; ours is told
the columns (``columns=``), since Spark does not tell a Python source. Linux only.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.kafka_peer import KafkaPeer, connector_libraries
from tools.ottla_peer import OttlaPeer
from tools.peer import Peer

PARTITIONS = 2
BATCH_BYTES = 128 << 10
"""Of a record batch before compression: between a producer's default, 16 kB, and a tuned one's."""
TUNED = {
    "kafka.max.partition.fetch.bytes": 16 << 20,
    "kafka.fetch.max.bytes": 64 << 20,
    "kafka.max.poll.records": 20_000,
    "kafka.receive.buffer.bytes": 4 << 20,
}
MICRO_BATCHES = 10
QUERIES = {
    "value": ("value", ["sum(length(value))"]),
    "two": ("key,value", ["sum(length(key))", "sum(length(value))"]),
    "all": (
        "",
        [
            "sum(length(key))",
            "sum(length(value))",
            "max(length(topic))",
            "sum(partition)",
            "max(offset)",
            "max(timestamp)",
            "sum(timestampType)",
        ],
    ),
}
"""By name: what ours is told to bring (empty: all), and what is asked."""


class Run(NamedTuple):
    """One query by one arm."""

    wall_s: float
    cpu_s: float
    java_s: float = 0.0
    """What the JVM has of ``cpu_s``; the rest is Python."""


def cpu_seconds() -> tuple[float, float]:
    """Return what this process and all below it have used, those that ended included.

    Second what the JVM has of it, without what is below it.
    """
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    java = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path("/proc", name, "stat").read_text()
        except OSError:
            continue
        fields = stat.rpartition(")")[2].split()
        parents[int(name)] = int(fields[1])
        used[int(name)] = sum(map(int, fields[11:15]))
        if "(java)" in stat and int(fields[1]) == os.getpid():
            java += sum(map(int, fields[11:13]))
    ours = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        if not more:
            break
        ours |= more
    ticks = os.sysconf("SC_CLK_TCK")
    return sum(used.get(pid, 0) for pid in ours) / ticks, java / ticks


def fill(peer: Peer, topic: str, *, size: int, records: int, codec: str) -> int:
    """Write ``records`` of ``size`` bytes, keys of ten, in prebuilt batches; return how many."""
    from confluent_kafka.admin import AdminClient, NewTopic

    from ottla.client.blocking.cluster import BlockingClient
    from ottla.client.wire.settings import ClientSettings, parse_bootstrap

    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    config = {"max.message.bytes": 8 << 20, "retention.ms": -1}
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(30)
    settings = ClientSettings(bootstrap=parse_bootstrap(peer.bootstrap))
    per_batch = max(BATCH_BYTES // (size + 20), 1)
    batches = make_batches(size, per_batch, codec)
    with BlockingClient(settings) as client:
        client.refresh([topic])
        for number in range(records // per_batch):
            send(client, topic, number % PARTITIONS, batches[number % len(batches)])
    return records // per_batch * per_batch


def make_batches(size: int, count: int, codec: str) -> list[bytes]:
    """Return some batches of text that compresses about as JSON does."""
    from ottla.records.builder import build_batch
    from ottla.records.compression import Codec
    from ottla.records.record import Record

    chance = random.Random(7)
    words = [chance.randbytes(chance.randrange(1, 6)).hex() for _ in range(2000)]
    made = []
    for number in range(8):
        records = []
        for index in range(count):
            text = f'{{"id":{number * count + index},"at":{chance.random()},"words":"'
            while len(text) < size:
                text += chance.choice(words) + " "
            key = b"%010d" % chance.randrange(10**9)
            records.append(
                Record(timestamp=1_700_000_000_000 + index, key=key, value=text[:size].encode())
            )
        made.append(bytes(build_batch(records, codec=Codec[codec.upper()])))
    return made


def send(client: Any, topic: str, partition: int, batch: bytes) -> None:
    """Produce one batch and see that it was taken."""
    from ottla.client.wire.sending import produce_request, produce_version_limit, read_produce
    from ottla.errors import KafkaError
    from ottla.ids import TopicPartition
    from ottla.protocol.messages.produce import ProduceResponse

    where = TopicPartition(topic, partition)
    request = produce_request(client.view, {where: batch}, acks=1, timeout_ms=30_000)
    leader = client.view.partition(topic, partition).leader
    limit = produce_version_limit(client.view, [where])
    answer = client.connection(leader).call(request, ProduceResponse, highest=limit)
    appended = read_produce(client.view, answer)[where]
    if appended.error:
        raise KafkaError(appended.error, appended.message)


def arms(spark: Any, bootstrap: str, topic: str, query: str) -> dict[str, Callable[[], Any]]:
    """Return what to run: name to a function that runs the query and returns its row."""
    columns, asked = QUERIES[query]

    def load(source: str, options: Mapping[str, object]) -> Any:
        reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap)
        reader = reader.option("subscribe", topic)
        for key, value in options.items():
            reader = reader.option(key, value)
        return reader.load().selectExpr(*asked).collect()[0]

    ours = {"columns": columns} if columns else {}
    return {"jvm": lambda: load("kafka", TUNED), "ottla": lambda: load("ottla", ours)}


def streams(spark: Any, bootstrap: str, topic: str, records: int) -> dict[str, Callable[[], Any]]:
    """Return what to run: each arm reads the topic in micro-batches to a sink that drops it."""

    def run(source: str, options: Mapping[str, object]) -> int:
        reader = spark.readStream.format(source).option("kafka.bootstrap.servers", bootstrap)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        reader = reader.option("maxOffsetsPerTrigger", -(-records // MICRO_BATCHES))
        for key, value in options.items():
            reader = reader.option(key, value)
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = reader.load().writeStream.format("noop").trigger(availableNow=True)
            query = writer.option("checkpointLocation", checkpoint).start()
            query.awaitTermination()
            return sum(each["numInputRows"] for each in query.recentProgress)

    return {"jvm": lambda: run("kafka", TUNED), "ottla": lambda: run("ottla", {})}


def measure(run: Callable[[], Any]) -> tuple[Run, Any]:
    """Run once."""
    (cpu, java), wall = cpu_seconds(), time.monotonic()
    row = run()
    wall = time.monotonic() - wall
    cpu_after, java_after = cpu_seconds()
    return Run(wall, cpu_after - cpu, java_after - java), row


Arms = Mapping[str, Callable[[], Any]]


def compare(queries: Mapping[str, Arms], rounds: int) -> dict[str, dict[str, list[Run]]]:
    """Run every query by every arm, in turn within each round; the answers must be equal."""
    found: dict[str, dict[str, list[Run]]] = {}
    for number in range(rounds + 1):
        for query, named in queries.items():
            rows = {}
            for name in sorted(named, reverse=bool(number % 2)):
                run, rows[name] = measure(named[name])
                if number:
                    found.setdefault(query, {}).setdefault(name, []).append(run)
            if len(set(rows.values())) != 1:
                raise RuntimeError(f"{query}: the answers differ: {rows}")
    return found


def show(what: str, records: int, found: Mapping[str, Mapping[str, Sequence[Run]]]) -> None:
    """Print a line for each arm of each query: medians (least, most), and ratios of medians."""
    for query, by_arm in found.items():
        base = by_arm["jvm"]
        for arm, runs in by_arm.items():
            walls, cpus = [run.wall_s for run in runs], [run.cpu_s for run in runs]
            wall, cpu = median(walls), median(cpus)
            faster = median([run.wall_s for run in base]) / wall
            cheaper = median([run.cpu_s for run in base]) / cpu
            print(
                f"{what:12} {query:6} {arm:10} {records / wall / 1e6:5.2f} M/s"
                f" {records / cpu / 1e6:5.2f} M/cpu-s"
                f"  wall {wall:5.2f} ({min(walls):.2f} {max(walls):.2f})"
                f"  cpu {cpu:5.2f} ({min(cpus):.2f} {max(cpus):.2f})"
                f"  java {median([run.java_s for run in runs]):5.2f}"
                f"  ratio {faster:.2f} {cheaper:.2f}",
                flush=True,
            )


def ceiling(spark: Any, rounds: int) -> None:
    """Print what Spark takes of one prebuilt Arrow batch, yielded again and again by two tasks."""
    from bench.spark.ceiling import CeilingSource

    spark.dataSource.register(CeilingSource)
    for kind, size, total in (
        ("bigint", 8, 5_000_000),
        ("binary", 100, 5_000_000),
        ("binary", 1024, 1_000_000),
    ):
        best = Run(1e9, 1e9)
        for _ in range(rounds + 1):
            reader = spark.read.format("ceiling").option("kind", kind).option("size", size)
            frame = reader.option("total", total).load()
            asked = "sum(v)" if kind == "bigint" else "sum(length(v))"
            run, _ = measure(lambda frame=frame, asked=asked: frame.selectExpr(asked).collect())
            best = Run(min(best.wall_s, run.wall_s), min(best.cpu_s, run.cpu_s))
        speed = f"{total / best.wall_s / 1e6:.2f} M/s {total / best.cpu_s / 1e6:.2f} M/cpu-s"
        print(f"ceiling {kind:7} {size:5} B  {speed}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run the command line of the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,1024")
    parser.add_argument("--codecs", default="none,lz4,zstd")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=500, help="of values, for each topic")
    parser.add_argument("--broker", choices=["ottla", "kafka"], default="ottla")
    parser.add_argument("--conf", action="append", default=[], help="key=value for the session")
    parser.add_argument("--ceiling", action="store_true")
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--streaming", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)

    from ottla.spark.local import session

    jars = ",".join(map(str, sorted(connector_libraries().glob("*.jar"))))
    confs = dict(one.partition("=")[::2] for one in options.conf)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        kinds = {"ottla": OttlaPeer, "kafka": KafkaPeer}
        peer = kinds[options.broker](Path(directory, "data"))
        spark = session(master="local[2]", confs={"spark.jars": jars, **confs})
        if options.ceiling:
            ceiling(spark, options.rounds)
            return 0
        with peer:
            peer.start()
            for size in map(int, options.sizes.split(",")):
                for codec in options.codecs.split(","):
                    topic = f"bench-{size}-{codec}"
                    records = options.megabytes * 1_000_000 // size
                    records = fill(peer, topic, size=size, records=records, codec=codec)
                    where = spark, peer.bootstrap, topic
                    asked = options.queries.split(",") + ["stream"] * options.streaming
                    queries: dict[str, Arms] = {
                        query: streams(*where, records)
                        if query == "stream"
                        else arms(*where, query)
                        for query in asked
                    }
                    found = compare(queries, options.rounds)
                    show(f"{size} B {codec}", records, found)
                    results[topic] = {"records": records, "runs": found}
        spark.stop()
    if options.json:
        Path(options.json).write_text(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
