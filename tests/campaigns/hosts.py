"""Let one of three hosts on an etcd fail under load, again and again; count what is lost.

    python tests/campaigns/hosts.py [--rounds 40] [--session-ms 2000] [--seed 1] [--faults kill,...]

One writer per partition sends a record at a time to its leader, with acks=all; three replicas,
min.insync.replicas 2. In turns, what befalls the leader of a partition:

    kill     SIGKILL; it starts again when another one leads
    power    its file system (an ext4 of its own) is shut down under it; then as kill. Needs root
    pause    SIGSTOP until another one leads, and a second longer
    both     power, while another node stands still for as long
    etcd     none of them: etcd is killed, and started again after one and a half sessions

Prints a JSON report: acknowledged records that cannot be read back where they were written (the
exit code is 1 then), and by fault for how long the leader's partitions were not written; for etcd,
the longest pause of any partition.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.campaigns.nodes import PATIENCE_SECONDS, TOPIC, Writer, wait_for_isr
from tests.campaigns.powercuts.volume import LOGFLUSH, NOLOGFLUSH, Volume, cut_power
from tests.hosts import Hosts
from tools.wire_client import WireClient

NODES = 3
PARTITIONS = 6
FAULTS = ("kill", "power", "pause", "both", "etcd")
ANSWER_SECONDS = 3.0
"""A node that stands still answers nothing; then others are asked."""


class HostsWriter(Writer):
    """Writes one partition, and asks another node when one stands still."""

    who_leads_seconds = 0.3

    def client(self) -> WireClient:
        """Return a connection to the leader."""
        address = f"127.0.0.1:{self.ports[self.leader]}"
        return WireClient(address, timeout_seconds=ANSWER_SECONDS)

    def longest_pause(self, begin: float, end: float) -> float:
        """Return the longest time without an answer between two moments."""
        times = [begin, *(at for at, _ in list(self.answers) if begin <= at <= end), end]
        return max(after - before for before, after in pairwise(times))


class Campaign:
    """Three hosts, each with a file system of its own if that is possible."""

    def __init__(self, directory: Path, options: argparse.Namespace) -> None:
        self._options = options
        self.rng = random.Random(options.seed)
        self.hosts = Hosts(
            directory,
            NODES,
            broker_session_timeout_ms=options.session_ms,
            num_partitions=PARTITIONS,
            auto_leader_rebalance_enable="false",
        )
        self.volumes: dict[int, Volume] = {}
        if {"power", "both"}.intersection(options.faults):
            for node, peer in self.hosts.nodes.items():
                place = directory / f"disk-{node}"
                place.mkdir()
                self.volumes[node] = Volume(place, size_mib=512)
                peer.data = self.volumes[node].path / "data"
        self.writers: list[HostsWriter] = []

    def run(self) -> dict[str, Any]:
        """Run all rounds; return the report."""
        with ExitStack() as stack:
            for volume in self.volumes.values():
                stack.enter_context(volume)
            stack.enter_context(self.hosts)
            self._place()
            for each in self.writers:
                each.start()
            time.sleep(2)
            gaps: dict[str, list[int]] = {}
            for number in range(self._options.rounds):
                fault = self._options.faults[number % len(self._options.faults)]
                seconds = self._round(fault)
                gaps.setdefault(fault, []).append(round(seconds * 1000))
                print(f"{number} {fault} {seconds * 1000:.0f} ms", file=sys.stderr, flush=True)
            for each in self.writers:
                each.stopping.set()
            for each in self.writers:
                each.join(PATIENCE_SECONDS)
            lost = [where for each in self.writers for where in each.lost()]
            return {
                "rounds": self._options.rounds,
                "session_ms": self._options.session_ms,
                "acknowledged": sum(len(each.acknowledged) for each in self.writers),
                "lost": lost[:100],
                "lost_count": len(lost),
                "not_written_ms": {fault: sorted(each) for fault, each in gaps.items()},
            }

    def _place(self) -> None:
        ports = {node: peer.port for node, peer in self.hosts.nodes.items()}
        with WireClient(self.hosts.nodes[1].bootstrap) as client:
            wanted = {
                "name": TOPIC,
                "num_partitions": PARTITIONS,
                "replication_factor": NODES,
                "configs": [{"name": "min.insync.replicas", "value": "2"}],
            }
            created = client.call("create_topics", 7, topics=[wanted], timeout=10_000)
            if created["topics"][0]["error_code"]:
                raise AssertionError(created)
        wait_for_isr(ports, NODES)
        self.writers = [HostsWriter(partition, 1, ports) for partition in range(PARTITIONS)]
        for each in self.writers:
            each.find_leader()

    def _round(self, fault: str) -> float:
        ports = self.writers[0].ports
        begin = time.monotonic()
        if fault == "etcd":
            self.hosts.etcd.kill()
            time.sleep(1.5 * self._options.session_ms / 1000)
            self.hosts.etcd.start()
            time.sleep(1)
            end = time.monotonic()
            seconds = max(each.longest_pause(begin, end) for each in self.writers)
        else:
            seconds = self._befall(fault)
        wait_for_isr(ports, NODES)
        time.sleep(self.rng.random())
        return seconds

    def _befall(self, fault: str) -> float:
        node = self.rng.choice([each.leader for each in self.writers])
        others = [one for one in self.hosts.nodes if one != node]
        theirs = [each for each in self.writers if each.leader == node]
        bystander = self.rng.choice(others) if fault == "both" else None
        peer = self.hosts.nodes[node]
        begin = time.monotonic()
        if bystander is not None:
            self.hosts.pause(bystander)
        if fault == "pause":
            self.hosts.pause(node)
        elif fault == "kill":
            peer.kill9()
        else:
            flag = self.rng.choice((LOGFLUSH, NOLOGFLUSH))
            cut_power(str(self.volumes[node].path), flag, peer.pid)
            peer.kill9()
            self.volumes[node].power_on_again()
        if bystander is not None:
            time.sleep(1.5 * self._options.session_ms / 1000)
            self.hosts.resume(bystander)
        seconds = self._written_again(theirs, begin)
        if fault == "pause":
            time.sleep(1)
            self.hosts.resume(node)
        else:
            peer.start()
        return seconds

    @staticmethod
    def _written_again(theirs: list[HostsWriter], begin: float) -> float:
        """Wait until all are written again; return how long that took from ``begin`` on."""
        deadline, settled = begin + PATIENCE_SECONDS, begin + 0.05
        while not all(each.answers and each.answers[-1][0] > settled for each in theirs):
            if time.monotonic() > deadline:
                raise TimeoutError("nobody leads")
            time.sleep(0.01)
        first = [min(at for at, _ in list(each.answers) if at > settled) for each in theirs]
        return max(first) - begin


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--session-ms", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=lambda text: text.split(","), default=list(FAULTS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        report = Campaign(Path(directory), options).run()
    print(json.dumps(report, indent=2))
    sys.exit(1 if report["lost_count"] else 0)


if __name__ == "__main__":
    main()
