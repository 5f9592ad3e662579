"""How long partitions are not written while nodes end one after another: ``bench/restarts.py``.

``ottla serve --nodes 3`` and a topic of six partitions. Each round ends one node, with SIGTERM as
in a rolling restart (others lead first what it leads) or with SIGKILL, and waits until it is back
and all replicas are in sync. Meanwhile every partition is written by two clients, acks=all: a wire
client, which takes each answer's hint who leads and asks somebody else when nobody answers, and
librdkafka as it comes (``--client`` for one of them). Printed, by client: the longest time between
two answers of a partition in each round, of those that the node led and of the others; and the 99th
percentile of the others' answers in the second after the end, and in the second before. Linux only.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.nodes_peer import NodesPeer
from tools.wire_client import Closed, WireClient, batch

TOPIC = "restarts"
NODES = 3
PARTITIONS = 6
PATIENCE_SECONDS = 60.0
REST_SECONDS = 0.005
SILENCE_SECONDS = 0.5
SETTLE_SECONDS = 1.5
BUCKETS_MS = (50, 100, 150, 200, 300, 400, 600, 800, 1000, 1500, 2000)


class Answers:
    """When each partition was answered, and after how many seconds."""

    def __init__(self) -> None:
        self._by_partition: dict[int, list[tuple[float, float]]] = {
            partition: [] for partition in range(PARTITIONS)
        }

    def note(self, partition: int, took: float) -> None:
        """Note an answer of now."""
        self._by_partition[partition].append((time.monotonic(), took))

    def has_any_since(self, moment: float) -> bool:
        """Whether all partitions were answered since then."""
        return all(each and each[-1][0] > moment for each in self._by_partition.values())

    def longest_gap(self, partition: int, begin: float, end: float) -> float:
        """Return the longest time without an answer between two moments."""
        found = self._by_partition[partition]
        times = [begin, *(at for at, _ in list(found) if begin < at < end), end]
        return max(after - before for before, after in pairwise(times))

    def took(self, partitions: Sequence[int], begin: float, end: float) -> list[float]:
        """Return how long the answers of a time took."""
        found = [list(self._by_partition[partition]) for partition in partitions]
        return [took for each in found for at, took in each if begin <= at < end]


class WireWriter(threading.Thread):
    """Writes one partition, a record at a time."""

    def __init__(self, partition: int, ports: Mapping[int, int], answers: Answers) -> None:
        super().__init__(daemon=True)
        self._partition = partition
        self._ports = ports
        self._answers = answers
        self._leader = -1
        self.stopping = threading.Event()

    def run(self) -> None:
        """Write until told to stop."""
        while not self.stopping.is_set():
            try:
                if self._leader < 0:
                    self._find_leader()
                if self._leader >= 0:
                    with self._client(self._leader) as client:
                        while self._write(client):
                            time.sleep(REST_SECONDS)
            except (OSError, Closed):
                self._leader = -1

    def _client(self, node: int) -> WireClient:
        return WireClient(f"127.0.0.1:{self._ports[node]}", timeout_seconds=SILENCE_SECONDS)

    def _find_leader(self) -> None:
        for node in self._ports:
            with suppress(OSError, Closed), self._client(node) as client:
                answer = client.call("metadata", 9, topics=[{"name": TOPIC}])
                for each in answer["topics"][0]["partitions"]:
                    if each["partition_index"] == self._partition and each["leader_id"] >= 0:
                        self._leader = each["leader_id"]
                        return
        time.sleep(REST_SECONDS)

    def _write(self, client: WireClient) -> bool:
        """Send one record; return whether this node leads, and there is more to write."""
        begun = time.monotonic()
        answer: dict[str, Any] = client.produce(TOPIC, batch(), self._partition, version=10)
        if answer["error_code"] == 0:
            self._answers.note(self._partition, time.monotonic() - begun)
            return not self.stopping.is_set()
        hint = answer["current_leader"]["leader_id"]
        self._leader = hint if hint in self._ports else -1
        time.sleep(REST_SECONDS)
        return False


class Librdkafka(threading.Thread):
    """Writes all partitions by one idempotent producer with its own defaults."""

    def __init__(self, bootstrap: str, answers: Answers) -> None:
        from confluent_kafka import Producer  # type: ignore[import-not-found, unused-ignore]

        super().__init__(daemon=True)
        self._answers = answers
        self._producer: Any = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self.refused: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        """Write until told to stop."""
        while not self.stopping.is_set():
            for partition in range(PARTITIONS):
                with suppress(BufferError):
                    self._producer.produce(
                        TOPIC, b"value", partition=partition, on_delivery=self._told
                    )
            self._producer.poll(REST_SECONDS)
        self._producer.flush(PATIENCE_SECONDS)

    def _told(self, error: Any, message: Any) -> None:
        if error is None:
            self._answers.note(message.partition(), message.latency())
        else:
            self.refused.append(str(error))


def partitions_of(bootstrap: str) -> tuple[dict[int, int], list[dict[str, Any]]]:
    """Return the nodes' ports, and the topic's partitions in order, as a node says."""
    with WireClient(bootstrap, timeout_seconds=PATIENCE_SECONDS) as client:
        answer = client.call("metadata", 9, topics=[{"name": TOPIC}])
    ports = {each["node_id"]: each["port"] for each in answer["brokers"]}
    found = answer["topics"][0]["partitions"]
    return ports, sorted(found, key=lambda each: each["partition_index"])


def wait_for_isr(bootstrap: str, replication: int) -> list[int]:
    """Wait until all replicas of all partitions are in sync; return who leads each."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with suppress(OSError, Closed):
            _, found = partitions_of(bootstrap)
            whole = [each for each in found if len(each["isr_nodes"]) == replication]
            if len(whole) == PARTITIONS and all(each["leader_id"] >= 0 for each in whole):
                return [each["leader_id"] for each in whole]
        if time.monotonic() > deadline:
            raise TimeoutError("not all replicas are in sync again")
        time.sleep(0.05)


def wait_for_new_process(peer: NodesPeer, node: int, former: int) -> None:
    """Wait until another process is this node."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while peer.workers().get(node, former) == former:
        if time.monotonic() > deadline:
            raise TimeoutError(f"node {node} does not come back")
        time.sleep(0.02)


class Restarts:
    """The rounds, and what each client has met in them."""

    def __init__(self, peer: NodesPeer, arguments: argparse.Namespace) -> None:
        self._peer = peer
        self._replication: int = arguments.replication
        self._signal = signal.SIGKILL if arguments.kill else signal.SIGTERM
        with WireClient(peer.bootstrap, timeout_seconds=PATIENCE_SECONDS) as client:
            minimum = str(min(self._replication, 2))
            wanted = {
                "name": TOPIC,
                "num_partitions": PARTITIONS,
                "replication_factor": self._replication,
                "configs": [{"name": "min.insync.replicas", "value": minimum}],
            }
            created = client.call("create_topics", 7, topics=[wanted], timeout=30_000)
            if created["topics"][0]["error_code"]:
                raise AssertionError(created)
        wait_for_isr(peer.bootstrap, self._replication)
        ports, _ = partitions_of(peer.bootstrap)
        names = ("wire", "librdkafka") if arguments.client == "both" else (arguments.client,)
        self.answers = {name: Answers() for name in names}
        self.writers: list[WireWriter | Librdkafka] = []
        for name, answers in self.answers.items():
            if name == "wire":
                self.writers += [WireWriter(each, ports, answers) for each in range(PARTITIONS)]
            else:
                bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports.values())
                self.writers.append(Librdkafka(bootstrap, answers))
        self.led: dict[str, list[float]] = {name: [] for name in names}
        self.others: dict[str, list[float]] = {name: [] for name in names}
        self.before: dict[str, list[float]] = {name: [] for name in names}
        self.after: dict[str, list[float]] = {name: [] for name in names}

    def round(self, node: int) -> None:
        """End one node, and wait until all is well again."""
        self._wait_until_written()
        leaders = wait_for_isr(self._peer.bootstrap, self._replication)
        time.sleep(SETTLE_SECONDS)
        process = self._peer.workers()[node]
        begin = time.monotonic()
        os.kill(process, self._signal)
        wait_for_new_process(self._peer, node, process)
        self._wait_until_written()
        wait_for_isr(self._peer.bootstrap, self._replication)
        time.sleep(SETTLE_SECONDS)
        end = time.monotonic()
        theirs = [partition for partition, leader in enumerate(leaders) if leader != node]
        for name, answers in self.answers.items():
            for partition, leader in enumerate(leaders):
                gap = answers.longest_gap(partition, begin, end)
                (self.led if leader == node else self.others)[name].append(gap)
            self.before[name] += answers.took(theirs, begin - 1, begin)
            self.after[name] += answers.took(theirs, begin, begin + 1)

    def _wait_until_written(self) -> None:
        begin = time.monotonic()
        while not all(each.has_any_since(begin) for each in self.answers.values()):
            if time.monotonic() - begin > PATIENCE_SECONDS:
                raise TimeoutError("not all partitions are written")
            time.sleep(0.02)

    def report(self) -> dict[str, Any]:
        """Return the figures of each client."""
        refused = [
            one for each in self.writers if isinstance(each, Librdkafka) for one in each.refused
        ]
        return {
            "refused": refused[:20],
            **{
                name: {
                    "led_there": gaps(self.led[name]),
                    "led_elsewhere": gaps(self.others[name]),
                    "others_p99_ms": [p99_ms(self.before[name]), p99_ms(self.after[name])],
                }
                for name in self.answers
            },
        }


def gaps(seconds: Sequence[float]) -> dict[str, Any]:
    """Return quantiles in ms, and how many lie below each bound and above the one before."""
    if not seconds:
        return {}
    times = sorted(round(each * 1000) for each in seconds)
    counts: dict[str, int] = {}
    for each in times:
        bound = next((bound for bound in BUCKETS_MS if each < bound), None)
        name = "more" if bound is None else f"< {bound}"
        counts[name] = counts.get(name, 0) + 1
    return {
        "count": len(times),
        "median_ms": round(statistics.median(times)),
        "p90_ms": times[int(len(times) * 0.9)],
        "max_ms": times[-1],
        "counts": counts,
    }


def p99_ms(seconds: Sequence[float]) -> float:
    """Return the 99th percentile in ms; 0 for no value."""
    return round(sorted(seconds)[int(len(seconds) * 0.99)] * 1000, 1) if seconds else 0.0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--replication", type=int, default=NODES)
    parser.add_argument("--kill", action="store_true", help="by SIGKILL; else by SIGTERM")
    parser.add_argument("--client", choices=("both", "wire", "librdkafka"), default="both")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))  # By way of the nodes' end.
    with tempfile.TemporaryDirectory(prefix="ottla-restarts-") as work:
        peer = NodesPeer(Path(work) / "data", NODES)
        try:
            peer.start()
            restarts = Restarts(peer, arguments)
            for each in restarts.writers:
                each.start()
            for number in range(arguments.rounds):
                restarts.round(number % NODES + 1)
                print(f"round {number}", file=sys.stderr, flush=True)
            for each in restarts.writers:
                each.stopping.set()
            for each in restarts.writers:
                each.join(PATIENCE_SECONDS)
        finally:
            peer.stop()
    load = os.getloadavg()[0]
    print(json.dumps({"load": round(load, 1), **restarts.report()}, indent=2))
    return 1 if restarts.report()["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
