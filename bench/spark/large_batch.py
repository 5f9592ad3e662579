"""One large micro-batch: exactly once, staged in files, beside at least once.

    python -m bench.spark.large_batch --megabytes 4096 --heap 1g
    python -m bench.spark.large_batch --megabytes 256 --rounds 2 --json FILE

One broker, one session (local[2], ``ottla.spark.session``) with a small heap, one topic of 1 KiB
values that a stream (``Trigger.AvailableNow``, no limit) copies in a single micro-batch, by each
delivery in turn. A copy at least once comes first and does not count: it takes the heap to its full
size, from which growth is measured. Memory is sampled five times a second, as the kernel counts it
(proportional set size): the JVM, which is driver and executor here, and all of Spark's Python
processes. CPU is that of both, without the broker's. The copies are read back: equal counts
and sums of hashes.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
from collections.abc import Sequence
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


def now_bytes() -> tuple[int, int]:
    """Return what the JVM and Spark's Python processes take now; this process is none of them."""
    jvm = python = 0
    for pid in below(os.getpid()):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"ottla\0serve" in command or b"kafka.Kafka" in command:
                continue
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            size = next(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:")
            if b"java" in command.split(b"\0")[0]:
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


def copy(spark: Any, bootstrap: str, topic: str, directory: str, delivery: str) -> int:
    """Copy the topic in one micro-batch. Returns how many micro-batches it took."""
    given = {"kafka.bootstrap.servers": bootstrap}
    frame = spark.readStream.format("ottla").options(**given, subscribe="source")
    query = (
        frame.options(startingOffsets="earliest", columns="key,value")
        .load()
        .writeStream.format("ottla")
        .options(**given, topic=topic, delivery=delivery)
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


def main(arguments: Sequence[str]) -> int:
    """Run the command line of the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=4096, help="of values, 2**20 bytes each")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--heap", default="1g")
    parser.add_argument("--broker", choices=["ottla", "unsynced", "kafka"], default="unsynced")
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
