"""What three replicas cost beside Kafka's: ``python bench/replicas.py``.

One topic of one partition and three replicas, min.insync.replicas 2, acks=all, on ``ottla serve
--nodes 3`` and on three Kafka brokers (the first is the controller, too), all on this machine. The
same client sends the same frames to the leader of each, in turn within a round. What is compared is
the CPU time (user plus system) of all processes of a cluster, Ottla's supervisor among them, per
request: the median of the rounds, behind a longer one that warms up; memory is backed before each
case. Ottla answers when every in-sync replica has synced the record, Kafka when it is in memory.
Linux only; needs Java 17 and ``tools/kafka_peer.py fetch``.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine
from bench.load import Measure, run
from bench.scenarios import BATCH_RECORDS, NAMES, clean_up, produce_frame, records_of
from tools.kafka_peer import KafkaPeer, free_port
from tools.nodes_peer import NodesPeer
from tools.peer import CLOCK_TICKS_PER_SECOND, Peer
from tools.wire_client import Closed, WireClient

COUNT = 3
READY_SECONDS = 120.0
WARM_SHARE = 0.5
"""Of a case's requests, at least, before anything is measured: Java compiles meanwhile."""


class Case(NamedTuple):
    """One line of the table."""

    name: str
    records: int
    connections: int
    depth: int
    requests: int
    aim: float
    """What Ottla may take of Kafka's CPU time at most."""


CASES = (
    Case("1 x 100 B, 1 connection", 1, 1, 1, 4_000, 2 / 3),
    Case("1 x 100 B, 10 connections", 1, 10, 1, 8_000, 2 / 3),
    Case("16 kB, 1 connection", BATCH_RECORDS, 1, 1, 3_000, 1 / 2),
    Case("16 kB, 10 connections", BATCH_RECORDS, 10, 1, 6_000, 1 / 2),
    Case("1 MB, 1 connection", 9_200, 1, 1, 200, 1 / 2),
)


class Clustered(Peer):
    """A cluster, as the load sees it: the leader's address and the processes of all."""

    def __init__(self, name: str, bootstrap: str, processes: Callable[[], Sequence[int]]) -> None:
        super().__init__(Path(name))  # Nothing is kept there.
        self.name = name
        self.host, port = bootstrap.rsplit(":", 1)
        self.port = int(port)
        self._processes = processes

    def user_and_system_seconds(self) -> tuple[float, float]:
        """Return both of all processes together."""
        user = system = 0
        for process in self._processes():
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            user, system = user + int(fields[11]), system + int(fields[12])
        return user / CLOCK_TICKS_PER_SECOND, system / CLOCK_TICKS_PER_SECOND

    def lead(self, topic: str) -> None:
        """Make a topic of three replicas, and talk to its leader from now on."""
        wanted = {"name": topic, "num_partitions": 1, "replication_factor": COUNT}
        wanted["configs"] = [{"name": "min.insync.replicas", "value": "2"}]
        with WireClient(self.bootstrap, timeout_seconds=60) as client:
            created = client.call("create_topics", 7, topics=[wanted], timeout=60_000)
            if created["topics"][0]["error_code"]:
                raise AssertionError(created)
        deadline = time.monotonic() + READY_SECONDS
        while not self._follow_leader(topic):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: {topic} has no three replicas in sync")
            time.sleep(0.1)

    def _follow_leader(self, topic: str) -> bool:
        with WireClient(self.bootstrap, timeout_seconds=60) as client:
            answer = client.call("metadata", 9, topics=[{"name": topic}])
        ports = {each["node_id"]: each["port"] for each in answer["brokers"]}
        for each in answer["topics"][0]["partitions"]:
            if each["leader_id"] in ports and len(each["isr_nodes"]) == COUNT:
                self.port = ports[each["leader_id"]]
                return True
        return False


def kafkas(stack: ExitStack, work: Path) -> Clustered:
    """Start three brokers; return them when each knows the others."""
    controller_port, peers = free_port(), []
    for node in range(1, COUNT + 1):
        port = free_port()
        options: dict[str, object] = {
            "node.id": node,
            "process.roles": "broker,controller" if node == 1 else "broker",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.retention.check.interval.ms": 86_400_000,
        }
        if node == 1:
            options["listeners"] = (
                f"{options['listeners']},CONTROLLER://127.0.0.1:{controller_port}"
            )
        peer = KafkaPeer(work / f"kafka-{node}", options)
        peer.port = port
        peers.append(stack.enter_context(peer))
        peer.start()
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            with WireClient(peers[0].bootstrap) as client:
                if len(client.call("metadata", 9, topics=[])["brokers"]) == COUNT:
                    break
        except (OSError, Closed):
            pass
        if time.monotonic() > deadline:
            raise TimeoutError("the brokers do not find each other")
        time.sleep(0.2)
    processes = [peer.pid for peer in peers]
    return Clustered("kafka", peers[0].bootstrap, lambda: processes)


def ottlas(stack: ExitStack, work: Path) -> Clustered:
    """Start three nodes."""
    peer = stack.enter_context(NodesPeer(work / "ottla", COUNT))
    peer.start()
    processes = [peer.supervisor, *peer.workers().values()]
    return Clustered("ottla", peer.bootstrap, lambda: processes)


def measure(
    clusters: Sequence[Clustered], case: Case, rounds: int, share: float
) -> dict[str, list[Measure]]:
    """Measure one case on both clusters; the first round, which is longer, is thrown away."""
    frames, topics = {}, {}
    for cluster in clusters:
        topics[cluster.name] = topic = next(NAMES)
        cluster.lead(topic)
        with WireClient(cluster.bootstrap, timeout_seconds=60) as client:
            frames[cluster.name] = produce_frame(client, topic, records_of(case.records))
    found: dict[str, list[Measure]] = {cluster.name: [] for cluster in clusters}
    for number in range(rounds + 1):
        for cluster in clusters if number % 2 else reversed(clusters):
            os.sync()
            frame, error_at = frames[cluster.name]
            neighbours = machine.Neighbours()
            one = run(
                cluster,
                [frame],
                connections=case.connections,
                depth=case.depth,
                seconds=600,
                error_at=error_at,
                bytes_per_request=100 * case.records,
                requests_max=round(case.requests * (share if number else max(share, WARM_SHARE))),
            )
            one.others_share = neighbours.share()
            if number:
                found[cluster.name].append(one)
    for cluster in clusters:
        clean_up(cluster, topics[cluster.name])
    return found


def figures(measures: Sequence[Measure]) -> dict[str, float]:
    """Return the medians that are printed."""
    return {
        "cpu_us_per_request": statistics.median(one.broker_us_per_request for one in measures),
        "cpu_us_min": min(one.broker_us_per_request for one in measures),
        "cpu_us_max": max(one.broker_us_per_request for one in measures),
        "requests_per_second": statistics.median(one.requests_per_second for one in measures),
        "p50_ms": statistics.median(one.latency_ms(0.5) for one in measures),
        "p99_ms": statistics.median(one.latency_ms(0.99) for one in measures),
        "others_share": statistics.median(one.others_share for one in measures),
    }


def _span(one: dict[str, float]) -> str:
    least, most = one["cpu_us_min"], one["cpu_us_max"]
    return f"{one['cpu_us_per_request']:.0f} us ({least:.0f}-{most:.0f})"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0, help="of each case's requests")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("-o", "--output", type=Path, help="all figures, as JSON")
    machine.add_options(parser)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))  # By way of the brokers' ends.
    report = {}
    print(f"{'':28}{'ottla':>22}{'kafka':>24}   ratio   aim   p99 ms of both")
    with tempfile.TemporaryDirectory(prefix="ottla-replicas-") as made, ExitStack() as stack:
        clusters = [ottlas(stack, Path(made)), kafkas(stack, Path(made))]
        for case in CASES:
            if arguments.only not in case.name:
                continue
            machine.begin(arguments)  # Each time: a megabyte is six of fresh pages, in seven GB.
            found = measure(clusters, case, arguments.rounds, arguments.share)
            report[case.name] = {name: figures(each) for name, each in found.items()}
            ours, theirs = report[case.name]["ottla"], report[case.name]["kafka"]
            ratio = ours["cpu_us_per_request"] / theirs["cpu_us_per_request"]
            verdict = "met" if ratio <= case.aim else "missed"
            print(
                f"{case.name:28}{_span(ours):>22}{_span(theirs):>24}",
                f"  {ratio:5.2f}  {case.aim:.2f} {verdict}",
                f"  {ours['p99_ms']:.1f} {theirs['p99_ms']:.1f}",
                flush=True,
            )
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
