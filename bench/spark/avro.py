"""Avro values in Spark: ``value.format=avro`` beside ``from_avro``, on the connector and on ours.

    python -m bench.spark.avro --records 1000000 --rounds 3

One broker, one session (local[2], ``ottla.spark.session``), a topic of two partitions, values of
ten fields and some 84 bytes. Arms, in turn within each round: ``jvm`` (the tuned Kafka connector
and ``from_avro``), ``raw`` (format("ottla") and ``from_avro``), ``ottla`` (``value.format=avro``).
Queries: ``all`` aggregates over every field, ``one`` over one of them (which ours is told, by
``value.schema``; ``from_avro`` decodes all the same). The rest is as in ``bench.spark.reading``.
"""

import argparse
import io
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.spark.reading import BATCH_BYTES, PARTITIONS, TUNED, compare, send, show
from tools.kafka_peer import avro_libraries, connector_libraries
from tools.ottla_peer import OttlaPeer
from tools.peer import Peer

SCHEMA = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "paid", "type": "boolean"},
        {"name": "country", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["NEW", "OLD", "ODD"]}},
        {"name": "count", "type": "int"},
        {"name": "note", "type": "string"},
        {"name": "ratio", "type": "float"},
    ],
}  # fmt: skip
QUERIES = {
    "all": [
        "sum(v.id)", "sum(length(v.user))", "max(v.amount)", "max(v.at)", "count_if(v.paid)",
        "count(v.country)", "sum(length(v.kind))", "sum(v.count)", "sum(length(v.note))",
        "max(v.ratio)",
    ],
    "one": ["sum(v.count)"],
}  # fmt: skip


def value(number: int) -> dict[str, object]:
    """Return one order."""
    return {
        "id": number * 1_000_003,
        "user": f"user-{number:08d}",
        "amount": number / 7,
        "at": 1_700_000_000_000 + number,
        "paid": number % 2 == 0,
        "country": None if number % 3 == 0 else "DE",
        "kind": ("NEW", "OLD", "ODD")[number % 3],
        "count": number % 1000,
        "note": "x" * 38,
        "ratio": 0.5,
    }


def fill(peer: Peer, topic: str, records: int) -> int:
    """Write about ``records`` orders, the same few batches again and again; return how many."""
    import fastavro
    from confluent_kafka.admin import AdminClient, NewTopic

    from ottla.client.blocking.cluster import BlockingClient
    from ottla.client.wire.settings import ClientSettings, parse_bootstrap
    from ottla.records.builder import build_batch
    from ottla.records.record import Record

    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    config = {"max.message.bytes": 8 << 20, "retention.ms": -1}
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(30)
    schema = fastavro.parse_schema(SCHEMA)
    count = BATCH_BYTES // 100
    batches = []
    for first in range(0, 8 * count, count):
        made = []
        for number in range(first, first + count):
            file = io.BytesIO()
            fastavro.schemaless_writer(file, schema, value(number))
            made.append(Record(timestamp=1_700_000_000_000, key=None, value=file.getvalue()))
        batches.append(bytes(build_batch(made)))
    settings = ClientSettings(bootstrap=parse_bootstrap(peer.bootstrap))
    with BlockingClient(settings) as client:
        client.refresh([topic])
        for number in range(records // count):
            send(client, topic, number % PARTITIONS, batches[number % len(batches)])
    return records // count * count


def arms(spark: Any, bootstrap: str, topic: str, asked: list[str]) -> dict[str, Callable[[], Any]]:
    """Return what to run: name to a function that runs the query and returns its row."""
    from pyspark.sql.avro.functions import from_avro

    schema = json.dumps(SCHEMA)
    decoded = from_avro("value", schema).alias("v")

    def load(source: str, **options: object) -> Any:
        reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap)
        return reader.options(subscribe=topic, **options).load()

    ours = {"columns": "value", "value.format": "avro", "avroSchema": schema}
    if asked == QUERIES["one"]:
        ours["value.schema"] = "count int"
    return {
        "jvm": lambda: load("kafka", **TUNED).select(decoded).selectExpr(*asked).collect()[0],
        "raw": lambda: (
            load("ottla", columns="value").select(decoded).selectExpr(*asked).collect()[0]
        ),
        "ottla": lambda: (
            load("ottla", **ours).withColumnRenamed("value", "v").selectExpr(*asked).collect()[0]
        ),
    }


def main(arguments: Sequence[str]) -> int:
    """Run the command line of the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)

    from ottla.spark.local import session

    jars = [*connector_libraries().glob("*.jar"), *avro_libraries().glob("*.jar")]
    with tempfile.TemporaryDirectory() as directory:
        spark = session(master="local[2]", confs={"spark.jars": ",".join(map(str, jars))})
        with OttlaPeer(Path(directory, "data")) as peer:
            peer.start()
            records = fill(peer, "orders", options.records)
            queries = {
                name: arms(spark, peer.bootstrap, "orders", asked)
                for name, asked in QUERIES.items()
            }
            show("avro", records, compare(queries, options.rounds))
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
