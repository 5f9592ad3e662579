"""The life of one broker's directory: rounds of load, administration and one nemesis each.

Owns the order of a round: work, strike, work on, pause, look at everything. A life ends with its
first round in which a promise broke.
"""

import pickle
import random
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaigns.administering.administrators import AUTOMATIC_PARTITIONS, Landlord, Meddler
from tests.campaigns.administering.clients import (
    Client,
    IdempotentProducer,
    PlainProducer,
    Service,
    TransactionalProducer,
)
from tests.campaigns.administering.history import History
from tests.campaigns.administering.node import Node
from tests.campaigns.administering.observation import Observer
from tests.campaigns.administering.readers import Reader
from tests.campaigns.powercuts.volume import Impossible, Volume
from tools.peer import PeerFailed

IDLE_SECONDS_MAX = 60.0
VOLUME_MIB = 192
PRODUCERS = [PlainProducer, IdempotentProducer, TransactionalProducer] * 2
NAMES = ["u", "v", "w", "x", "y", "z"]
CHECKPOINT_MS = [20, 300, 2000, 60_000, 86_400_000]
WEIGHTS = {"stall": 1.5, "power": 3.0, "kill": 2.0}
"""How often a nemesis comes; others: 1."""


@dataclass
class Report:
    """What came of some rounds."""

    rounds: int = 0
    nemeses: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    checked: int = 0
    start_seconds: list[float] = field(default_factory=list)
    service_seconds: list[float] = field(default_factory=list)
    round_seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    without_power: str = ""
    """Why the power could not be cut; empty: it could."""

    def plain(self) -> dict[str, Any]:
        """Return it for JSON."""
        return vars(self)


def options_of(chooser: random.Random) -> dict[str, object]:
    """Return a broker's options: small, short, and different in each life."""
    return {
        "auto.create.topics.enable": "true",
        "num.partitions": AUTOMATIC_PARTITIONS,
        "log.flush.offset.checkpoint.interval.ms": chooser.choice(CHECKPOINT_MS),
        "log.flush.start.offset.checkpoint.interval.ms": chooser.choice(CHECKPOINT_MS),
        "replica.high.watermark.checkpoint.interval.ms": chooser.choice(CHECKPOINT_MS),
        "log.retention.check.interval.ms": chooser.choice([30, 200, 1000]),
        "log.segment.delete.delay.ms": chooser.choice([0, 20, 1000]),
        "log.cleaner.backoff.ms": chooser.choice([10, 100, 500]),
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.cleaner.io.max.bytes.per.second": chooser.choice([20_000, 500_000, 1_000_000_000]),
        "offsets.topic.num.partitions": 3,
        "offsets.topic.segment.bytes": 1 << 20,
        "transaction.state.log.num.partitions": 3,
        "transaction.state.log.segment.bytes": 1 << 20,
        "ottla.disk.min.free.bytes": 1 << 20,
    }


class Life:
    """One directory and all who use it."""

    def __init__(
        self, root: Path, seed: str, *, has_power: bool, load_seconds: float, keep: Path | None
    ) -> None:
        self._root = root
        self._seed = seed
        self._has_power = has_power
        self._load_seconds = load_seconds
        self._keep = keep
        self._history = History()
        self._service = Service()
        self.report = Report()

    def run(self, rounds: Sequence[int], nemeses: Sequence[str] = ()) -> Report:
        """Run these rounds; ``nemeses``: those to choose from, empty: the usual."""
        chooser = random.Random(self._seed)
        self._root.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            volume = None
            if self._has_power:
                try:
                    volume = stack.enter_context(Volume(self._root, size_mib=VOLUME_MIB))
                except Impossible as error:
                    self.report.without_power = str(error)
            node = Node(
                self._root,
                options_of(chooser),
                self._service,
                self._history,
                seed=f"{self._seed} node",
                volume=volume,
            )
            clients: list[Client] = []
            try:
                node.start()
                self._greet()
                clients = self._clients(node, may_lose_power=volume is not None)
                for client in clients:
                    client.start()
                for number in rounds:
                    self._round(number, node, clients, nemeses)
                    if self.report.problems:
                        break
            finally:
                self._service.is_ended = True
                node.end()
                for client in clients:
                    client.join(40)
                if self.report.problems:
                    self._keep_all()
        self.report.counts.update(self._history.counts)
        self.report.start_seconds = node.start_seconds
        return self.report

    def _greet(self) -> None:
        """Have the internal topics made, which takes a moment the first time."""
        with Observer(self._service.bootstrap, self._history) as observer:
            observer.look_at_service()

    def _clients(self, node: Node, *, may_lose_power: bool) -> list[Client]:
        service, history, seed = self._service, self._history, self._seed
        made: list[Client] = []
        for writer, kind in enumerate(PRODUCERS, 1):
            made.append(kind(service, history, f"{seed} writer {writer}", writer))
        for number, is_committed in enumerate((True, True, False)):
            made.append(
                Reader(
                    service,
                    history,
                    f"{seed} reader {number}",
                    group=f"group-{number}",
                    is_committed=is_committed,
                )
            )
        for number in range(2):
            names = NAMES[number::2]
            made.append(Landlord(service, history, f"{seed} landlord {number}", names))
        made.append(
            Meddler(
                service,
                history,
                f"{seed} meddler",
                log_dirs=node.log_dirs,
                may_lose_power=may_lose_power,
            )
        )
        return made

    def _round(
        self, number: int, node: Node, clients: list[Client], nemeses: Sequence[str]
    ) -> None:
        begin = time.monotonic()
        history, service = self._history, self._service
        chooser = random.Random(f"{self._seed} round {number}")
        names = [name for name in node.nemeses if name in (nemeses or node.usual_nemeses)]
        nemesis = chooser.choices(names, [WEIGHTS.get(name, 1.0) for name in names])[0]
        self.report.nemeses[nemesis] += 1
        try:
            service.working.set()
            time.sleep(self._load_seconds * chooser.uniform(0.5, 1.5))
            if chooser.random() < 0.6:
                self._wait_for_new_topic(chooser)
            node.say_if_ended()
            if not history.problems:
                node.nemeses[nemesis]()
            time.sleep(chooser.uniform(0.2, 1.0))
            node.say_if_ended()
            if not history.problems:
                with Observer(service.bootstrap, history) as observer:
                    observer.look_at_service()
                    self._pause(clients)
                    history.settle()
                    observer.look_at_all()
                    self.report.checked += observer.checked
                    self.report.service_seconds.append(observer.service_seconds)
        except PeerFailed as error:
            history.problem(f"the broker does not start: {error}")
        finally:
            service.working.clear()
        node.say_if_ended()
        node.read_log()
        history.forget_dead()
        self.report.rounds += 1
        self.report.round_seconds.append(time.monotonic() - begin)
        self.report.problems += [
            f"round {number} ({nemesis}): {text}" for text in history.problems[:20]
        ]

    def _wait_for_new_topic(self, chooser: random.Random) -> None:
        """Strike soon after a topic was made."""
        before = self._history.counts["topics created"]
        deadline = time.monotonic() + 2.0
        while self._history.counts["topics created"] == before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chooser.uniform(0.0, 0.4))

    def _pause(self, clients: list[Client]) -> None:
        self._service.working.clear()
        deadline = time.monotonic() + IDLE_SECONDS_MAX
        for client in clients:
            if not client.idle.wait(max(0.0, deadline - time.monotonic())):
                self._history.problem(f"{client.name} does not come to an end")

    def _keep_all(self) -> None:
        if self._keep is None:
            return
        self._keep.mkdir(parents=True, exist_ok=True)
        with (self._keep / "history.pickle").open("wb") as file:
            history = self._history
            told = {
                name: value for name, value in vars(history).items() if name not in ("lock", "sent")
            }
            pickle.dump(told | {"commits": dict(history.commits)}, file)
        (self._keep / "problems.txt").write_text("\n".join(self.report.problems) + "\n")
        shutil.copytree(
            self._root,
            self._keep / "data",
            ignore=shutil.ignore_patterns("volume.img", "lost+found", ".ottla-reserve"),
            dirs_exist_ok=True,
        )
