"""Cut the power of a node at every change it asks of its disk, and prove that no promise breaks.

    python tests/campaigns/powercut.py [--cuts 1000] [--seed 1] [-o report.json]

Needs root: it mounts an ext4 of its own. Each scenario (a first start, produce over rolls, ...) is
played once to count its changes (n), then again and again with another end: before the first, the
second, ... the n-th change, each in five ways (see CutKind). Then the node is started, killed, and
started again, and what it says is held against the ledger: no acknowledged or seen record is lost,
none is there that was not sent, each is in its place, byte for byte; a producer's resend is a
duplicate with its first offset, and its next batch is taken; topics, configs, deleted records and
producer ids are as promised; the second recovery has changed nothing on the disk. Some recoveries
are cut, too. With fewer cuts than there are (change, kind) pairs, a sample of them by seed.
Prints a JSON report; exit code 1 when a promise was broken, 2 where it cannot run.
"""

import argparse
import copy
import json
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from powercuts.client import CampaignClient, WrongAnswer
from powercuts.cutting import NEVER, CutKind, CutPlan
from powercuts.ledger import Ledger
from powercuts.node import Cut, CuttableNode, Node, NodeFailed
from powercuts.scenarios import SCENARIOS, Scenario
from powercuts.served import ServedNode
from powercuts.transactions import TransactionWriter, judge_committed
from powercuts.volume import Impossible, Volume

from ottla.log.files.layout import CLEAN_SHUTDOWN

OPTIONS = {
    "auto.create.topics.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "86400000",
    "log.retention.check.interval.ms": "86400000",
    "log.cleaner.backoff.ms": "86400000",
    "offsets.topic.num.partitions": "2",
    "log.segment.delete.delay.ms": "86400000",
}
"""The node does its housekeeping when it is told to, not by its clock."""
CHECKPOINTS = {
    "log.flush.offset.checkpoint.interval.ms": "5",
    "log.flush.start.offset.checkpoint.interval.ms": "5",
    "replica.high.watermark.checkpoint.interval.ms": "5",
}
"""A recovery point is written between any two other changes, and vouches for what is below it."""
CUT_RECOVERIES = 0.25
RECOVERY_CHANGES_MAX = 30
TIMED_SHARE = 0.08
TIMED_SHARE_SERVED = 0.03
"""Of all cuts, for each scenario of that sort."""


class Place(NamedTuple):
    """One cut to be made."""

    scenario: Scenario
    plan: CutPlan


class Campaign:
    """Runs cuts and counts what came of them."""

    def __init__(self, volume: Volume, scratch: Path, *, seed: int) -> None:
        self._volume = volume
        self._scratch = scratch
        self._seed = seed
        self._random = random.Random(seed)
        self._templates: dict[str, tuple[Path | None, Ledger]] = {}
        self.changes: dict[str, int] = {}
        self.cuts: Counter[tuple[str, str, str]] = Counter()
        """By scenario and step, call and file, and kind."""
        self.kinds: Counter[str] = Counter()
        self.problems: list[str] = []
        self.start_seconds: list[float] = []
        self.acknowledged = 0
        self.checked = 0
        self.resent = 0

    def _node(self, scenario: Scenario, options: Mapping[str, str] = OPTIONS) -> Node:
        data = self._volume.path / "data"
        if scenario.log_dirs != (".",):
            data.mkdir(exist_ok=True)
        log_path, log_dirs = self._scratch / "node.log", scenario.log_dirs
        return Node(data, self._volume.path, options, log_path, log_dirs=log_dirs)

    def _played(self, scenario: Scenario) -> CuttableNode:
        if scenario.is_served:
            return ServedNode(self._volume.path / "data", self._volume.path, OPTIONS)
        return self._node(
            scenario, OPTIONS | CHECKPOINTS if scenario.writes_checkpoints else OPTIONS
        )

    # -- scenarios ----------------------------------------------------------------------------

    def prepare(self, scenario: Scenario) -> None:
        """Make the scenario's directory and count the changes of its play."""
        ledger = Ledger()
        template = None
        if scenario.prepare is not None:
            self._clear()
            node = self._node(scenario)
            node.start()
            client = CampaignClient(node, ledger, seed=self._seed)
            client.connect()
            scenario.prepare(client)
            client.close()
            if scenario.stops_cleanly:
                node.stop()
            else:
                node.kill()
            template = self._scratch / scenario.name.replace(" ", "-")
            shutil.copytree(self._volume.path / "data", template)
            if scenario.loses_metadata:
                for path in template.rglob("metadata.sqlite*"):
                    path.unlink()
        self._templates[scenario.name] = (template, ledger)
        self.changes[scenario.name] = 0
        if not scenario.window_us:
            found, _, _ = self._play(scenario, NEVER, self._put_back(scenario))
            self.changes[scenario.name] = found

    def _clear(self) -> None:
        shutil.rmtree(self._volume.path / "data", ignore_errors=True)

    def _put_back(self, scenario: Scenario) -> Ledger:
        template, ledger = self._templates[scenario.name]
        self._clear()
        if template is not None:
            shutil.copytree(template, self._volume.path / "data")
        self._volume.sync()
        return copy.deepcopy(ledger)

    def _play(self, scenario: Scenario, plan: CutPlan, ledger: Ledger) -> tuple[int, str, str]:
        """Play with this end; return changes counted, the step and the call it was cut at."""
        node = self._played(scenario)
        client = CampaignClient(node, ledger, seed=self._seed + 1)
        changes = 0
        try:
            node.start(plan if scenario.cuts_start else NEVER)
            client.connect()
            if not scenario.cuts_start:
                node.arm(plan)
            scenario.act(client)
            changes = node.changes if client.step == "clean stop" else node.count()
        except Cut:
            return 0, client.step, node.cut_at
        except WrongAnswer:
            # A refusal may still get out between the end of the disk and that of the process.
            if not node.was_cut():
                raise
            return 0, client.step, node.cut_at
        finally:
            client.close()
            node.kill()
        return changes, "end", ""

    # -- one cut ------------------------------------------------------------------------------

    def cut(self, place: Place) -> None:
        """Put back, play, cut, recover, judge."""
        scenario, plan = place
        at = f"{plan.after_us} us" if plan.after_us else plan.nth
        where = f"{scenario.name}: {plan.kind.value} at {at}, seed {plan.seed}"
        try:
            ledger = self._put_back(scenario)
            _, step, call = self._play(scenario, plan, ledger)
            where += f" ({step}, {call})"
            if call:
                self._note(scenario.name, step, call, plan.kind)
            self._power_on(plan.kind, ledger)
            self._maybe_cut_recovery(place, ledger)
            self._judge(place, ledger, where)
        except (Cut, NodeFailed, WrongAnswer) as error:
            self.problems.append(f"{where}: {type(error).__name__}: {error}")
            if not self._is_mounted_well():
                self._volume.power_on_again()

    def _note(self, scenario: str, step: str, call: str, kind: CutKind) -> None:
        self.cuts[f"{scenario} / {step}", _call_name(call), kind.value] += 1
        self.kinds[kind.value] += 1

    def _is_mounted_well(self) -> bool:
        try:
            (self._volume.path / "probe").write_bytes(b"x")
        except OSError:
            return False
        return True

    def _power_on(self, kind: CutKind, ledger: Ledger) -> None:
        if kind is not CutKind.KILL:
            self._volume.power_on_again()
            for topic in ledger.topics:
                for partition in topic.partitions:
                    partition.power_was_cut()

    def _maybe_cut_recovery(self, place: Place, ledger: Ledger) -> None:
        """Start, and be cut again on the way; now and then twice."""
        scenario, plan = place
        chooser = random.Random(plan.seed)
        while chooser.random() < CUT_RECOVERIES:
            kind = chooser.choice(list(CutKind))
            nth = chooser.randint(1, RECOVERY_CHANGES_MAX)
            node = self._node(scenario)
            try:
                node.start(CutPlan(nth, kind, plan.seed))
            except Cut:
                self._note("recovery", "start", node.cut_at, kind)
                self._power_on(kind, ledger)
            finally:
                node.kill()

    def _judge(self, place: Place, ledger: Ledger, where: str) -> None:
        scenario = place.scenario
        node = self._node(scenario)
        if any((self._volume.path / "data").rglob(CLEAN_SHUTDOWN)):
            # The first start will trust it: the first recovery is that of the second one.
            node.start()
            node.kill()
        node.start()
        self.start_seconds.append(node.start_seconds)
        if int(node.order("offline")):
            self.problems.append(f"{where}: a partition is offline")
        node.kill()
        before = self._files()
        node.start()
        client = CampaignClient(node, ledger, seed=place.plan.seed)
        try:
            after = self._files()
            for name in before.keys() | after.keys():
                if before.get(name) != after.get(name):
                    what = difference(before.get(name), after.get(name))
                    self.problems.append(f"{where}: the second recovery changed {name}: {what}")
            client.connect()
            problems = self._compare(client)
            self._go_on(client)
            problems += self._compare(client)
            client.close()
            node.stop()
            node.start()
            client.connect()
            problems += self._compare(client)
            self.problems += [f"{where}: {problem}" for problem in problems]
        finally:
            client.close()
            node.kill()

    def _files(self) -> dict[str, bytes]:
        """Return the files that a second recovery must leave as they are.

        The metadata store notes every start. The sparse indexes of a full segment below the
        recovery point are no business of a start: who first uses one that is torn makes it anew.
        """
        data = self._volume.path / "data"
        return {
            str(path.relative_to(data)): path.read_bytes()
            for path in data.rglob("*")
            if path.is_file() and "sqlite" not in path.name and not _is_index_of_full_segment(path)
        }

    def _compare(self, client: CampaignClient) -> list[str]:
        """Hold what the node says against the ledger, which takes it as seen then."""
        ledger = client.ledger
        problems = ledger.judge_topics(client.topics())
        directories = set()
        for topic in ledger.present:
            if client.topic_configs(topic) not in topic.configs:
                problems.append(f"configs of {topic.name}: {client.topic_configs(topic)}")
            for index, partition in enumerate(topic.partitions):
                directories.add(f"{topic.name}-{index}")
                start, end, found = client.read(topic, index)
                problems += partition.judge(start, end, found)
                partition.settle(start, end)
                if partition.is_transactional:
                    partition.forget_lost()
                    problems += judge_committed(client, topic, index)
                self.checked += len(found)
        problems += client.judge_offsets()
        data = self._volume.path / "data"
        found_directories = {
            path.name
            for path in (*data.iterdir(), *data.glob("?/*"))
            if path.is_dir()
            and len(path.name) > 1
            and not path.name.endswith(("-delete", "-future"))
            and not path.name.startswith("__")
        }
        if found_directories != directories:
            problems.append(f"directories {found_directories}, topics say {directories}")
        return problems

    def _go_on(self, client: CampaignClient) -> None:
        """As producers do: resend what may have been lost, then go on."""
        client.new_producer_id()
        for topic in client.ledger.present:
            for index, partition in enumerate(topic.partitions):
                if partition.is_transactional:
                    writer = TransactionWriter(client, topic, index)
                    writer.write(3)
                    writer.end_all()
                    continue
                kept = [one for one in partition.batches if one.end_offset <= partition.seen_end]
                lost = [one for one in partition.batches if one.end_offset > partition.seen_end]
                # Of a producer the last five batches are remembered; only one outlives compaction.
                remembered = 1 if partition.is_compacted else 5
                again = [one for one in kept if one.base_offset >= partition.deleted_to]
                again = again[-remembered:]
                self.resent += len(again) + len(lost)
                self.acknowledged += partition.acked_end
                for one in [*again, *lost]:
                    client.send(topic, index, [one])
                client.produce(topic, index, 2)

    # -- report -------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """Return what was done and found."""
        starts = sorted(self.start_seconds) or [0.0]
        by_scenario: dict[str, Counter[str]] = {}
        by_call: dict[str, Counter[str]] = {}
        for (scenario, call, kind), count in sorted(self.cuts.items()):
            by_scenario.setdefault(scenario, Counter())[kind] += count
            by_call.setdefault(call, Counter())[kind] += count
        return {
            "cuts": sum(self.kinds.values()),
            "by_kind": dict(self.kinds),
            "by_step": {name: dict(counts) for name, counts in by_scenario.items()},
            "by_call": {name: dict(counts) for name, counts in by_call.items()},
            "changes_in_scenario": self.changes,
            "records_acknowledged": self.acknowledged,
            "batches_compared": self.checked,
            "batches_resent": self.resent,
            "start_seconds": {
                "median": round(starts[len(starts) // 2], 3),
                "max": round(starts[-1], 3),
            },
            "problem_count": len(self.problems),
            "problems": self.problems[:50],
        }


def _is_index_of_full_segment(path: Path) -> bool:
    if path.suffix not in {".index", ".timeindex"}:
        return False
    return path.stem < max((log.stem for log in path.parent.glob("*.log")), default="")


def difference(before: bytes | None, after: bytes | None) -> str:
    """Say in which bytes a file's content differs; None: there is no such file."""
    if before is None or after is None:
        return "it was not there" if before is None else "it is gone"
    common = next(
        (at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other),
        min(len(before), len(after)),
    )
    pieces = [f"{len(it)} bytes, {it[common : common + 32].hex()}" for it in (before, after)]
    return f"from byte {common}: {pieces[0]}; {pieces[1]}"


def _call_name(call: str) -> str:
    """Return ``rename *.snapshot`` for ``rename t-0/00000000000000000012.snapshot``."""
    name, _, path = call.partition(" ")
    parts = Path(path).name.lstrip(".").split(".")
    file = Path(path).name
    if parts[0].isdigit():
        file = "*." + ".".join(parts[1:])
    elif parts[-1].endswith("-delete"):
        file = "(deleted partition)"
    elif len(parts) == 1 and file.rpartition("-")[2].isdigit():
        file = "(partition)"
    return f"{name} {file}"


def places_of(changes: dict[str, int], count: int, seed: int) -> list[Place]:
    """Return ``count`` cuts: a part of them by time, and as many (change, kind) pairs as fit."""
    chooser = random.Random(seed)
    counted, timed = [], []
    for scenario in SCENARIOS:
        for nth in range(1, changes.get(scenario.name, 0) + 1):
            for kind in CutKind:
                plan = CutPlan(nth, kind, chooser.randrange(1 << 30))
                counted.append(Place(scenario, plan))
        if scenario.window_us and scenario.name in changes:
            share = TIMED_SHARE_SERVED if scenario.is_served else TIMED_SHARE
            for _ in range(max(1, round(count * share))):
                plan = CutPlan(
                    nth=0,
                    kind=chooser.choice(list(CutKind)),
                    seed=chooser.randrange(1 << 30),
                    after_us=chooser.randrange(1, scenario.window_us),
                )
                timed.append(Place(scenario, plan))
    found = [*timed, *chooser.sample(counted, min(len(counted), max(count - len(timed), 0)))]
    chooser.shuffle(found)
    return found


def run(*, cuts: int, seed: int, scratch: Path, mount_options: str, only: str) -> dict[str, Any]:
    """Run the campaign; return its report. Raises Impossible."""
    begin = time.monotonic()
    with Volume(scratch, options=mount_options) as volume:
        campaign = Campaign(volume, scratch, seed=seed)
        for scenario in SCENARIOS:
            if re.search(only, scenario.name):
                campaign.prepare(scenario)
        places = places_of(campaign.changes, cuts, seed)
        print(f"{campaign.changes}; {len(places)} cuts to make", file=sys.stderr)
        for number, place in enumerate(places, 1):
            known = len(campaign.problems)
            campaign.cut(place)
            for problem in campaign.problems[known:]:
                print(problem, file=sys.stderr)
            if number % 20 == 0 or number == len(places):
                spent = time.monotonic() - begin
                print(
                    f"{number}/{len(places)} in {spent:.0f} s, {len(campaign.problems)} problems",
                    file=sys.stderr,
                )
        return {
            "seed": seed,
            "seconds": round(time.monotonic() - begin, 1),
            **campaign.report(),
        }


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuts", type=int, default=1000, help="at most; recoveries' come on top")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="scenarios that this regular expression finds")
    parser.add_argument("--mount-options", default="", help="of ext4, e.g. data=writeback")
    parser.add_argument("--max-start-seconds", type=float, default=5.0)
    parser.add_argument("-o", "--output", type=Path, help="the report; else to standard output")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))  # By way of the unmounting.
    with tempfile.TemporaryDirectory(prefix="ottla-powercut-") as scratch:
        try:
            report = run(
                cuts=arguments.cuts,
                seed=arguments.seed,
                scratch=Path(scratch),
                mount_options=arguments.mount_options,
                only=arguments.only,
            )
        except Impossible as error:
            print(f"cannot cut power here: {error}", file=sys.stderr)
            return 2
    slowest = report["start_seconds"]["max"]
    is_right = not report["problem_count"] and slowest < arguments.max_start_seconds
    report["verdict"] = "ok" if is_right else "broken"
    text = json.dumps(report, indent=2)
    if arguments.output is None:
        print(text)
    else:
        arguments.output.write_text(text + "\n", encoding="utf-8")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
