"""What the first query of a Spark session costs in Python, process by process.

    python -m bench.spark.first_query                 a plain session beside ottla.spark.session
    python -m bench.spark.first_query --arm tuned     only one of them
    PYTHONPROFILEIMPORTTIME=1 python -m bench.spark.first_query 2> imports.txt   what is imported

Each arm is a process of its own with a session of its own; the topic is small, so that what is
measured is the start. CPU is user and system of every Python process below the JVM, sampled from
/proc until the query has ended: Linux only. Prints the best of ``--rounds``, by the sum.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
RECORD_COUNT = 1_000
ARMS = ("plain", "tuned")
SAMPLE_S = 0.1


class Process(NamedTuple):
    """One process below this one, as it was last seen."""

    parent: int
    cpu_s: float
    command: str


class Sampler(threading.Thread):
    """Keeps what every process below this one has used, also of those that ended."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: dict[int, Process] = {}
        self._ended = threading.Event()

    def run(self) -> None:
        """Sample until ``stop``."""
        while not self._ended.wait(SAMPLE_S):
            self._sample()

    def stop(self) -> None:
        """Sample once more and end."""
        self._ended.set()
        self.join()
        self._sample()

    def _sample(self) -> None:
        parents: dict[int, tuple[int, float]] = {}
        ticks = os.sysconf("SC_CLK_TCK")
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                stat = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(name)] = int(stat[1]), (int(stat[11]) + int(stat[12])) / ticks
        for pid, (parent, cpu_s) in parents.items():
            if self._is_below(pid, parents):
                self.seen[pid] = Process(parent, cpu_s, self._command(pid))

    def _command(self, pid: int) -> str:
        try:
            words = Path("/proc", str(pid), "cmdline").read_text().split("\0")
        except OSError:
            words = []
        text = " ".join(words).strip()
        return text or (self.seen[pid].command if pid in self.seen else "")

    @staticmethod
    def _is_below(pid: int, parents: dict[int, tuple[int, float]]) -> bool:
        while pid in parents:
            pid = parents[pid][0]
            if pid == os.getpid():
                return True
        return False


def start_session(arm: str) -> object:
    """Start Spark, as people do without us or with ``ottla.spark.session``."""
    if arm == "tuned":
        from ottla.spark import session

        return session("first query", master="local[2]")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    return builder.config("spark.driver.host", "127.0.0.1").getOrCreate()


def measure(arm: str, bootstrap: str, topic: str) -> dict[str, object]:
    """Run one first query in this process and return its figures."""
    sampler = Sampler()
    sampler.start()
    begun = time.monotonic()
    spark: object = start_session(arm)
    started = time.monotonic()
    reader = spark.read.format("ottla")  # type: ignore[attr-defined]
    reader = reader.option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    count = reader.load().count()
    ended = time.monotonic()
    sampler.stop()
    assert count == RECORD_COUNT, count
    python = [
        {"cpu_s": each.cpu_s, "what": each.command.partition(" ")[2], "pid": pid}
        for pid, each in sorted(sampler.seen.items())
        if "python" in os.path.basename(each.command.partition(" ")[0])
    ]
    return {
        "arm": arm,
        "python_cpu_s": round(sum(each["cpu_s"] for each in python), 2),  # type: ignore[misc]
        "session_s": round(started - begun, 1),
        "query_s": round(ended - started, 1),
        "processes": python,
    }


def produce(bootstrap: str, topic: str) -> None:
    """Write the records of the topic."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORD_COUNT):
        producer.produce(topic, b"%d" % number)
    producer.flush(30)


def run_arm(arm: str, bootstrap: str, topic: str) -> dict[str, object]:
    """Measure in a fresh process: a session's first query is one per process."""
    command = [sys.executable, "-m", "bench.spark.first_query", "--inside", arm, bootstrap, topic]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Run the arms in turn and print the best round of each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--arm", choices=ARMS, action="append")
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.inside:
        print(json.dumps(measure(*chosen.inside)))
        return

    from tools.ottla_peer import OttlaPeer

    with tempfile.TemporaryDirectory() as directory:
        broker = OttlaPeer(Path(directory, "data"))
        broker.start()
        try:
            produce(broker.bootstrap, "first")
            rounds = [
                run_arm(arm, broker.bootstrap, "first")
                for _ in range(chosen.rounds)
                for arm in chosen.arm or ARMS
            ]
        finally:
            broker.kill9()
    for arm in chosen.arm or ARMS:
        best = min((each for each in rounds if each["arm"] == arm), key=lambda r: r["python_cpu_s"])
        print(
            f"{arm}: {best['python_cpu_s']} CPU-s in Python;"
            f" session {best['session_s']} s, query {best['query_s']} s"
        )
        for each in best["processes"]:  # type: ignore[attr-defined]
            print(f"  {each['cpu_s']:5.2f}  {each['what']}")


if __name__ == "__main__":
    main()
