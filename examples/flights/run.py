"""The main job: real flights through a broker, a pipeline of Spark, to a topic, table and picture.

    python3 dev.py flights                        with its own broker
    python3 dev.py flights --bootstrap HOST:PORT  with another Kafka (no kill and restart then)

1. start a broker             4. a streaming query of Spark: delays per airline and hour, to a topic
2. produce every flight          exactly once and to a Parquet table
3. read it back, compare      5. halfway kill -9 the query and the broker; start both again
                              6. compare topic and table with pandas; draw
"""

import argparse
import os
import shutil
import signal
import subprocess
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
DELAYS = "delays"
KILL_AFTER_BATCH = 4
STREAM_S_MAX = 900
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


class Pipeline:
    """The streaming query in a process of its own, with its JVM and its workers."""

    def __init__(self, bootstrap: str, topic: str, target: str, out: Path) -> None:
        command = [sys.executable, "-m", "examples.flights.stream", bootstrap, topic, target]
        # A session of its own: a kill reaches the JVM, too.
        self._process = subprocess.Popen([*command, str(out)], start_new_session=True)

    def wait_for(self, out: Path, batch: int) -> None:
        """Wait until the table has this micro-batch."""
        deadline = time.monotonic() + STREAM_S_MAX
        while not delays.is_written(out, batch):
            if self._process.poll() is not None:
                raise SystemExit("error: the query ended before it could be killed")
            if time.monotonic() > deadline:
                self.kill()
                raise SystemExit(f"error: no micro-batch {batch} in {STREAM_S_MAX} s")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a power cut would."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self) -> None:
        """Wait for its end."""
        try:
            if self._process.wait(STREAM_S_MAX) != 0:
                raise SystemExit("error: the query failed")
        except BaseException:
            if self._process.poll() is None:
                self.kill()
            raise


def analyse(bootstrap: str, topic: str, out: Path, broker: Broker | None) -> pd.DataFrame:
    """Let Spark answer into a topic and a table; kill it halfway, with the broker if it is ours."""
    target = f"{DELAYS}-{os.getpid()}"
    clients.create_topic(bootstrap, target, PARTITION_COUNT)
    say("starting the pipeline: flights, joined with airlines, per airline and hour")
    with timed("flights to a topic and a table by Spark, killed halfway"):
        pipeline = Pipeline(bootstrap, topic, target, out)
        pipeline.wait_for(out, KILL_AFTER_BATCH)
        pipeline.kill()
        say(f"pipeline killed (kill -9) after micro-batch {KILL_AFTER_BATCH}")
        if broker is not None:
            broker.kill()
            broker.start()
            say(f"broker killed (kill -9) and ready again after {broker.start_s * 1000:.0f} ms")
        Pipeline(bootstrap, topic, target, out).wait()
    expected = delays.by_pandas(data.airlines())
    found, count = delays.from_topic(bootstrap, target)
    delays.require_equal(found, expected)
    say(f"topic {target}: {count:,} rows, none twice; the newest {len(found)} are what pandas says")
    table = delays.from_table(out)
    delays.require_equal(table, expected)
    say(f"table: the newest {len(table)} rows are what pandas says")
    return table


def print_table(table: pd.DataFrame) -> None:
    """Print mean arrival delays, airlines down and hours across."""
    pivot = table.pivot_table("mean_arr_delay", ["carrier", "airline"], "hour").reset_index(
        "airline"
    )
    pivot.insert(1, "flights", table.groupby("carrier")["flights"].sum())
    print("Mean arrival delay in minutes by airline and hour of departure, 2013 (negative: early)")
    print(pivot.to_string(float_format=lambda minutes: f"{minutes:z.0f}", na_rep="-"))


def clear(out: Path) -> None:
    """Remove what an earlier run left in ``out``, and nothing else that may be there."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("broker", "delays.parquet", "checkpoint"):
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
        table = analyse(chosen.bootstrap, topic, out, None)
    else:
        table = run_own_broker(out)
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
        return analyse(broker.bootstrap, TOPIC, out, broker)
    finally:
        broker.stop()


if __name__ == "__main__":
    sys.exit(main())
