"""Ottla against Apache Kafka, side by side: ``python bench/run.py``.

Starts two Kafkas (tools/kafka_peer.py), one as it comes and one that fsyncs every batch
(log.flush.interval.messages=1, the fair partner of Ottla's default), and two Ottlas, one durable
(the default: acks=all means fsynced) and one that flushes as Kafka does (never by itself). Backs
the machine's memory first (bench/machine.py); then measures every scenario in rounds, the brokers
in turn within each round, with the same raw client and the same bytes, each run on a file system
that has nothing to write. The JVMs are warmed up by all scenarios first, and again by each before
its rounds count. Prints a table of medians with minimum and maximum, the ratios to Kafka, and, with
--json FILE, every single run. A run in which other processes took more than a tenth of the
processors is marked, and left out while there are quiet ones. --table measures and prints the rows
of README.md and bench/README.md, in less than fifteen minutes. Needs Linux, Java 17 and the jars;
ten minutes, or twenty with --connections 1,10,100,500. The target "ottla mapped" is the unsynced
one with preallocated segments.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine
from bench.load import Measure
from bench.scenarios import FEW_CONNECTIONS, Scenario, clean_up, prepare, scenarios
from bench.tables import ROWS, Tables, quiet
from ottla.env.open_files import raise_open_files_limit
from tools.kafka_peer import KafkaPeer, libraries
from tools.ottla_peer import OttlaPeer
from tools.peer import Peer

NEVER = 9_223_372_036_854_775_807
OPTIONS: dict[str, dict[str, object]] = {
    "kafka synced": {"log.flush.interval.messages": 1},
    "ottla durable": {},
    "ottla unsynced": {"log.flush.interval.messages": NEVER},
    "ottla mapped": {"log.flush.interval.messages": NEVER, "log.preallocate": "true"},
}
TARGETS = ("kafka", "kafka synced", "ottla durable", "ottla unsynced")


def make_peers(names: Sequence[str], data: Path) -> dict[str, Peer]:
    """Return the brokers, not started."""
    known: dict[str, Peer] = {}
    for name in names:
        directory = data / name.replace(" ", "-")
        if name.startswith("kafka"):
            options = {"log.segment.delete.delay.ms": 1000, **OPTIONS.get(name, {})}
            known[name] = KafkaPeer(directory, options)
        else:
            known[name] = OttlaPeer(directory, OPTIONS[name])
    return known


def warm_up(kafka: Peer, counts: Sequence[int], depth: int, cpu_seconds: float) -> None:
    """Let the JVM compile what the scenarios use, until it has spent ``cpu_seconds``.

    By its own CPU time, so that a busy machine warms it as well as a quiet one.
    """
    begin = kafka.cpu_seconds()
    few = [count for count in counts if count <= FEW_CONNECTIONS] or counts[:1]
    produces = [scenario for scenario in scenarios(few, depth) if scenario.kind != "fetch"]
    ready = [prepare(kafka, scenario) for scenario in produces]
    while kafka.cpu_seconds() - begin < cpu_seconds:
        for measure, _ in ready:
            measure(1.0)
    for _, topic in ready:
        clean_up(kafka, topic)


def measure_scenario(
    peers: dict[str, Peer], scenario: Scenario, *, rounds: int, seconds: float, warmup: float
) -> dict[str, list[Measure]]:
    """Measure one scenario on every broker, in interleaved rounds."""
    ready = {name: prepare(peer, scenario) for name, peer in peers.items()}
    for name, (measure, _) in ready.items():
        measure(warmup if name.startswith("kafka") else min(warmup, 0.5))
    found: dict[str, list[Measure]] = {name: [] for name in peers}
    for number in range(rounds):
        names = list(peers)
        for name in names if number % 2 == 0 else reversed(names):
            os.sync()  # Nobody is to write, or to sync, what another broker has left.
            neighbours = machine.Neighbours()
            run = ready[name][0](seconds)
            run.others_share = neighbours.share()
            found[name].append(run)
    for name, (_, topic) in ready.items():
        clean_up(peers[name], topic)
    return found


def spread(values: Sequence[float], digits: int) -> str:
    """Return ``median (min-max)``."""
    middle = statistics.median(values)
    return f"{middle:,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


def line(name: str, runs: Sequence[Measure], kafka: Sequence[Measure] | None) -> str:
    """Return one broker's line of a scenario."""
    disturbed = sum(run.is_disturbed for run in runs)
    of = len(runs)
    runs = quiet(runs)
    cells = [
        f"  {name:<15}",
        f"{spread([run.requests_per_second for run in runs], 0):>26}",
        f"{spread([run.megabytes_per_second for run in runs], 1):>26}",
        f"{statistics.median(run.latency_ms(0.5) for run in runs):8.2f}",
        f"{statistics.median(run.latency_ms(0.99) for run in runs):8.2f}",
        f"{spread([run.broker_us_per_request for run in runs], 1):>28}",
        f"{statistics.median(run.broker_user_us_per_request for run in runs):9.1f}",
        f"{statistics.median(run.broker_seconds_per_gigabyte for run in runs):8.2f}",
    ]
    if kafka is not None:
        cells.append(f"{ratio(runs, kafka, 'requests_per_second'):7.2f}")
        cells.append(f"{ratio(runs, kafka, 'broker_us_per_request'):7.2f}")
        cells.append(f"{ratio(runs, kafka, 'broker_user_us_per_request'):7.2f}")
    if disturbed:
        cells.append(f"  ! others were busy in {disturbed} of {of} runs")
    return " ".join(cells)


def ratio(runs: Sequence[Measure], kafka: Sequence[Measure], field: str) -> float:
    """Return the median of ``field`` over Kafka's median."""
    ours = statistics.median(getattr(run, field) for run in quiet(runs))
    theirs = statistics.median(getattr(run, field) for run in quiet(kafka))
    return ours / theirs if theirs else float("nan")


def as_json(run: Measure) -> dict[str, float]:
    """Return the figures of one run."""
    return {
        "requests": run.requests,
        "seconds": run.seconds,
        "requests_per_second": run.requests_per_second,
        "megabytes_per_second": run.megabytes_per_second,
        "p50_ms": run.latency_ms(0.5),
        "p99_ms": run.latency_ms(0.99),
        "broker_us_per_request": run.broker_us_per_request,
        "broker_user_us_per_request": run.broker_user_us_per_request,
        "broker_seconds_per_gigabyte": run.broker_seconds_per_gigabyte,
        "client_us_per_request": run.client_us_per_request,
        "others_share": run.others_share,
    }


def read_arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="of one run")
    parser.add_argument("--warmup", type=float, default=4.0, help="seconds, for the JVM")
    parser.add_argument(
        "--first-warmup", type=float, default=30.0, help="the JVM's CPU seconds before it all"
    )
    parser.add_argument("--connections", default="1,10", help="counts for the produce scenarios")
    parser.add_argument(
        "--depth", type=int, default=5, help="requests in flight per connection, of 2 to 50"
    )
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--json", type=Path, help="write every run to this file")
    parser.add_argument("--data", type=Path, help="where the brokers write (default: temporary)")
    parser.add_argument(
        "--table", action="store_true", help="the rows of the READMEs, and no others"
    )
    machine.add_options(parser)
    return parser.parse_args()


def main() -> int:
    """Run the command line."""
    arguments = read_arguments()
    if arguments.table:
        arguments.connections = "1,10,100"
    names = arguments.targets.split(",")
    counts = [int(count) for count in arguments.connections.split(",")]
    raise_open_files_limit()  # The brokers inherit it.
    if "kafka" in names:
        libraries()
    report: dict[str, object] = {
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        **machine.begin(arguments),
        "scenarios": {},
    }
    print(f"{report['machine']}, load {report['load_before']}; {report['memory']}")
    print("  medians (min-max) of the rounds; the last three columns are ratios to Kafka's")
    print(
        f"  {'':<15} {'requests/s':>26} {'MB/s':>26} {'p50 ms':>8} {'p99 ms':>8}"
        f" {'broker CPU us/request':>28} {'user':>9} {'s/GB':>8}"
        f" {'thrpt':>7} {'CPU':>7} {'user':>7}"
    )
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=arguments.data) as directory:
        peers = make_peers(names, Path(directory))
        try:
            measure_all(peers, counts, arguments, report)
        finally:
            for peer in peers.values():
                peer.kill9()
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def measure_all(
    peers: dict[str, Peer],
    counts: Sequence[int],
    arguments: argparse.Namespace,
    report: dict[str, object],
) -> None:
    """Start and warm up, measure every scenario that is wanted, print."""
    for peer in peers.values():
        peer.start()
    tables = Tables(
        {name: (peer.started_in_seconds, peer.rss_bytes()) for name, peer in peers.items()}
    )
    for name, peer in peers.items():
        if name.startswith("kafka"):
            warm_up(peer, counts, arguments.depth, arguments.first_warmup)
    for scenario in scenarios(counts, arguments.depth):
        if scenario.name in ROWS if arguments.table else arguments.only in scenario.name:
            tables.add(scenario, report_scenario(peers, scenario, arguments, report))
    if arguments.table:
        print(tables.text())


def report_scenario(
    peers: dict[str, Peer],
    scenario: Scenario,
    arguments: argparse.Namespace,
    report: dict[str, object],
) -> dict[str, list[Measure]]:
    """Measure and print one scenario; put its runs into the report, and return them."""
    found = measure_scenario(
        peers,
        scenario,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        warmup=arguments.warmup,
    )
    print(f"{scenario.name}, {scenario.depth} in flight each", flush=True)
    kafka = found.get("kafka")
    for name, runs in found.items():
        print(line(name, runs, kafka if name != "kafka" else None), flush=True)
    rows = report["scenarios"]
    if isinstance(rows, dict):
        rows[scenario.name] = {name: [as_json(run) for run in runs] for name, runs in found.items()}
    return found


if __name__ == "__main__":
    sys.exit(main())
