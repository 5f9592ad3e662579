"""This tree's Ottla beside another one: ``python bench/against.py PYTHON``.

PYTHON is the interpreter of an environment that has the other Ottla installed: an older tree,
say, when the question is what a change costs. Both serve the same frames of the same client, in
turn within each round and in alternating order, so that what the machine does meanwhile meets both.
What is compared is this tree's broker CPU per request over the other's, of the two runs of one
round: the median of the rounds, with the quartiles. Then process start and memory. Linux only.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine
from bench.load import Measure
from bench.run import NEVER
from bench.scenarios import Scenario, clean_up, prepare, scenarios
from tools.ottla_peer import OttlaPeer

THIS, OTHER = "this", "other"
MODES: dict[str, dict[str, object]] = {
    "durable": {},
    "unsynced": {"log.flush.interval.messages": NEVER},
}
START_SECONDS = 1.0
"""After which the memory of an idle broker is read."""


def peers_of(data: Path, python: Path, options: dict[str, object]) -> dict[str, OttlaPeer]:
    """Return both brokers, not started."""
    return {
        THIS: OttlaPeer(data / THIS, options),
        OTHER: OttlaPeer(data / OTHER, options, python=python),
    }


def ratios(runs: dict[str, list[Measure]], field: str) -> Sequence[float]:
    """Return this tree's ``field`` over the other's, for each round that nobody disturbed."""
    pairs = list(zip(runs[THIS], runs[OTHER], strict=True))
    quiet = [pair for pair in pairs if not any(run.is_disturbed for run in pair)]
    return [getattr(ours, field) / getattr(theirs, field) for ours, theirs in quiet or pairs]


def quartiles(values: Sequence[float]) -> str:
    """Return ``median (first quartile-third quartile)``."""
    if len(values) < 2:
        return f"{values[0]:.3f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.3f} ({low:.3f}-{high:.3f})"


def measure(
    peers: dict[str, OttlaPeer], scenario: Scenario, rounds: int, seconds: float
) -> dict[str, list[Measure]]:
    """Measure one scenario on both brokers; the first run of each is thrown away."""
    ready = {name: prepare(peer, scenario) for name, peer in peers.items()}
    found: dict[str, list[Measure]] = {name: [] for name in peers}
    for number in range(rounds + 1):
        for name in list(peers) if number % 2 == 0 else reversed(list(peers)):
            os.sync()
            neighbours = machine.Neighbours()
            run = ready[name][0](seconds)
            run.others_share = neighbours.share()
            if number:
                found[name].append(run)
    for name, (_, topic) in ready.items():
        clean_up(peers[name], topic)
    return found


def measure_starts(data: Path, python: Path, starts: int) -> dict[str, dict[str, list[float]]]:
    """Return seconds from spawning to the first answer, and idle MB, of both brokers in turn."""
    peers = peers_of(data, python, {})
    found: dict[str, dict[str, list[float]]] = {
        name: {"start s": [], "idle MB": []} for name in peers
    }
    for number in range(starts + 1):
        for name in list(peers) if number % 2 == 0 else reversed(list(peers)):
            peer = peers[name]
            peer.start()
            time.sleep(START_SECONDS)
            if number:
                found[name]["start s"].append(peer.started_in_seconds)
                found[name]["idle MB"].append(peer.rss_bytes() / 1e6)
            peer.stop()
    return found


def read_arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", type=Path, help="interpreter that has the other Ottla")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--connections", default="1,10,100", help="counts for the produce runs")
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one run")
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--starts", type=int, default=5, help="0: do not measure starts")
    parser.add_argument("--json", type=Path)
    machine.add_options(parser)
    return parser.parse_args()


def main() -> int:
    """Run the command line."""
    arguments = read_arguments()
    counts = [int(count) for count in arguments.connections.split(",")]
    report: dict[str, object] = {**machine.begin(arguments)}
    print(f"  {'':<52} {'CPU, this/other':>22} {'requests/s':>22} {'us/request':>14}")
    for mode in arguments.modes.split(","):
        with tempfile.TemporaryDirectory(prefix="ottla-against-") as directory:
            peers = peers_of(Path(directory), arguments.python, MODES[mode])
            try:
                for peer in peers.values():
                    peer.start()
                for scenario in scenarios(counts, arguments.depth):
                    if arguments.only in scenario.name:
                        report[f"{mode}, {scenario.name}"] = line(peers, mode, scenario, arguments)
            finally:
                for peer in peers.values():
                    peer.kill9()
    if arguments.starts:
        with tempfile.TemporaryDirectory(prefix="ottla-against-") as directory:
            starts = measure_starts(Path(directory), arguments.python, arguments.starts)
        for what in ("start s", "idle MB"):
            ours, theirs = (statistics.median(starts[name][what]) for name in (THIS, OTHER))
            print(f"  {what:<52} {ours / theirs:22.3f} {ours:.3f} beside {theirs:.3f}")
        report["starts"] = starts
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def line(
    peers: dict[str, OttlaPeer], mode: str, scenario: Scenario, arguments: argparse.Namespace
) -> dict[str, object]:
    """Measure one scenario, print its line and return its figures."""
    runs = measure(peers, scenario, arguments.rounds, arguments.seconds)
    cpu = ratios(runs, "broker_us_per_request")
    rate = ratios(runs, "requests_per_second")
    both = [statistics.median(run.broker_us_per_request for run in runs[n]) for n in (THIS, OTHER)]
    disturbed = sum(run.is_disturbed for one in runs.values() for run in one)
    note = f"  ! others were busy in {disturbed} runs" if disturbed else ""
    print(
        f"  {mode + ', ' + scenario.name:<52} {quartiles(cpu):>22} {quartiles(rate):>22}"
        f" {both[0]:6.1f} {both[1]:6.1f}{note}",
        flush=True,
    )
    return {"cpu": list(cpu), "rate": list(rate), "us_per_request": both}


if __name__ == "__main__":
    sys.exit(main())
