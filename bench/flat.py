"""Whether a produce costs the same however much there is: ``python bench/flat.py``.

Broker CPU (user plus system) per request of one record to one partition, and CPU per second when
idle, with 1, 1,000 and 4,000 partitions hosted, and with 1 MB, 1 GB and 50 GB in the partition
(older segments sparse). The brokers stand side by side and are measured in turn, several rounds;
medians, and the ratio to the first line.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine
from bench.load import run
from bench.scale import TOPIC, fill
from bench.scenarios import produce_frame, records_of
from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient

SEGMENT_BYTES = 1 << 30
NEVER = 2**63 - 1


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--idle-seconds", type=float, default=10)
    parser.add_argument("--partitions", default="1,1000,4000")
    parser.add_argument("--segments", default="1,10,50", help="of 1 GiB each, sparse")
    machine.add_options(parser)
    arguments = parser.parse_args()
    machine.begin(arguments)
    with tempfile.TemporaryDirectory(prefix="ottla-flat-") as work:
        peers = {}
        for partitions in map(int, arguments.partitions.split(",")):
            data = Path(work, f"p{partitions}")
            fill(data, partitions, 1, 1_000_000 if partitions == 1 else 10_000)
            peers[f"{partitions} partitions"] = data
        for segments in map(int, arguments.segments.split(",")):
            data = Path(work, f"s{segments}")
            fill(data, 1, segments, 10_000)
            for path in sorted((data / f"{TOPIC}-0").glob("*.log"))[:-1]:
                with path.open("r+b") as file:
                    file.truncate(SEGMENT_BYTES)
            peers[f"{segments} segments"] = data
        measure({name: start(data) for name, data in peers.items()}, arguments)
        shutil.rmtree(work, ignore_errors=True)
    return 0


def start(data: Path) -> OttlaPeer:
    """Return a broker on ``data``."""
    options = {"ottla.max.partitions": 1_000_000, "log.flush.interval.messages": NEVER}
    peer = OttlaPeer(data, options)
    peer.start(timeout_seconds=300)
    return peer


def measure(peers: dict[str, OttlaPeer], arguments: argparse.Namespace) -> None:
    """Measure in turn and print."""
    records = records_of(1)
    costs: dict[str, list[float]] = {name: [] for name in peers}
    for number in range(arguments.rounds + 1):
        for name, peer in peers.items():
            with WireClient(peer.bootstrap, timeout_seconds=60) as client:
                frame, error_at = produce_frame(client, TOPIC, records)
            before = peer.cpu_seconds()
            run(
                peer,
                [frame],
                connections=1,
                depth=1,
                seconds=60,
                error_at=error_at,
                requests_max=arguments.requests,
            )
            if number:  # The first round warms up.
                costs[name].append((peer.cpu_seconds() - before) / arguments.requests * 1e6)
    before_idle = {name: peer.cpu_seconds() for name, peer in peers.items()}
    time.sleep(arguments.idle_seconds)
    first = None
    for name, peer in peers.items():
        idle = (peer.cpu_seconds() - before_idle[name]) / arguments.idle_seconds
        cost = statistics.median(costs[name])
        first = first or cost
        spread = f"{min(costs[name]):.1f}-{max(costs[name]):.1f}"
        print(
            f"{name:<18} {cost:6.1f} us ({spread}) a produce, {cost / first:.2f}, idle {idle:.4f}"
        )
        peer.stop()


if __name__ == "__main__":
    sys.exit(main())
