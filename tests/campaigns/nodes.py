"""Kill one of several nodes with SIGKILL under load, again and again; then kill their supervisor.

    python tests/campaigns/nodes.py [--nodes 3] [--replication 1] [--rounds 20]
        [--supervisor-rounds 10] [--seed 1]

One writer per partition sends a record at a time to its leader, with acks=all. Prints a JSON
report: acknowledged records that are lost (the exit code is 1 then), how long a killed node's
partitions were not written, the 99th percentile of the others' answers in the second after a kill
and in the second before, and how long processes lived on after their supervisor. With several
replicas another one leads while a node is down, and min.insync.replicas is 2.
"""

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tools.nodes_peer import NodesPeer, wait_for_ends
from tools.wire_client import Closed, WireClient, batch, values_of

TOPIC = "campaign"
PATIENCE_SECONDS = 60.0
PARTITIONS_PER_NODE = 2
REQUEST_TIMED_OUT = 7


class Writer(threading.Thread):
    """Writes one partition, through every end of its leader."""

    who_leads_seconds = PATIENCE_SECONDS
    """How long a node is waited for that is asked who leads."""

    def __init__(self, partition: int, leader: int, ports: dict[int, int]) -> None:
        super().__init__(daemon=True)
        self.partition = partition
        self.leader = leader
        self.ports = ports
        self.acknowledged: dict[int, bytes] = {}
        self.answers: list[tuple[float, float]] = []
        """When each answer came, and after how many seconds."""
        self.stopping = threading.Event()

    def run(self) -> None:
        """Write until told to stop."""
        number = 0
        while not self.stopping.is_set():
            try:
                with self.client() as client:
                    is_led = True
                    while is_led and not self.stopping.is_set():
                        number += 1
                        is_led = self.write(client, b"%d/%d" % (self.partition, number))
            except (OSError, Closed):
                time.sleep(0.01)
            self.find_leader()

    def client(self) -> WireClient:
        """Return a connection to the leader."""
        address = f"127.0.0.1:{self.ports[self.leader]}"
        return WireClient(address, timeout_seconds=PATIENCE_SECONDS)

    def find_leader(self) -> None:
        """Ask the nodes who leads now; the leader stays if none knows.

        The last leader comes last: where it has ended, its port answers when it is back.
        """
        for node in sorted(self.ports, key=lambda node: node == self.leader):
            address = f"127.0.0.1:{self.ports[node]}"
            with (
                suppress(OSError, Closed),
                WireClient(address, timeout_seconds=self.who_leads_seconds) as client,
            ):
                answer = client.call("metadata", 9, topics=[{"name": TOPIC}])
                for each in answer["topics"][0]["partitions"]:
                    if each["partition_index"] == self.partition and each["leader_id"] >= 0:
                        self.leader = each["leader_id"]
                        return

    def write(self, client: WireClient, value: bytes) -> bool:
        """Send one record; return whether this node leads."""
        begun = time.monotonic()
        answer = client.produce(TOPIC, batch([value]), self.partition)
        if answer["error_code"] == 0:
            self.acknowledged[answer["base_offset"]] = value
            now = time.monotonic()
            self.answers.append((now, now - begun))
            return True
        time.sleep(0.01)
        return bool(answer["error_code"] == REQUEST_TIMED_OUT)

    def lost(self) -> list[str]:
        """Return the acknowledged records that cannot be read back where they were written."""
        found: dict[int, bytes | None] = {}
        self.find_leader()
        with self.client() as client:
            (_, end), *_ = client.list_offsets(TOPIC, [self.partition])
            offset = 0
            while offset < end:
                answer = client.fetch(TOPIC, offset, self.partition, max_bytes=8 << 20)
                values = values_of(answer["records"])
                if not values:
                    break
                found.update(values)
                offset = values[-1][0] + 1
        return [
            f"{self.partition}@{offset}"
            for offset, value in self.acknowledged.items()
            if found.get(offset) != value
        ]


def p99_ms(seconds: list[float]) -> float:
    """Return the 99th percentile in milliseconds; 0 for no value."""
    return round(sorted(seconds)[int(len(seconds) * 0.99)] * 1000, 1) if seconds else 0.0


def between(writers: list[Writer], begin: float, end: float) -> list[float]:
    """Return how long the answers took that came in ``[begin, end)``."""
    return [took for each in writers for at, took in list(each.answers) if begin <= at < end]


def place(peer: NodesPeer, replication: int) -> list[Writer]:
    """Create the topic; return a writer for each partition."""
    count = peer.nodes * PARTITIONS_PER_NODE
    with WireClient(peer.bootstrap, timeout_seconds=PATIENCE_SECONDS) as client:
        wanted = {
            "name": TOPIC,
            "num_partitions": count,
            "replication_factor": replication,
            "configs": [{"name": "min.insync.replicas", "value": str(min(replication, 2))}],
        }
        created = client.call("create_topics", 7, topics=[wanted], timeout=10_000)
        if created["topics"][0]["error_code"]:
            raise AssertionError(created)
        answer = client.call("metadata", 9, topics=[{"name": TOPIC}])
    ports = {each["node_id"]: each["port"] for each in answer["brokers"]}
    return [
        Writer(each["partition_index"], each["leader_id"], ports)
        for each in answer["topics"][0]["partitions"]
    ]


def kill_nodes(
    peer: NodesPeer, rounds: int, rng: random.Random, replication: int
) -> dict[str, Any]:
    """Kill a node in each round; return the report."""
    writers = place(peer, replication)
    for each in writers:
        each.start()
    time.sleep(2)
    gaps, before, after = [], [], []
    for _ in range(rounds):
        node = rng.choice([each.leader for each in writers])
        theirs = [each for each in writers if each.leader == node]
        others = [each for each in writers if each.leader != node]
        killed_at = time.monotonic()
        peer.kill_worker(node)
        deadline = killed_at + PATIENCE_SECONDS
        while not all(each.answers and each.answers[-1][0] > killed_at + 0.05 for each in theirs):
            if time.monotonic() > deadline:
                raise TimeoutError(f"node {node} did not come back")
            time.sleep(0.01)
        back = [min(at for at, _ in each.answers if at > killed_at + 0.05) for each in theirs]
        gaps.append(max(back) - killed_at)
        time.sleep(max(1.2 - (time.monotonic() - killed_at), 0))
        before += between(others, killed_at - 1, killed_at)
        after += between(others, killed_at, killed_at + 1)
        wait_for_isr(writers[0].ports, replication)
        time.sleep(rng.random())
    for each in writers:
        each.stopping.set()
    for each in writers:
        each.join(PATIENCE_SECONDS)
    lost = [where for each in writers for where in each.lost()]
    return {
        "rounds": rounds,
        "acknowledged": sum(len(each.acknowledged) for each in writers),
        "lost": lost[:100],
        "lost_count": len(lost),
        "not_written_ms": [round(gap * 1000) for gap in sorted(gaps)],
        "others_p99_ms": {"before": p99_ms(before), "after": p99_ms(after)},
    }


def wait_for_isr(ports: dict[int, int], replication: int) -> None:
    """Wait until all replicas of all partitions are in sync again."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError, Closed), WireClient(f"127.0.0.1:{ports[1]}") as client:
            answer = client.call("metadata", 9, topics=[{"name": TOPIC}])
            isrs = [each["isr_nodes"] for each in answer["topics"][0]["partitions"]]
            if all(len(isr) == replication for isr in isrs):
                return
        time.sleep(0.05)
    raise TimeoutError(f"not all replicas are in sync again: {isrs}")


def kill_supervisors(peer: NodesPeer, rounds: int) -> list[int]:
    """Kill the supervisor in each round; return after how many ms all nodes were gone."""
    gone = []
    for _ in range(rounds):
        workers = list(peer.workers().values())
        peer.kill_supervisor()
        gone.append(round(wait_for_ends(workers, PATIENCE_SECONDS) * 1000))
        peer.start()
    return sorted(gone)


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--replication", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--supervisor-rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        peer = NodesPeer(Path(directory) / "data", options.nodes)
        try:
            peer.start()
            rng = random.Random(options.seed)
            report = kill_nodes(peer, options.rounds, rng, options.replication)
            report["gone_after_supervisor_ms"] = kill_supervisors(peer, options.supervisor_rounds)
        finally:
            peer.stop()  # Nobody writes to the directory after that.
    print(json.dumps(report, indent=2))
    sys.exit(1 if report["lost_count"] else 0)


if __name__ == "__main__":
    main()
