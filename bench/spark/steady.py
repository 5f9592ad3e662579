"""A stream with a trigger of one second, at steady rates: what a batch costs, and who pays.

    python -m bench.spark.steady                              all of it, in seven minutes
    python -m bench.spark.steady --rates 1000 --arms least,once --json FILE
    python -m bench.spark.steady --rates 1000 --streams 10 --arms jvm,least --rounds 1

One broker, one session (local[2], ``ottla.spark.session``), a topic of two partitions that another
process fills evenly with values of 100 bytes, and streams that copy it in turn: ``jvm`` (Spark's
Kafka connector on both sides), ``least`` (``format("ottla")``, at least once) and ``once`` (exactly
once); with ``--streams`` so many copies of it at a time. All of them run once before anything
counts, and each round begins with the next of them. The JVM goes on compiling for minutes: with
``--warm 2`` two rounds more come first that do not count. Of a turn the first seconds and batches
do not count. CPU is that of the session's processes, the broker's and the
producer's left out, by kind of process (the JVM, and Python by its main module), sampled so often
that Python processes which end are not missed. What Hadoop runs for each batch's checkpoint on a
local disk (``chmod``, ``readlink``), the same for each way, is told apart and counts in no ratio:
``commands_ms_per_batch``. Batch times are Spark's own. At the end each way's figures
of all rounds, and their ratios to the connector's. With 28 batches a p99 is the slowest but one:
``--rounds`` and ``--seconds`` give more.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.kafka_peer import connector_libraries
from tools.ottla_peer import OttlaPeer

WARM_SECONDS, WARM_BATCHES = 4, 3
CONNECTOR = "jvm"
ARMS = {
    "jvm": ("kafka", {}),
    "least": ("ottla", {"delivery": "at-least-once"}),
    "once": ("ottla", {"delivery": "exactly-once"}),
}
PRODUCER = """
import os, sys, time
from confluent_kafka import Producer
bootstrap, rate, parent = sys.argv[1], int(sys.argv[2]), os.getppid()
producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": 1})
begun, sent = time.monotonic(), 0
while os.getppid() == parent:  # one whose benchmark was killed would go on for ever
    due = int((time.monotonic() - begun) * rate)
    for _ in range(min(due - sent, 5_000)):
        producer.produce("source", b"x" * 100, b"%d" % sent)
        sent += 1
    producer.poll(0.01)
"""


class Cpu:
    """CPU seconds by kind of process while the ``with`` block runs."""

    def __init__(self, without: set[int]) -> None:
        self.by_kind: Counter[str] = Counter()
        self.processes: Counter[str] = Counter()
        self.python_mb: dict[str, int] = {}
        """By kind, when the Python processes held most; pages that they share count once."""
        self._without = without | {os.getpid()}
        self._end = threading.Event()
        self._seen: dict[int, tuple[str, float, float]] = {}
        self._ended: list[float] = []
        """Of the JVM's children that have ended, as it counts them: at the first and last look."""

    def __enter__(self) -> Self:
        self._look(first=True)
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._look()
        for kind, begin, end in self._seen.values():
            self.by_kind[kind] += end - begin
            self.processes[kind] += 1
        # They last for 3 ms: most of them nobody sees.
        self.by_kind["commands"] = self._ended[-1] - self._ended[0]

    def _sample(self) -> None:
        looks = 0
        while not self._end.wait(0.05):
            self._look()
            looks += 1
            if looks % 40 == 0:
                self.python_mb = max(self.python_mb, self._held_mb(), key=lambda a: sum(a.values()))

    def _held_mb(self) -> dict[str, int]:
        held: Counter[str] = Counter()
        for pid, (kind, _, _) in self._seen.items():
            if kind in {"jvm", "commands"}:
                continue
            with suppress(OSError):  # it is over
                told = Path("/proc", str(pid), "smaps_rollup").read_text()
                held[kind] += int(told.partition("\nPss:")[2].split()[0])
        return {kind: kilobytes >> 10 for kind, kilobytes in held.items()}

    def _look(self, *, first: bool = False) -> None:
        parents, used = {}, {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                parents[int(name)] = int(fields[1])
                used[int(name)] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
                if int(fields[1]) == os.getpid() and kind_of(int(name)) == "jvm":
                    ended = sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")
                    self._ended = [*self._ended[:1], ended]
        for pid, seconds in used.items():
            if pid in self._without or not self._is_below(pid, parents):
                continue
            kind, begin, _ = self._seen.get(pid) or (
                kind_of(pid),
                seconds if first else 0.0,
                seconds,
            )
            self._seen[pid] = (kind, begin, seconds)

    def _is_below(self, pid: int, parents: dict[int, int]) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid in self._without:
                return pid == os.getpid()
        return False


def kind_of(pid: int) -> str:
    """Return what a process is: the JVM, or the main module of a Python process."""
    with suppress(OSError):
        words = Path("/proc", str(pid), "cmdline").read_bytes().decode().split("\0")
        if "java" in words[0]:
            return "jvm"
        if "python" in words[0] and len(words) > 2:
            return words[-2].rpartition(".")[2]
    return "commands"  # Hadoop's, for files of the checkpoint


def warm_up(query: Any) -> None:
    """Wait until the first batches are done."""
    begun = time.monotonic()
    while True:
        time.sleep(1)
        progress = query.lastProgress
        seconds = time.monotonic() - begun
        if seconds > WARM_SECONDS and progress is not None and progress["batchId"] >= WARM_BATCHES:
            return
        if seconds > 120 or not query.isActive:
            raise RuntimeError(f"no batches within {seconds:.0f} s: {query.exception()}")


def start(spark: Any, bootstrap: str, arm: str, *, work: str) -> Any:
    """Start a stream that copies into a topic of its own; return its query."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name, more = ARMS[arm]
    sink = f"sink-{arm}-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(sink, 2, 1)])[sink].result(30)
    given = {"kafka.bootstrap.servers": bootstrap}
    return (
        spark.readStream.format(name)
        .options(**given, subscribe="source", startingOffsets="latest")
        .load()
        .select("key", "value")
        .writeStream.format(name)
        .options(**given, **more, topic=sink)
        .option("checkpointLocation", f"{work}/{sink}")
        .trigger(processingTime="1 second")
        .start()
    )


def run(
    spark: Any, peer: OttlaPeer, arm: str, *, rate: int, seconds: int, streams: int, work: str
) -> Any:
    """Copy for so long, and return what it took."""
    queries: list[Any] = []
    command = [sys.executable, "-c", PRODUCER, peer.bootstrap, str(rate)]
    with subprocess.Popen(command) as producer:
        try:
            queries += (start(spark, peer.bootstrap, arm, work=work) for _ in range(streams))
            for each in queries:
                warm_up(each)
            # Those that were warm first have gone on meanwhile: only now does anything count.
            first = [each.lastProgress["batchId"] for each in queries]
            assert peer.process is not None, "it runs"
            with Cpu({peer.process.pid, producer.pid}) as cpu:
                time.sleep(seconds)
            done = [
                each
                for query, last in zip(queries, first, strict=True)
                for each in query.recentProgress
                if each["batchId"] > last
            ]
        finally:
            for query in queries:
                query.stop()
            producer.kill()
    times = sorted(each["durationMs"]["triggerExecution"] for each in done)
    parts: Counter[str] = Counter()
    for each in done:
        parts.update(each["durationMs"])
    commands = cpu.by_kind.pop("commands")
    return {
        "cpu_s": round(sum(cpu.by_kind.values()), 1),
        "cpu_ms_per_batch": round(1000 * sum(cpu.by_kind.values()) / len(done)),
        "commands_ms_per_batch": round(1000 * commands / len(done)),
        "by_kind": {kind: round(used, 2) for kind, used in cpu.by_kind.most_common()},
        "processes": dict(cpu.processes),
        "python_mb": sum(cpu.python_mb.values()),
        "held_mb": cpu.python_mb,
        "batches": len(done),
        "rows": sum(each["numInputRows"] for each in done),
        "p50_ms": median(times),
        "p99_ms": _p99(times),
        "times_ms": times,
        "mean_ms": {part: round(total / len(done)) for part, total in parts.items()},
    }


def _p99(times: Sequence[int]) -> int:
    return sorted(times)[int((len(times) - 1) * 0.99)]


class Figures(NamedTuple):
    """What one way took in all rounds."""

    cpu_ms: float
    """For each batch."""
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, rows: Sequence[Any]) -> Self:
        """Put the rounds together."""
        times = [each for row in rows for each in row["times_ms"]]
        cpu_ms = 1000 * sum(row["cpu_s"] for row in rows) / len(times)
        return cls(cpu_ms, median(times), _p99(times))

    def beside(self, other: "Figures") -> str:
        """Return the figures, each with its ratio to the other's."""
        return "  ".join(
            f"{name.removesuffix('_ms')} {mine:5.0f} ms ({mine / theirs:.2f}x)"
            for name, mine, theirs in zip(self._fields, self, other, strict=True)
        )


def tell(found: dict[tuple[int, str], list[Any]]) -> None:
    """Print each way's figures beside the connector's."""
    for (rate, arm), rows in found.items():
        other = found.get((rate, CONNECTOR)) or rows
        memory = max(row["python_mb"] for row in rows)
        figures = Figures.of(rows).beside(Figures.of(other))
        print(f"{rate:6}/s  {arm:6}  {figures}  Python {memory} MB", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run the command line of the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", default="100,1000,20000")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seconds", type=int, default=14, help="of each turn that count")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--warm", type=int, default=0, help="rounds before those that count")
    parser.add_argument("--streams", type=int, default=1, help="so many at a time")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)

    from confluent_kafka.admin import AdminClient, NewTopic

    from ottla.spark.local import session

    jars = ",".join(map(str, sorted(connector_libraries().glob("*.jar"))))
    found: dict[tuple[int, str], list[Any]] = {}
    arms, rates = options.arms.split(","), [int(each) for each in options.rates.split(",")]
    with tempfile.TemporaryDirectory() as work:
        peer = OttlaPeer(Path(work, "data"))
        spark = session(master="local[2]", confs={"spark.jars": jars})
        with peer:
            peer.start()
            admin = AdminClient({"bootstrap.servers": peer.bootstrap})
            admin.create_topics([NewTopic("source", 2, 1)])["source"].result(30)

            def turn(arm: str, rate: int, seconds: int) -> Any:
                streams = options.streams
                return run(spark, peer, arm, rate=rate, seconds=seconds, streams=streams, work=work)

            for arm in arms:
                turn(arm, rates[-1], 4)
            for number in range(-options.warm, options.rounds):
                first = number % len(arms)
                for rate in rates:
                    for arm in (*arms[first:], *arms[:first]):
                        row = turn(arm, rate, options.seconds)
                        if number >= 0:
                            found.setdefault((rate, arm), []).append(row)
                        told = {name: value for name, value in row.items() if name != "times_ms"}
                        print(f"{rate:6} {arm:6} {json.dumps(told)}", flush=True)
        spark.stop()
    tell(dict(sorted(found.items(), key=lambda each: (each[0][0], arms.index(each[0][1])))))
    if options.json:
        text = {f"{rate} {arm}": rows for (rate, arm), rows in found.items()}
        Path(options.json).write_text(json.dumps(text))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
