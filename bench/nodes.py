"""What a node of several costs beside a single one: ``python bench/nodes.py``.

Broker CPU (user plus system) per request, on a single node and on each of several: one record
produced to one partition, and 64 kB fetched from it, each asked of the partition's leader. They
stand side by side and are measured in turn, several rounds; medians, and the ratio to the single
node. ``--scaling`` instead sends to all nodes at once, by as many clients, and prints requests per
second beside one node's: it says something only on a machine with more cores than nodes.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine
from bench.load import Measure, run
from bench.scenarios import fetch_frames, produce_frame, records_of
from tools.nodes_peer import NodesPeer
from tools.ottla_peer import OttlaPeer
from tools.peer import Peer
from tools.wire_client import WireClient

TOPIC = "nodes"
FETCH_BYTES = 64 << 10
FETCHED_RECORDS = 600
"""Of 100 bytes each: about so many bytes."""
OPTIONS = {"log.flush.interval.messages": 2**63 - 1}


class NodeOf(Peer):
    """One node of a peer, as the load sees it: a port and a process."""

    def __init__(self, name: str, port: int, process: int) -> None:
        super().__init__(Path(name))  # Nothing is kept there.
        self.name = name
        self.port = port
        self._process = process

    def __reduce__(self) -> tuple[type["NodeOf"], tuple[str, int, int]]:
        return NodeOf, (self.name, self.port, self._process)

    @property
    def pid(self) -> int:
        """The number of the node's process."""
        return self._process


def nodes_of(peer: OttlaPeer) -> list[tuple[NodeOf, int]]:
    """Create the topic; return each node with a partition that it leads."""
    several = isinstance(peer, NodesPeer)
    count = peer.nodes if isinstance(peer, NodesPeer) else 1
    with WireClient(peer.bootstrap, timeout_seconds=60) as client:
        client.create_topic(TOPIC, count)
        answer = client.call("metadata", 9, topics=[{"name": TOPIC}])
    ports = {each["node_id"]: each["port"] for each in answer["brokers"]}
    processes = peer.workers() if isinstance(peer, NodesPeer) else {1: peer.pid}
    found = []
    for each in sorted(answer["topics"][0]["partitions"], key=lambda one: one["leader_id"]):
        node = each["leader_id"]
        name = f"node {node} of {count}" if several else "a single node"
        found.append((NodeOf(name, ports[node], processes[node]), each["partition_index"]))
    return found


def frames_of(kind: str, node: NodeOf, partition: int) -> tuple[Sequence[bytes], int]:
    """Return the frames of a scenario, and where their answers have the error code."""
    with WireClient(node.bootstrap, timeout_seconds=60) as client:
        if kind == "produce":
            frame, error_at = produce_frame(client, TOPIC, records_of(1), [partition])
            return [frame], error_at
        offset = client.produce(TOPIC, records_of(FETCHED_RECORDS), partition)["base_offset"]
        return fetch_frames(client, TOPIC, FETCH_BYTES, [offset], partition)


def load(kind: str, node: NodeOf, partition: int, requests: int) -> Measure:
    """Send so many requests to one node, one at a time."""
    frames, error_at = frames_of(kind, node, partition)
    return run(
        node,
        frames,
        connections=1,
        depth=1,
        seconds=600,
        error_at=error_at,
        requests_max=requests,
    )


def measure(targets: Sequence[tuple[NodeOf, int]], arguments: argparse.Namespace) -> None:
    """Measure all in turn and print; the first is what the others are compared with."""
    for kind in ("produce", "fetch"):
        costs: dict[str, list[float]] = {node.name: [] for node, _ in targets}
        for number in range(arguments.rounds + 1):
            turned = targets if number % 2 else list(reversed(targets))
            for node, partition in turned:
                cost = load(kind, node, partition, arguments.requests).broker_us_per_request
                if number:  # The first round warms up.
                    costs[node.name].append(cost)
        single = statistics.median(costs[targets[0][0].name])
        for name, found in costs.items():
            cost = statistics.median(found)
            spread = f"{min(found):.1f}-{max(found):.1f}"
            print(f"{kind:<8} {name:<14} {cost:6.1f} us ({spread}), {cost / single:.3f}")


def scale(targets: Sequence[tuple[NodeOf, int]], requests: int) -> None:
    """Load the single node, then all of the several at once, and print requests per second."""
    single, *several = targets
    one = load("produce", *single, requests)
    with ProcessPoolExecutor(len(several), mp_context=get_context("spawn")) as clients:
        waiting = [
            clients.submit(load, "produce", node, partition, requests)
            for node, partition in several
        ]
        rates = [each.result().requests_per_second for each in waiting]
    rate = one.requests_per_second
    print(f"a single node {rate:8.0f} produces/s")
    print(f"{len(several)} nodes       {sum(rates):8.0f} produces/s, {sum(rates) / rate:.2f}")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=15_000)
    parser.add_argument("--scaling", action="store_true")
    machine.add_options(parser)
    arguments = parser.parse_args()
    machine.begin(arguments)
    with tempfile.TemporaryDirectory(prefix="ottla-nodes-") as work:
        single = OttlaPeer(Path(work, "single"), OPTIONS)
        several = NodesPeer(Path(work, "several"), arguments.nodes, OPTIONS)
        with single, several:
            single.start()
            several.start()
            targets = [*nodes_of(single), *nodes_of(several)]
            if arguments.scaling:
                scale(targets, arguments.requests)
            else:
                measure(targets, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
