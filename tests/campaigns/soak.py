"""Let three hosts on an etcd live for hours under a steady load and faults; do they grow?

    python tests/campaigns/soak.py [--minutes 120] [--pause-seconds 20] [--seed 1]
        [--mb-per-hour 10] [--life-minutes 30] [--warm-up-minutes 15] [--rest-ms 100]
        [--faults cut,pause,...] [--session-ms 2000] [--directory DIR] [-o report.json]

The cluster, its faults and its first load are those of cut_networks.py, whose options hold here,
too; needs what that needs. Most faults leave processes alive. Only node 3 is killed and loses its
power, so that the processes of the other nodes live as long as the campaign. Between two rounds is
a pause, in which all are well. Load besides, light (``soaking/``): writers of transactions that
have offsets of a group in them, groups by either protocol whose members come and go and read what
is committed, topics that are made, written, read and deleted, a topic of which only the last
segments are kept, connections that are there for a moment.

About every 30 s, in a pause, each process is looked at. The report has for each that was seen for
``--life-minutes`` what it used first, last, at most, how much more per hour (least squares,
without its first ``--warm-up-minutes``), and the series.

Broken promises, for which the exit code is 1: those of cut_networks.py; a transaction that is lost,
doubled, torn or stays open; a committed offset that falls; a group that does not get what was
committed, or gets what was not; a topic that cannot be made, written or read within 90 s, or does
not go, or whose files do not (after two minutes); retention that takes a record too many or keeps
too much; private memory that grows by more than ``--mb-per-hour``.
"""

import argparse
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import KafkaException

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.campaigns.cut_networks import Campaign, command_line, main, say
from tests.campaigns.networks.cluster import Cluster
from tests.campaigns.soaking.clients import TOPICS, Clients
from tests.campaigns.soaking.samples import Lives, sample

MORTAL = 3
"""The node whose process ends now and then."""
ENDING = frozenset(("kill", "power"))
SAMPLE_SECONDS = 30.0
FAULTS = "cut,pause,cut,slow,cut,etcd,cut,kill,pause,cut,slow,cut,power"


class Soak(Campaign):
    """The cluster, all its load, and what its processes use."""

    host_options: ClassVar = {
        "auto.create.topics.enable": "false",
        "log.retention.check.interval.ms": 5_000,
        "log.segment.delete.delay.ms": 5_000,
        "offsets.topic.segment.bytes": 1 << 20,
        "transaction.state.log.num.partitions": 3,
        "transaction.state.log.replication.factor": 3,
        "transaction.state.log.segment.bytes": 1 << 20,
    }

    def __init__(self, cluster: Cluster, options: argparse.Namespace) -> None:
        super().__init__(cluster, options)
        self._others = Clients(
            cluster.bootstraps, [host.data for host in cluster.hosts.values()], options.seed
        )
        self._lives = Lives(
            life_minutes=options.life_minutes, warm_up_minutes=options.warm_up_minutes
        )
        self._began = time.monotonic()
        self._sampled = 0.0
        self._told: set[str] = set()
        """Use: problems of which a line of progress was printed."""
        self._cpu_before = self._cpu_seconds()

    def begin(self) -> None:
        """Make the topics and start all clients."""
        for topic, (partitions, configs) in TOPICS.items():
            self.create(topic, partitions, **configs)
        super().begin()
        self._others.begin()
        self.between()

    def between(self) -> None:
        """Let all be well for a while; look at the processes when it is time, and at the disks."""
        end = time.monotonic() + self._options.pause_seconds
        while time.monotonic() < end:
            if time.monotonic() > self._sampled + SAMPLE_SECONDS:
                self._sample()
            time.sleep(0.2)
        found = self._others.look()
        self.problems += found
        for problem in (*found, *self._others.problems):
            if problem not in self._told:
                say(problem)
                self._told.add(problem)

    def end(self) -> None:
        """Stop the load and judge all."""
        self._sample()
        try:
            self.problems += self._others.end()
        except KafkaException as error:
            self.problems.append(f"it cannot be judged: {error!r}")
        super().end()

    def report(self) -> dict[str, Any]:
        """Return what was done, found and used."""
        self.problems += self._lives.problems(self._options.mb_per_hour)
        led: Counter[int] = Counter()
        moves = 0
        for each in self._producers:
            nodes = [node for _, node in each.answers]
            led.update(nodes)
            moves += sum(one != other for one, other in pairwise(nodes))
        seconds = time.monotonic() - self._began
        self.problems += self._others.problems
        return {
            **super().report(),
            "acknowledged_by": {str(node): count for node, count in sorted(led.items())},
            "leaders_moved": moves,
            "others": self._others.report(),
            "cores_used": round((self._cpu_seconds() - self._cpu_before) / seconds, 2),
            **self._lives.report(),
        }

    @property
    def problem_count(self) -> int:
        """How many promises were broken."""
        return super().problem_count + len(self._others.problems)

    def _victims(self, names: Sequence[str]) -> list[int]:
        nodes = super()._victims(names)
        for at, name in enumerate(names):
            if name in ENDING:
                taken = nodes.index(MORTAL) if MORTAL in nodes else at
                nodes[taken], nodes[at] = nodes[at], MORTAL
        return nodes

    def _sample(self) -> None:
        self._sampled = time.monotonic()
        told = []
        for node, host in self._cluster.hosts.items():
            try:
                taken = sample(host.pid, host.data, self._sampled - self._began)
            except OSError as error:
                say(f"node {node} cannot be looked at: {error}")
                continue
            self._lives.add(node, host.pid, taken)
            told.append(f"node {node} {taken.private_kib / 1024:.1f} MiB")
        say(f"private: {', '.join(told)}")

    def _cpu_seconds(self) -> float:
        """Return what all of it has used: ourselves, the living and the ended processes."""
        used = 0.0
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            figures = resource.getrusage(who)
            used += figures.ru_utime + figures.ru_stime
        living = [host.cpu_seconds() for host in self._cluster.hosts.values() if host.process]
        return used + sum(living) + sum(each.cpu_seconds() for each in self._cluster.members)


def soak() -> int:
    """Run the command line."""
    parser = command_line(__doc__)
    parser.add_argument("--pause-seconds", type=float, default=20.0, help="between two rounds")
    parser.add_argument("--mb-per-hour", type=float, default=10.0, help="what may be leaked")
    parser.add_argument(
        "--life-minutes", type=float, default=30.0, help="of a process, to judge it"
    )
    parser.add_argument("--warm-up-minutes", type=float, default=15.0, help="that are not judged")
    parser.set_defaults(minutes=120.0, rounds=1_000_000, rest_ms=100, faults=FAULTS.split(","))
    return main(parser.parse_args(), Soak)


if __name__ == "__main__":
    sys.exit(soak())
