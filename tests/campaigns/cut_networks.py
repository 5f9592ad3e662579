"""Cut power and networks of three hosts on an etcd, under load, and judge the history.

    python tests/campaigns/cut_networks.py [--rounds 100] [--seed 1] [--faults power+cut,...]
        [--session-ms 2000] [--etcd 1] [--directory DIR] [-o report.json]

Each host, each etcd and all clients are machines of their own: network namespaces with an ext4
each. Needs Linux, root, ip, mkfs.ext4 and etcd; exit code 2 where it cannot run.

Six partitions of three replicas, min.insync.replicas 2, on each an idempotent producer with
acks=all and a consumer that never give up. A round is a fault, or two at once (``a+b``), under
load, then the repair, and the wait until all replicas are in sync and written again. Faults:

    power      a host loses its cable, its disk and its process at one moment, in this order
    kill       SIGKILL
    pause      SIGSTOP
    cut        one of: isolated, mute, deaf (both ways, or one, from and to everybody, with or
               without the clients), peers, peers-out, peers-in (the other hosts), pair, pair-out
               (one other host), store, store-out, store-in (etcd); each of them may be given, too
    slow       late and lossy
    etcd       etcd's processes are killed
    member     one member of etcd is killed, the leader as likely as another (--etcd 3)
    any        one of all of these

Broken promises, for which the exit code is 1: an acknowledged record that is not where it was said
to be, one that is twice, in another place, or was never sent; one that a consumer saw and that is
gone or another attempt later; an offset that a consumer had reached and a leader does not know;
replicas that are not equal byte for byte; a cluster that does not come back in a minute.
Prints a JSON report with a histogram of the times until all partitions that the host led were
acknowledged by others (of rounds with one fault, that ends leaderships).
"""

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.campaigns.networks.cluster import CLIENTS, Cluster
from tests.campaigns.networks.copies import Copies
from tests.campaigns.networks.ledger import Ledger
from tests.campaigns.networks.load import TOPIC, Client, Consumer, Leaders, Producer, read_again
from tests.campaigns.networks.network import Impossible
from tests.campaigns.powercuts.volume import LOGFLUSH, NOLOGFLUSH
from tests.campaigns.powercuts.volume import Impossible as ImpossibleVolume
from tools.wire_client import WireClient

PARTITIONS = 6
REPLICAS = 3
PATIENCE_SECONDS = 60.0
CUTS = (
    *("isolated", "mute", "deaf", "peers", "peers-out", "peers-in"),
    *("pair", "pair-out", "store", "store-out", "store-in"),
)
OTHERS = ("power", "kill", "pause", "slow", "etcd", "member")
OF_ETCD = frozenset(("etcd", "member"))
REPLACING = frozenset(("power", "kill", "pause", "isolated", "store", "store-out", "store-in"))
"""Faults that let another node lead, and last until it does when they come alone."""
HOLD_SECONDS = (0.2, 4.0)
SECOND_AFTER_SECONDS = 1.5
BUCKETS_MS = (500, 1000, 1500, 2000, 2250, 2500, 2750, 3000, 3500, 4000, 5000, 7000, 10_000)
Repair = Callable[[], None]


class Campaign:
    """One cluster, its load, and what has been found."""

    host_options: Mapping[str, object] = {}
    """Of the nodes, besides the cluster's own."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace) -> None:
        self._cluster = cluster
        self._options = options
        self._rng = random.Random(options.seed)
        self._ledgers = [Ledger(partition) for partition in range(PARTITIONS)]
        self._leaders = Leaders(cluster.bootstraps, PARTITIONS)
        rest = options.rest_ms / 1000
        self._producers = [
            Producer(self._leaders, each, rest, options.seed) for each in self._ledgers
        ]
        self._consumers = [Consumer(self._leaders, each, rest) for each in self._ledgers]
        self._copies = [
            Copies(
                f"{TOPIC}-{partition}",
                [host.data / f"{TOPIC}-{partition}" for host in cluster.hosts.values()],
            )
            for partition in range(PARTITIONS)
        ]
        self.problems: list[str] = []
        self.rounds: Counter[str] = Counter()
        self.served: dict[str, list[int]] = {}
        self.settled: list[int] = []

    # -- the load -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Make the topic and start all clients."""
        self.create(TOPIC, PARTITIONS)
        for each in self._clients:
            each.start()
        self._wait_until_well()

    def create(self, topic: str, partitions: int, **configs: str) -> None:
        """Make a topic of three replicas; ``configs`` have _ for each dot of their names.

        Its records are of 2023: without a word on that they would be too old to be kept.
        """
        configs = {"min_insync_replicas": "2", "retention_ms": "-1", **configs}
        wanted = {
            "name": topic,
            "num_partitions": partitions,
            "replication_factor": REPLICAS,
            "configs": [
                {"name": name.replace("_", "."), "value": value} for name, value in configs.items()
            ],
        }
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with WireClient(self._cluster.bootstraps[1]) as client:
                created = client.call("create_topics", 7, topics=[wanted], timeout=10_000)
            if not created["topics"][0]["error_code"]:
                break
            if time.monotonic() > deadline:
                raise AssertionError(created)
            time.sleep(0.1)

    @property
    def _clients(self) -> list[Client]:
        return [*self._producers, *self._consumers]

    def end(self) -> None:
        """Stop the load, and judge all once more from the first record on."""
        for each in self._producers:
            each.stopping.set()
        for each in self._producers:
            each.join(PATIENCE_SECONDS)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(each.seen < each.acknowledged for each in self._ledgers):
            if time.monotonic() > deadline:
                self.problems.append("the consumers do not come to the end")
                break
            time.sleep(0.05)
        for each in self._consumers:
            each.stopping.set()
        for each in self._consumers:
            each.join(PATIENCE_SECONDS)
        for copies in self._copies:
            copies.begin_again()
        self._compare(is_over=True)
        for ledger in self._ledgers:
            read_again(self._leaders, ledger)

    # -- one round ----------------------------------------------------------------------------

    def round(self, number: int, fault: str) -> None:
        """Let it happen, repair it, judge."""
        names = [self._chosen(name) for name in fault.split("+")]
        nodes = self._victims(names)
        where = f"round {number}: " + ", ".join(
            f"{name} of {node}" for name, node in zip(names, nodes, strict=True)
        )
        theirs = [
            each
            for each in self._producers
            if self._leaders.last_known(each.partition).node == nodes[0]
        ]
        begun = time.monotonic()
        repairs: list[Repair] = []
        for at, (name, node) in enumerate(zip(names, nodes, strict=True)):
            if at:
                time.sleep(self._rng.random() * SECOND_AFTER_SECONDS)
            if name in OTHERS and name not in OF_ETCD and self._cluster.hosts[node].process is None:
                continue  # Both befall one host, which is down already.
            repairs.append(self._befall(name, node))
        took = None
        if len(names) == 1 and names[0] in REPLACING and theirs:
            took = self._served_by_others(theirs, nodes[0], begun)
            if took is None:
                self.problems.append(
                    f"{where}: not served within {self._options.patience_seconds} s"
                )
            else:
                self.served.setdefault(names[0], []).append(round(took * 1000))
        else:
            time.sleep(self._rng.uniform(*HOLD_SECONDS))
        for repair in reversed(repairs):
            repair()
        repaired = time.monotonic()
        known = len(self.problems)
        self._wait_until_well()
        self.settled.append(round((time.monotonic() - repaired) * 1000))
        self._compare()
        self.rounds["+".join(names) if len(names) == 1 else fault] += 1
        for at in range(known, len(self.problems)):
            self.problems[at] = f"{where}: {self.problems[at]}"
        told = "" if took is None else f", served after {took * 1000:.0f} ms"
        say(f"{where}{told}, well after {self.settled[-1]} ms, {self.problem_count} problems")

    def between(self) -> None:
        """Do what is to be done between two rounds."""

    def _victims(self, names: Sequence[str]) -> list[int]:
        """Return whom each befalls: the first leads something; the others are others."""
        first = self._leaders.of(self._rng.randrange(PARTITIONS)).node
        others = [node for node in self._cluster.hosts if node != first]
        return [first, *self._rng.sample(others, len(names) - 1)]

    @property
    def problem_count(self) -> int:
        """How many promises were broken."""
        return len(self.problems) + sum(len(each.problems) for each in self._ledgers)

    def _chosen(self, name: str) -> str:
        if name == "any":
            name = self._rng.choice((*OTHERS, "cut"))
        return self._rng.choice(CUTS) if name == "cut" else name

    def _befall(self, name: str, node: int) -> Repair:
        cluster, host = self._cluster, self._cluster.hosts[node]
        if name == "power":
            cluster.lose_power(node, self._rng.choice((LOGFLUSH, NOLOGFLUSH)))
            return lambda: cluster.power_on(node)
        if name == "kill":
            host.kill9()
            return lambda: cluster.start(node)
        if name == "pause":
            host.send(signal.SIGSTOP)
            return lambda: host.send(signal.SIGCONT)
        if name == "slow":
            cluster.network.slow_down(host.machine)
            return lambda: cluster.network.speed_up(host.machine)
        if name in OF_ETCD:
            members = cluster.members if name == "etcd" else [self._rng.choice(cluster.members)]
            for member in members:
                member.kill()
            return lambda: [member.start() for member in members]
        cluster.network.cut(self._ways(name, host.machine))
        return cluster.network.mend

    def _ways(self, name: str, machine: str) -> list[tuple[str, str]]:
        cluster = self._cluster
        peers = [each.machine for each in cluster.hosts.values() if each.machine != machine]
        everybody = [*peers, *cluster.etcd_machines]
        if self._rng.random() < 0.5:
            everybody.append(CLIENTS)
        others = {
            "peers": peers,
            "pair": [self._rng.choice(peers)],
            "store": cluster.etcd_machines,
        }.get(name.partition("-")[0], everybody)
        out, into = cluster.ways([machine], others), cluster.ways(others, [machine])
        if name == "mute" or name.endswith("-out"):
            return out
        if name == "deaf" or name.endswith("-in"):
            return into
        return out + into

    def _served_by_others(self, theirs: list[Producer], node: int, begun: float) -> float | None:
        """Wait until others serve all that a node led; return how long that took from ``begun``."""
        deadline = begun + self._options.patience_seconds
        latest = begun
        for each in theirs:
            while True:
                found = [at for at, by in each.answers[-200:] if at > begun and by != node]
                if found:
                    latest = max(latest, found[0])
                    break
                if time.monotonic() > deadline:
                    return None
                time.sleep(0.005)
        return latest - begun

    def _wait_until_well(self) -> None:
        """Wait until all replicas are in sync, all partitions written and read again."""
        begun = time.monotonic()
        deadline = begun + self._options.patience_seconds
        while True:
            isrs = self._leaders.isrs()
            are_whole = bool(isrs[0]) and all(len(isr) == REPLICAS for isr in isrs)
            are_written = all(
                each.answers and each.answers[-1][0] > begun for each in self._producers
            )
            if are_whole and are_written:
                return
            if time.monotonic() > deadline:
                late = [
                    each.partition
                    for each in self._producers
                    if not each.answers or each.answers[-1][0] <= begun
                ]
                leaders = [self._leaders.last_known(n) for n in range(PARTITIONS)]
                self.problems.append(f"not well: ISRs {isrs}, not written {late}, {leaders}")
                raise Stuck(self.problems)
            broken = [each.broke for each in self._clients if each.broke is not None]
            if broken:
                raise broken[0]
            time.sleep(0.02)

    def _compare(self, *, is_over: bool = False) -> None:
        for copies in self._copies:
            for again in range(5):  # A batch may be half written when it is read.
                found = copies.compare(is_over=is_over)
                if not found:
                    break
                time.sleep(0.1 * (again + 1))
            self.problems += found

    def report(self) -> dict[str, Any]:
        """Return what was done and found."""
        codes: Counter[int] = Counter()
        for each in self._producers:
            codes.update(each.codes)
        problems = [*self.problems, *(one for each in self._ledgers for one in each.problems)]
        return {
            "rounds": dict(self.rounds),
            "seed": self._options.seed,
            "session_ms": self._options.session_ms,
            "acknowledged": sum(each.acknowledged for each in self._ledgers),
            "seen": sum(each.seen for each in self._ledgers),
            "producers_were_told": {str(code): count for code, count in sorted(codes.items())},
            "served_by_others": {name: histogram(each) for name, each in self.served.items()},
            "well_again": histogram(self.settled),
            "problem_count": len(problems),
            "problems": problems[:50],
        }


class Stuck(Exception):
    """The cluster does not come back."""


def histogram(times_ms: list[int]) -> dict[str, Any]:
    """Return how many times lie below each bound and above the one before, and some quantiles."""
    ordered = sorted(times_ms)
    if not ordered:
        return {}
    counts: Counter[str] = Counter()
    for each in ordered:
        bound = next((bound for bound in BUCKETS_MS if each < bound), None)
        counts["more" if bound is None else f"< {bound} ms"] += 1
    return {
        "count": len(ordered),
        "median_ms": ordered[len(ordered) // 2],
        "p90_ms": ordered[int(len(ordered) * 0.9)],
        "p99_ms": ordered[int(len(ordered) * 0.99)],
        "max_ms": ordered[-1],
        "below_3_s": round(sum(each < 3000 for each in ordered) / len(ordered), 4),
        "counts": dict(counts),
    }


def say(text: str) -> None:
    """Tell progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def run(directory: Path, options: argparse.Namespace, kind: type[Campaign]) -> dict[str, Any]:
    """Run all rounds; return the report. Raises Impossible."""
    with Cluster(
        directory,
        session_ms=options.session_ms,
        members=options.etcd,
        options=kind.host_options,
    ) as cluster:
        campaign = kind(cluster, options)
        campaign.begin()
        began = time.monotonic()
        try:
            for number in range(options.rounds):
                if options.minutes and time.monotonic() - began > options.minutes * 60:
                    break
                campaign.round(number, options.faults[number % len(options.faults)])
                campaign.between()
            campaign.end()
        except Stuck:
            say("it does not come back")
        return {**campaign.report(), "seconds": round(time.monotonic() - began)}


def command_line(description: str) -> argparse.ArgumentParser:
    """Return what all campaigns of this kind understand."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no round after that")
    parser.add_argument("--session-ms", type=int, default=2_000)
    parser.add_argument(
        "--patience-seconds",
        type=float,
        default=PATIENCE_SECONDS,
        help="how long it may take to come back; more where processes wait for processors",
    )
    parser.add_argument("--etcd", type=int, default=1, help="members")
    parser.add_argument("--rest-ms", type=int, default=20, help="of a producer after each batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=lambda text: text.split(","), default=["power+cut", "any"])
    parser.add_argument("--directory", type=Path, help="keeps logs and data there; must not exist")
    parser.add_argument("-o", "--output", type=Path, help="the report; else to standard output")
    return parser


def main(options: argparse.Namespace, kind: type[Campaign] = Campaign) -> int:
    """Run a campaign, print its report, return the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))  # By way of the unmounting.
    if shutil.which("etcd") is None:
        print("cannot run here: there is no etcd", file=sys.stderr)
        return 2
    with ExitStack() as stack:
        if options.directory is None:
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-networks-"))
            directory = Path(made)
        else:
            directory = options.directory
            directory.mkdir()
        try:
            report = run(directory, options, kind)
        except (Impossible, ImpossibleVolume) as error:
            print(f"cannot run here: {error}", file=sys.stderr)
            return 2
    text = json.dumps(report, indent=2)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n", encoding="utf-8")
    return 1 if report["problem_count"] else 0


if __name__ == "__main__":
    sys.exit(main(command_line(__doc__).parse_args()))
