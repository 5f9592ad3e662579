"""One large micro-batch: exactly once, staged in files, beside at least once.

    python -m bench.spark.large_batch --megabytes 4096 --heap 1g
    python -m bench.spark.large_batch --megabytes 256 --rounds 2 --json FILE
    python -m bench.spark.large_batch --megabytes 4096 --heap 1g --late 120

One broker, one session (local[2], ``ottla.spark.session``) with a small heap, one topic of 1 KiB
values that a stream (``Trigger.AvailableNow``, no limit) copies in a single micro-batch, by each
delivery in turn. A copy at least once comes first and does not count: it takes the heap to its full
size, from which growth is measured. Memory is sampled five times a second, as the kernel counts it
(proportional set size): the JVM, which is driver and executor here, and all of Spark's Python
processes. CPU is that of both, without the broker's. The copies are read back: equal counts
and sums of hashes.

``--late SECONDS`` is a check, no measurement: the transaction may be open for so long, and once a
quarter of the batch is in the topic, Spark's Python processes stand still until that is over. A
consumer of committed records must see none then; and at the end each row once.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.spark.reading import fill, measure
from bench.spark.writing import UNSYNCED, summed
from tools.kafka_peer import KafkaPeer
from tools.ottla_peer import OttlaPeer
from tools.peer import Peer

PARTITIONS = 2
VALUE_BYTES = 1024
DELIVERIES = ("at-least-once", "exactly-once")


SETTLED_SECONDS = 15.0
"""A coordinator looks so often, and a little more, for transactions that are open for too long."""


class Memory:
    """What the processes below this one take, sampled while the ``with`` block runs."""

    def __init__(self) -> None:
        self.peak_jvm = self.peak_python = self.peak = 0
        self._end = threading.Event()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._end.wait(0.2):
            jvm, python = now_bytes()
            self.peak_jvm = max(self.peak_jvm, jvm)
            self.peak_python = max(self.peak_python, python)
            self.peak = max(self.peak, jvm + python)


class Standstill(threading.Thread):
    """Stops Spark's Python processes amid a transaction until its time is over."""

    def __init__(self, bootstrap: str, topic: str, records: int, seconds: float) -> None:
        """So many ``records`` have to be in the topic first."""
        super().__init__(daemon=True)
        self._ends = partial(last_offsets, bootstrap, topic)
        self._committed = partial(committed_records, bootstrap, topic)
        self._records = records
        self._seconds = seconds
        self.seen: dict[str, int] = {}

    def run(self) -> None:
        """Fill ``seen``."""
        while self._ends("read_uncommitted") < self._records:
            time.sleep(0.05)
        stopped = [pid for pid, command in sparks() if not is_java(command)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(self._seconds + SETTLED_SECONDS)
            self.seen["sent"] = self._ends("read_uncommitted")
            self.seen["stable"] = self._ends("read_committed")
            self.seen["committed"] = self._committed()
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)


def last_offsets(bootstrap: str, topic: str, isolation: str) -> int:
    """Return the sum of the offsets up to which a consumer would read."""
    from confluent_kafka import Consumer, TopicPartition

    given = {"bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": isolation}
    consumer = Consumer(given)
    try:
        places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        return sum(consumer.get_watermark_offsets(place, 30)[1] for place in places)
    finally:
        consumer.close()


def committed_records(bootstrap: str, topic: str) -> int:
    """Return how many records a consumer of committed ones sees."""
    from confluent_kafka import Consumer, TopicPartition

    given = {"bootstrap.servers": bootstrap, "group.id": "all", "enable.partition.eof": True}
    consumer = Consumer({**given, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    seen, at_end = 0, set()
    while len(at_end) < PARTITIONS:
        for message in consumer.consume(1000, 1.0):
            if message.error() is None:
                seen += 1
            elif message.error().name() == "_PARTITION_EOF":
                at_end.add(message.partition())
            else:
                raise RuntimeError(message.error())
    consumer.close()
    return seen


def is_java(command: bytes) -> bool:
    """Tell whether a command line is a JVM's."""
    return b"java" in command.split(b"\0")[0]


def sparks() -> Iterator[tuple[int, bytes]]:
    """Yield the ids and command lines of Spark's processes; this process is none of them."""
    for pid in below(os.getpid()):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"ottla\0serve" not in command and b"kafka.Kafka" not in command:
                yield pid, command


def now_bytes() -> tuple[int, int]:
    """Return what the JVM and Spark's Python processes take now."""
    jvm = python = 0
    for pid, command in sparks():
        with suppress(OSError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            size = next(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:")
            if is_java(command):
                jvm += size << 10
            else:
                python += size << 10
    return jvm, python


def used_seconds(peer: Peer) -> float:
    """Return the CPU seconds of the broker."""
    assert peer.process is not None, "it runs"
    fields = Path(f"/proc/{peer.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def below(pid: int) -> list[int]:
    """Return the processes below ``pid``."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        more = children.get(waiting.pop(), [])
        found += more
        waiting += more
    return found


def copy(
    spark: Any, bootstrap: str, topic: str, directory: str, delivery: str, **options: Any
) -> int:
    """Copy the topic in one micro-batch. Returns how many micro-batches it took."""
    given = {"kafka.bootstrap.servers": bootstrap}
    frame = spark.readStream.format("ottla").options(**given, subscribe="source")
    query = (
        frame.options(startingOffsets="earliest", columns="key,value")
        .load()
        .writeStream.format("ottla")
        .options(**given, **options, topic=topic, delivery=delivery)
        .option("checkpointLocation", f"{directory}/{topic}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(each.numInputRows > 0 for each in query.recentProgress)


def run_once(spark: Any, peer: Peer, directory: str, delivery: str, number: int) -> dict[str, Any]:
    """Copy the source once and return what it took, and sums of what was written."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    topic = f"{delivery}-{number}"
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    before, brokers = sum(now_bytes()), used_seconds(peer)
    with Memory() as memory:
        run, batches = measure(partial(copy, spark, peer.bootstrap, topic, directory, delivery))
    brokers = used_seconds(peer) - brokers
    if batches != 1:
        raise RuntimeError(f"{batches} micro-batches, not one")
    sums = tuple(summed(spark, peer.bootstrap, topic)[:2])
    admin.delete_topics([topic])[topic].result(30)
    return {
        "wall_s": round(run.wall_s, 1),
        "cpu_s": round(run.cpu_s - brokers, 1),
        "brokers_cpu_s": round(brokers, 1),
        "peak_mb": memory.peak >> 20,
        "growth_mb": (memory.peak - before) >> 20,
        "peak_jvm_mb": memory.peak_jvm >> 20,
        "peak_python_mb": memory.peak_python >> 20,
        "sums": sums,
    }


def run_late(spark: Any, peer: Peer, directory: str, records: int, seconds: int) -> dict[str, Any]:
    """Copy the source exactly once though a transaction's time is over; return what was seen.

    Raises RuntimeError when a consumer of committed records sees some of what was aborted, or does
    not see each row once in the end.
    """
    from confluent_kafka.admin import AdminClient, NewTopic

    admin, topic = AdminClient({"bootstrap.servers": peer.bootstrap}), "late"
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    standstill = Standstill(peer.bootstrap, topic, records // 4, seconds)
    standstill.start()
    begun = time.monotonic()
    limit = {"kafka.transaction.timeout.ms": f"{seconds}s"}
    batches = copy(spark, peer.bootstrap, topic, directory, "exactly-once", **limit)
    standstill.join()
    found: dict[str, Any] = {"wall_s": round(time.monotonic() - begun, 1), "batches": batches}
    found |= standstill.seen
    found["sent_in_all"] = last_offsets(peer.bootstrap, topic, "read_uncommitted")
    # Which row comes to which partition is the sink's to say.
    committed = {"kafka.isolation.level": "read_committed", "columns": "key,value"}
    sums = [
        spark.read.format("ottla")
        .options(**{"kafka.bootstrap.servers": peer.bootstrap}, **committed, subscribe=each)
        .load()
        .selectExpr("count(*)", "sum(cast(hash(key, value) as bigint))")
        .collect()[0]
        for each in ("source", topic)
    ]
    found["rows"] = rows = sums[1][0]
    is_over = found["stable"] == found["sent"] > 0 and not found["committed"]
    if not is_over or found["sent_in_all"] < found["sent"] + rows or sums[0] != sums[1]:
        raise RuntimeError(f"not all at once, after nothing: {found}, {sums}")
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the command line of the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=4096, help="of values, 2**20 bytes each")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--heap", default="1g")
    parser.add_argument("--broker", choices=["ottla", "unsynced", "kafka"], default="unsynced")
    parser.add_argument("--late", type=int, default=0, metavar="SECONDS")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)

    from ottla.spark.local import session

    found: dict[str, list[dict[str, Any]]] = {each: [] for each in DELIVERIES}
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory, "data")
        unsynced = UNSYNCED if options.broker == "unsynced" else None
        peer = KafkaPeer(data) if options.broker == "kafka" else OttlaPeer(data, unsynced)
        spark = session(master="local[2]", confs={"spark.driver.memory": options.heap})
        with peer:
            peer.start()
            fill(peer, "source", size=VALUE_BYTES, records=options.megabytes << 10, codec="none")
            if options.late:
                records = options.megabytes << 10
                print(run_late(spark, peer, directory, records, options.late), flush=True)
                spark.stop()
                return 0
            for number in range(options.rounds + 1):
                for delivery in DELIVERIES[: 2 if number else 1]:
                    row = run_once(spark, peer, directory, delivery, number)
                    print(delivery, row, "" if number else "(warms up)", flush=True)
                    if number:
                        found[delivery].append(row)
        spark.stop()
    if len({row["sums"] for rows in found.values() for row in rows}) != 1:
        raise RuntimeError("what was written differs")
    least, once = ([row["cpu_s"] for row in found[each]] for each in DELIVERIES)
    print(f"CPU exactly once / at least once: {sum(once) / sum(least):.2f}")
    if options.json:
        Path(options.json).write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
