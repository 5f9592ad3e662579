"""A streaming query copies a topic while driver, workers and broker are killed: is each row there
once?

    python tests/campaigns/spark_exactly_once.py [--target ottla|kafka] [--rows 1000000]
        [--kills 20] [--batch-rows 10000] [--partitions 4] [--seed 1]

The query reads one topic and writes another with ``delivery=exactly-once``; rows change partition
on the way, so that every task writes everywhere. Kills (SIGKILL) are spread evenly over its
micro-batches: the driver with all that belongs to it, one of Spark's Python processes, or the
broker, which is started again on its data; at a random moment, while a transaction is open, or
between its commit and Spark's own note of it. Whenever the query ends it is started again, on its
checkpoint, until the input is used up; a query that was faster than the kills gets more input.
Where the driver was killed, the topic's marker and the checkpoint tell afterwards on which side of
the commit that was. Then another client (librdkafka, ``read_committed``) counts: every row once,
none else. Prints a JSON report; exit code 1 when a row was lost, doubled or invented.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.coordinators import BlockingCoordinators
from ottla.client.wire.settings import ClientSettings, parse_bootstrap
from ottla.errors import OttlaError
from ottla.ids import TopicPartition as InPartition
from ottla.spark.writing.marker import marker_place, read_marker
from tools.peer import Peer

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE, SINK = "rows", "copies"
VICTIMS = ("driver", "worker", "broker")
MOMENTS = ("any time", "in the transaction", "after its commit")
AIM_SECONDS = 20
"""So long a moment is waited for; then any will do."""
STALLED_SECONDS = 900
"""Without a micro-batch for so long, something hangs."""


def query(bootstrap: str, checkpoint: str, batch_rows: int) -> None:
    """Run the query until the input is used up. In a process of its own."""
    import ottla.spark

    # Three attempts for a task: a worker that dies need not end the query.
    spark = ottla.spark.session(
        "exactly-once", master="local[2,3]", confs={"spark.driver.memory": "768m"}
    )
    rows = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_rows)
        .load()
    )
    running = (
        rows.selectExpr("CAST(CAST(value AS STRING) AS BINARY) AS value", "value AS key")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", SINK)
        .option("delivery", "exactly-once")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination()


def row(number: int) -> bytes:
    """Return the value of a row."""
    return b"row-%09d" % number


class Campaign:
    """One run: the broker, the query, and what was killed."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self.options = options
        self.random = random.Random(options.seed)
        self.rows = 0
        """So many are in the input."""
        self.pace = 2.0
        """Seconds from one micro-batch to the next, the fastest seen."""
        self.directory = directory
        self.checkpoint = directory / "checkpoint"
        self.peer = self._peer()
        self.driver: subprocess.Popen[bytes] | None = None
        self.kills: Counter[str] = Counter()
        self.moments: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        """Where drivers that were killed had come to, by the topic and the checkpoint."""
        self.starts = 0
        self._client: BlockingClient | None = None

    def _peer(self) -> Peer:
        from tools.kafka_peer import KafkaPeer, free_port
        from tools.ottla_peer import OttlaPeer

        data = self.directory / "data"
        if self.options.target == "kafka":
            return KafkaPeer(data)
        return OttlaPeer(data, port=free_port())

    def run(self) -> dict[str, object]:
        """Fill the topic, copy it under fire, count. Returns the report."""
        begin = time.monotonic()
        with self.peer:
            self.peer.start()
            self.fill()
            try:
                self.copy()
            finally:
                self.end_driver()
            copied = time.monotonic()
            return {
                "target": self.options.target,
                "seed": self.options.seed,
                "rows": self.rows,
                "kills": dict(self.kills),
                "moments of the kills": dict(self.moments),
                "killed drivers had": dict(self.found),
                "starts of the query": self.starts,
                "micro-batches": self.batches(),
                "seconds": round(copied - begin),
                **self.count(),
            }

    def fill(self) -> None:
        """Make both topics, and write the input."""
        admin = AdminClient({"bootstrap.servers": self.peer.bootstrap})
        topics = [NewTopic(SOURCE, self.options.partitions, 1), NewTopic(SINK, 3, 1)]
        for made in admin.create_topics(topics).values():
            made.result(60)
        self.write(self.options.rows)

    def write(self, count: int) -> None:
        """Write so many rows more into the input."""
        producer = Producer(
            {
                "bootstrap.servers": self.peer.bootstrap,
                "acks": "all",
                "linger.ms": 20,
                "queue.buffering.max.messages": count + 1,
            }
        )
        for number in range(self.rows, self.rows + count):
            producer.produce(SOURCE, row(number), partition=number % self.options.partitions)
            if number % 10_000 == 0:
                producer.poll(0)
        if producer.flush(120):
            raise RuntimeError("the input was not written")
        self.rows += count

    # -- the query, and its enemies ----------------------------------------------------------------

    def copy(self) -> None:
        """Start the query again and again until all kills are done and it has ended by itself."""
        batches = max(1, self.options.rows // self.options.batch_rows)
        at = [batches * (n + 1) // (self.options.kills + 1) for n in range(self.options.kills)]
        while True:
            self.start_driver()
            assert self.driver is not None
            while self.driver.poll() is None:
                if at and self.batches() >= at[0]:
                    number = self.kills.total()
                    victim = VICTIMS[number % len(VICTIMS)]
                    moment = self.aim(MOMENTS[number // len(VICTIMS) % len(MOMENTS)], victim)
                    if self.kill(victim):
                        at.pop(0)
                        self.moments[moment] += 1
                time.sleep(0.05)
                self.watch()
            if self.driver.returncode == 0:
                if not at:
                    return
                self.write(3 * self.options.batch_rows)
                at[0] = min(at[0], self.batches() + 1)

    def start_driver(self) -> None:
        """Start the query's process, in a group of its own."""
        self.starts += 1
        if self.starts > self.options.kills + 10:
            raise RuntimeError(f"started {self.starts} times; see {self.directory}/driver.log")
        command = [sys.executable, __file__, "--query", self.peer.bootstrap, str(self.checkpoint)]
        command += ["--batch-rows", str(self.options.batch_rows)]
        paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        with (self.directory / "driver.log").open("ab") as log:
            self.driver = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )
        self.moved_at, self.moved_to = time.monotonic(), self.batches()

    def watch(self) -> None:
        """Raise when nothing moves any more."""
        batches = self.batches()
        if batches != self.moved_to:
            self.pace = min(self.pace, time.monotonic() - self.moved_at)
            self.moved_at, self.moved_to = time.monotonic(), batches
        if time.monotonic() - self.moved_at > STALLED_SECONDS:
            raise RuntimeError(f"no micro-batch for {STALLED_SECONDS} s after {batches}")

    def aim(self, moment: str, victim: str) -> str:
        """Wait for a moment to kill, and tell which it is.

        A driver that has come to it is stopped, and looked at again: it may have walked on.
        """
        is_there = {
            "in the transaction": self.is_in_transaction,
            "after its commit": self.is_committed_and_not_noted,
        }.get(moment)
        assert self.driver is not None
        deadline = time.monotonic() + AIM_SECONDS
        while is_there is not None and time.monotonic() < deadline:
            if self.driver.poll() is not None:
                break
            with contextlib.suppress(OttlaError):
                if is_there() and (victim != "driver" or self.stops_at(is_there)):
                    return moment
            time.sleep(0.002)
        time.sleep(self.random.uniform(0, self.pace))
        return MOMENTS[0]

    def stops_at(self, is_there: Callable[[], bool]) -> bool:
        """Stop the driver and its JVM; let them go on unless they are there still."""
        assert self.driver is not None
        os.killpg(self.driver.pid, signal.SIGSTOP)
        try:
            if is_there():
                return True
        except OttlaError:
            pass
        os.killpg(self.driver.pid, signal.SIGCONT)
        return False

    def is_in_transaction(self) -> bool:
        """Tell whether records are in the sink's topic that are not committed yet."""
        client = self.client()
        latest = {InPartition(SINK, number): -1 for number in range(3)}
        committed = client.list_offsets(latest, read_committed=True)
        return committed != client.list_offsets(latest)

    def is_committed_and_not_noted(self) -> bool:
        """Tell whether the topic has a batch that Spark has not in its books."""
        batches = self.batches()
        metadata = self.checkpoint / "metadata"
        if not metadata.exists():
            return False
        query_id = json.loads(metadata.read_text())["id"]
        place = marker_place(SINK)
        found = BlockingCoordinators(self.client()).committed(f"ottla-spark-{query_id}", [place])
        marker = read_marker(found.get(place))
        return marker is not None and marker.batch_id >= batches

    def client(self) -> BlockingClient:
        """Return a client of our own, kept until the broker goes."""
        if self._client is None:
            self._client = BlockingClient(
                ClientSettings(parse_bootstrap(self.peer.bootstrap), retry_timeout_ms=1000)
            )
        return self._client

    def kill(self, victim: str) -> bool:
        """Kill something, and tell whether it was there; the broker comes back."""
        assert self.driver is not None
        if self.driver.poll() is not None:
            return False
        if victim == "broker":
            if self._client is not None:
                self._client.close()
                self._client = None
            self.peer.kill9()
            time.sleep(self.random.uniform(0, 1))
            self.peer.start()
        elif victim == "worker":
            workers = python_workers(self.driver.pid)
            if not workers:
                return False
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.random.choice(workers), signal.SIGKILL)
        else:
            self.end_driver()
            self.look_at_the_end()
        self.kills[victim] += 1
        return True

    def look_at_the_end(self) -> None:
        """Note where a driver had come to that was killed just now."""
        if self.is_in_transaction():
            self.found["rows in an open transaction"] += 1
        elif self.is_committed_and_not_noted():
            self.found["a batch that was committed and not noted"] += 1
        else:
            self.found["neither"] += 1

    def end_driver(self) -> None:
        """Kill the driver and all that it has started, the JVM first: at once, it is aimed at."""
        if self.driver is None or self.driver.poll() is not None:
            return
        os.killpg(self.driver.pid, signal.SIGKILL)
        for pid in processes_of_session(self.driver.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.driver.wait()

    def batches(self) -> int:
        """Return how many micro-batches Spark has noted as done. It removes old notes."""
        commits = self.checkpoint / "commits"
        names = os.listdir(commits) if commits.exists() else []
        return max((int(name) + 1 for name in names if name.isdigit()), default=0)

    # -- the judge ---------------------------------------------------------------------------------

    def count(self) -> dict[str, object]:
        """Return what is in the topic, and what is wrong with it."""
        found = Counter(self.read("read_committed"))
        expected = {row(number) for number in range(self.rows)}
        lost = expected - found.keys()
        invented = found.keys() - expected
        doubled = {value: times for value, times in found.items() if times > 1}
        aborted = sum(1 for _ in self.read("read_uncommitted")) - found.total()
        problems = [
            f"{len(values)} rows {what}, such as {sorted(values)[:3]}"
            for what, values in (("lost", lost), ("doubled", doubled), ("invented", invented))
            if values
        ]
        return {"committed": found.total(), "aborted": aborted, "problems": problems}

    def read(self, isolation: str) -> list[bytes]:
        """Return all values of the topic, by librdkafka."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.peer.bootstrap,
                "group.id": "judge",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        values: list[bytes] = []
        at_end: set[int] = set()
        try:
            consumer.assign([TopicPartition(SINK, number, 0) for number in range(3)])
            deadline = time.monotonic() + 300
            while len(at_end) < 3:
                if time.monotonic() > deadline:
                    raise RuntimeError("the result was not read to its end")
                for message in consumer.consume(10_000, 0.5):
                    error = message.error()
                    if error is None:
                        values.append(message.value())
                    elif error.code() == KafkaError._PARTITION_EOF:
                        at_end.add(message.partition())
        finally:
            consumer.close()
        return values


def processes_of_session(leader: int) -> list[int]:
    """Return the processes of a session, which those that its daemons fork belong to as well."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader:
                    found.append(int(entry.name))
    return found


def children_of() -> dict[int, list[int]]:
    """Return every process's children."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    return children


def descendants(pid: int) -> list[int]:
    """Return the processes below ``pid``."""
    children = children_of()
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def python_workers(pid: int) -> list[int]:
    """Return Spark's Python processes below a driver: those that plan, write and commit."""
    found = []
    for each in descendants(pid):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{each}/cmdline").read_bytes()
            if b"daemon" in command and b"java" not in command.split(b"\0")[0]:
                found.append(each)
    return found


def main() -> int:
    """Run one campaign, or the query of one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=["ottla", "kafka"], default="ottla")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--batch-rows", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--query", nargs=2, metavar=("BOOTSTRAP", "CHECKPOINT"))
    options = parser.parse_args()
    if options.query:
        query(*options.query, options.batch_rows)
        return 0
    directory = Path(tempfile.mkdtemp(prefix="ottla-spark-exactly-once-"))
    report = Campaign(options, directory).run()
    print(json.dumps(report, indent=1))
    if report["problems"]:
        print(f"data and logs: {directory}", file=sys.stderr)
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
