"""All clients of the soak besides those of cut_networks.py: begun, watched, ended, judged."""

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.campaigns.nodes_transactions import INPUT, judge, wait_until_all_is_over
from tests.campaigns.soaking import groups
from tests.campaigns.soaking.groups import Group, Member, OffsetsWatch, SteadyWriter
from tests.campaigns.soaking.topics import (
    RETAINED,
    RETENTION_BYTES,
    SEGMENT_BYTES,
    Retained,
    ShortLived,
    Visitor,
)
from tests.campaigns.soaking.worker import PATIENCE_SECONDS, Worker

TOPICS: Mapping[str, tuple[int, dict[str, str]]] = {
    groups.TOPIC: (groups.PARTITIONS, {}),
    INPUT: (1, {}),
    RETAINED: (
        1,
        {"segment_bytes": str(SEGMENT_BYTES), "retention_bytes": str(RETENTION_BYTES)},
    ),
}
"""What has to be there first: partitions and configs."""
WRITERS = 2
MEMBERS = 2
JOIN_SECONDS = 180.0
SHORT_REST_SECONDS = 5.0
RETAINED_REST_SECONDS = 0.3
VISIT_REST_SECONDS = 0.3


class Clients:
    """The other load, and what it finds."""

    def __init__(self, bootstraps: Mapping[int, str], places: Sequence[Path], seed: int) -> None:
        """``places``: the data directories of all hosts."""
        self._bootstrap = ",".join(bootstraps.values())
        self._places = places
        self._enough = threading.Event()
        self._writers = [
            SteadyWriter(f"writer-{number}", self._bootstrap, groups.PARTITIONS, self._enough)
            for number in range(WRITERS)
        ]
        self._groups = [Group(f"readers-{name}", name) for name in ("classic", "consumer")]
        self._members = [
            Member(self._bootstrap, group, seed + number)
            for group in self._groups
            for number in range(MEMBERS)
        ]
        watches = [(group.name, groups.TOPIC, group.floor) for group in self._groups]
        watches += [(writer.name, INPUT, writer.floor) for writer in self._writers]
        self._watches = [OffsetsWatch(self._bootstrap, *each) for each in watches]
        self._short = ShortLived(self._bootstrap, SHORT_REST_SECONDS)
        self._retained = Retained(self._bootstrap, RETAINED_REST_SECONDS)
        self._visitor = Visitor(bootstraps, VISIT_REST_SECONDS, seed)

    @property
    def _workers(self) -> list[Worker]:
        return [*self._members, *self._watches, self._short, self._retained, self._visitor]

    def begin(self) -> None:
        """Start all."""
        for each in (*self._writers, *self._workers):
            each.start()

    def look(self) -> list[str]:
        """Return what is wrong on the disks; all hosts are up."""
        return self._short.left_behind(self._places) + self._retained.too_large(self._places)

    def end(self) -> list[str]:
        """Stop all, judge all, return the broken promises. All hosts are up."""
        self._enough.set()
        for each in (self._short, self._retained, self._visitor):
            each.stopping.set()
        for each in (*self._writers, self._short, self._retained, self._visitor):
            each.join(JOIN_SECONDS)
        problems = [
            f"partition {index} of {groups.TOPIC} has an open transaction"
            for index in wait_until_all_is_over(self._bootstrap, groups.TOPIC)
        ]
        problems += self._wait_for_groups()
        for each in (*self._members, *self._watches):
            each.stopping.set()
        for each in (*self._members, *self._watches):
            each.join(JOIN_SECONDS)
        problems += [
            f"{each.name} does not end"
            for each in (*self._writers, *self._workers)
            if each.is_alive()
        ]
        problems += judge(self._writers, self._bootstrap, groups.PARTITIONS, groups.TOPIC)
        for group in self._groups:
            problems += group.unwanted(self._writers)
        self._retained.read_again()
        return [*problems, *self.look()]

    def _wait_for_groups(self) -> list[str]:
        """Wait until each group has got all that was committed; return what is missing."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            missing = [one for group in self._groups for one in group.missing(self._writers)]
            if not missing or time.monotonic() > deadline:
                return missing
            time.sleep(0.5)

    @property
    def problems(self) -> list[str]:
        """What the clients themselves have found so far, and what ended any of them."""
        ends = [(each.name, each.broke) for each in self._workers]
        ends += [(each.name, each.failure) for each in self._writers]
        return [
            *(problem for each in self._workers for problem in each.problems),
            *(f"{name}: {error!r}" for name, error in ends if error is not None),
        ]

    def report(self) -> dict[str, Any]:
        """Return how much was done."""
        return {
            "transactions": {
                "committed": sum(len(each.committed) for each in self._writers),
                "aborted": sum(each.aborted_count for each in self._writers),
                "unknown": sum(len(each.unknown) for each in self._writers),
                "producers": sum(each.producers_made for each in self._writers),
                "errors": dict(sum((each.errors for each in self._writers), Counter())),
            },
            "members": sum(each.count for each in self._members),
            "looks_at_offsets": sum(each.count for each in self._watches),
            "short_lived_topics": len(self._short.gone),
            "retained_records": self._retained.acknowledged,
            "visits": self._visitor.count,
            "errors": dict(sum((each.errors for each in self._workers), Counter())),
        }
