"""Writing topics from Spark: ``format("ottla")`` beside Spark's own Kafka connector, tuned.

    python -m bench.spark.writing                      all of it: ten minutes and up
    python -m bench.spark.writing --sizes 100 --codecs none,lz4 --rounds 3 --json FILE

One broker, one session (local[2], ``ottla.spark.session``), a cached DataFrame of keys of 12 bytes
and values, topics of two partitions. In each round every arm writes once, in turn, into a topic of
its own; round 0 is left out, of the others the median is shown. CPU is the driver's, as in
``bench.spark.reading``. Both arms: acks=all, idempotent, Kafka's default level of each codec. The
connector's producer is tuned (batches of 512 KiB, 20 ms of linger, 64 MiB of buffer), which about
doubles its speed. The topics are read back once: equal counts and equal sums of hashes.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.spark.reading import Run, measure, show
from tools.kafka_peer import KafkaPeer, connector_libraries
from tools.ottla_peer import OttlaPeer
from tools.peer import Peer

PARTITIONS = 2
TUNED = {
    "kafka.batch.size": 512 << 10,
    "kafka.linger.ms": 20,
    "kafka.buffer.memory": 64 << 20,
}
FORMATS = {"jvm": "kafka", "ottla": "ottla"}
PHRASE = "the quick brown fox jumps over a lazy dog 0123456789"
UNSYNCED = {"log.flush.interval.messages": "1000000000"}
"""What a Kafka broker does, too."""


def frame(spark: Any, *, size: int, rows: int) -> Any:
    """Return ``rows`` rows, cached: half of each value is hexadecimal, half a phrase."""
    from pyspark.sql import functions as f

    unit_bytes = 64 + len(PHRASE)
    units = [
        f"sha2(cast(id * 31 + {number} as string), 256), '{PHRASE}'"
        for number in range(-(-size // unit_bytes))
    ]
    cached = spark.range(0, rows, 1, PARTITIONS).select(
        f.expr("cast(lpad(cast(id * 7919 % 1000000007 as string), 12, '0') as binary)").alias(
            "key"
        ),
        f.expr(f"cast(substr(concat({', '.join(units)}), 1, {size}) as binary)").alias("value"),
    )
    cached.cache().count()
    return cached


def write(rows: Any, bootstrap: str, topic: str, arm: str, codec: str) -> None:
    """Write all rows."""
    writer = rows.write.format(FORMATS[arm]).mode("append")
    settings = TUNED if arm == "jvm" else {}
    for key, value in settings.items():
        writer = writer.option(key, value)
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    writer.option("kafka.compression.type", codec).save()


def compare(
    spark: Any, peer: Peer, rows: Any, *, what: str, codec: str, rounds: int
) -> dict[str, list[Run]]:
    """Write the rows by every arm, in turn within each round."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    found: dict[str, list[Run]] = {}
    sums = set()
    for number in range(rounds + 1):
        for arm in sorted(FORMATS, reverse=bool(number % 2)):
            topic = f"{what}-{codec}-{number}-{arm}"
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
            run, _ = measure(partial(write, rows, peer.bootstrap, topic, arm, codec))
            if number:
                found.setdefault(arm, []).append(run)
            else:
                sums.add(summed(spark, peer.bootstrap, topic))
            admin.delete_topics([topic])[topic].result(30)
    if len(sums) != 1:
        raise RuntimeError(f"{what}, {codec}: what was written differs: {sums}")
    return found


def summed(spark: Any, bootstrap: str, topic: str) -> Any:
    """Return what two equal topics have in common, partition by partition."""
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    read = reader.option("subscribe", topic).option("columns", "key,value,partition").load()
    wanted = ["count(*)", "sum(length(value))", "sum(cast(hash(key, value, partition) as bigint))"]
    return read.selectExpr(*wanted).collect()[0]


def main(arguments: Sequence[str]) -> int:
    """Run the command line of the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,1024")
    parser.add_argument("--codecs", default="none,lz4,zstd")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=500, help="of values")
    parser.add_argument("--broker", choices=["ottla", "unsynced", "kafka"], default="kafka")
    parser.add_argument("--conf", action="append", default=[], help="key=value for the session")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)

    from ottla.spark.local import session

    jars = ",".join(map(str, sorted(connector_libraries().glob("*.jar"))))
    confs = dict(one.partition("=")[::2] for one in options.conf)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory, "data")
        kafka = options.broker == "kafka"
        unsynced = UNSYNCED if options.broker == "unsynced" else None
        peer = KafkaPeer(data) if kafka else OttlaPeer(data, unsynced)
        spark = session(
            master="local[2]",
            confs={"spark.jars": jars, "spark.driver.memory": "3g", **confs},
        )
        with peer:
            peer.start()
            for size in map(int, options.sizes.split(",")):
                count = options.megabytes * 1_000_000 // size
                rows = frame(spark, size=size, rows=count)
                for codec in options.codecs.split(","):
                    found = compare(
                        spark, peer, rows, what=f"w{size}", codec=codec, rounds=options.rounds
                    )
                    show(f"{size} B {codec}", count, {"write": found})
                    results[f"{size} {codec}"] = {"rows": count, "runs": found}
                rows.unpersist()
        spark.stop()
    if options.json:
        Path(options.json).write_text(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
