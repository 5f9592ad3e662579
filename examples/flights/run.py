"""The main job: real flights through a broker, real clients and Spark, to a table and a picture.

    python3 dev.py flights                        with its own broker
    python3 dev.py flights --bootstrap HOST:PORT  with another Kafka (no kill and restart then)

1. start a broker             4. kill -9 the broker, start it again, read again: the same records
2. produce every flight       5. Spark: mean delays per carrier and month, from the topic
3. read it back, compare      6. compare with pandas; draw
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from examples.flights import clients, data, delays, digest, picture
from examples.flights.broker import Broker
from examples.flights.digest import Contents
from tools import kafka_peer

TOPIC = "flights"
PARTITION_COUNT = 3
STARTED = time.monotonic()


def say(text: str) -> None:
    """Tell progress on stderr; stdout gets the result."""
    print(f"{time.monotonic() - STARTED:6.1f} s  {text}", file=sys.stderr, flush=True)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Tell how long a step took, and how fast it went through the flights."""
    started = time.monotonic()
    yield
    took_s = time.monotonic() - started
    say(f"{what}: {took_s:.1f} s, {data.ROW_COUNT / took_s:,.0f} flights/s")


def produce(bootstrap: str, topic: str) -> Contents:
    """Create the topic, write every flight, return what was acknowledged."""
    clients.create_topic(bootstrap, topic, PARTITION_COUNT)
    with timed("produced by librdkafka"):
        written = clients.produce(bootstrap, topic, data.records())
    total = sum(content.record_count for content in written.values())
    if total != data.ROW_COUNT:
        raise SystemExit(f"error: {total} records acknowledged, expected {data.ROW_COUNT}")
    for partition, content in written.items():
        say(f"  partition {partition}: {content.record_count:,} records, digest {content.digest}")
    return written


def read_back(bootstrap: str, topic: str, written: Contents) -> None:
    """Read everything with two clients and compare with what was written."""
    with timed("read by kafka-python"):
        found = clients.read_with_kafka_python(bootstrap, topic)
    digest.require_equal(written, found, "kafka-python")
    counts = {partition: content.record_count for partition, content in written.items()}
    try:
        with timed("read by Java's ConsoleConsumer"):
            found = clients.read_with_java(bootstrap, topic, counts)
        digest.require_equal(written, found, "ConsoleConsumer")
    except kafka_peer.KafkaUnavailable as missing:
        say(f"read by Java's ConsoleConsumer: skipped ({missing})")
    say("  every partition: same count, same digest")


def analyse(bootstrap: str, topic: str, parquet: Path) -> pd.DataFrame:
    """Let Spark answer from the topic into Parquet; return what it wrote."""
    say("starting Spark")
    spark = delays.spark_session()
    try:
        with timed("read from the topic, aggregated and written to Parquet by Spark"):
            delays.mean_delays(spark, bootstrap, topic).write.mode("overwrite").parquet(
                str(parquet)
            )
    finally:
        spark.stop()
    return delays.read_result(parquet)


def print_table(table: pd.DataFrame) -> None:
    """Print mean arrival delays, carriers down and months across."""
    names = data.airlines()
    pivot = table.pivot_table("mean_arr_delay", "carrier", "month")
    pivot.insert(0, "flights", table.groupby("carrier")["flights"].sum())
    pivot.insert(0, "airline", [names[carrier] for carrier in pivot.index])
    print("Mean arrival delay in minutes by carrier and month, 2013 (negative: early)")
    print(pivot.to_string(float_format=lambda minutes: f"{minutes:z.1f}", na_rep="-"))


def clear(out: Path) -> None:
    """Remove what an earlier run left in ``out``, and nothing else that may be there."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("broker", "delays.parquet"):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in ("broker.log", "delays.png"):
        (out / name).unlink(missing_ok=True)


def main() -> int:
    """Run the whole story once."""
    parser = argparse.ArgumentParser(prog="dev.py flights", description="The flights example")
    parser.add_argument("--bootstrap", help="use this broker instead of an own one")
    parser.add_argument("--out", type=Path, default=Path("out/flights"), help="where results go")
    chosen = parser.parse_args()
    out: Path = chosen.out
    clear(out)

    if chosen.bootstrap:
        topic = f"{TOPIC}-{os.getpid()}"
        written = produce(chosen.bootstrap, topic)
        read_back(chosen.bootstrap, topic, written)
        table = analyse(chosen.bootstrap, topic, out / "delays.parquet")
    else:
        table = run_own_broker(out)
    delays.require_equal(table, delays.mean_delays_by_pandas())
    say(f"Spark and pandas agree on all {len(table)} rows")
    picture.draw(table, data.airlines(), out / "delays.png")
    print_table(table)
    print(f"\ntable    {out / 'delays.parquet'}\npicture  {out / 'delays.png'}")
    return 0


def run_own_broker(out: Path) -> pd.DataFrame:
    """Run the steps that need the broker, on one of our own that is killed once."""
    broker = Broker(out / "broker", out / "broker.log")
    try:
        broker.start()
        say(f"broker ready on {broker.bootstrap} after {broker.start_s * 1000:.0f} ms")
        written = produce(broker.bootstrap, TOPIC)
        read_back(broker.bootstrap, TOPIC, written)
        broker.kill()
        broker.start()
        say(f"broker killed (kill -9) and ready again after {broker.start_s * 1000:.0f} ms")
        read_back(broker.bootstrap, TOPIC, written)
        return analyse(broker.bootstrap, TOPIC, out / "delays.parquet")
    finally:
        broker.stop()


if __name__ == "__main__":
    sys.exit(main())
