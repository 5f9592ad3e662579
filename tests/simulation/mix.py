"""What one seed's world is like.

Swarm testing: each seed draws other sizes, speeds, faults and clients, and leaves some out. Some
worlds leave out most, so that what is left is met again and again: one or two faults and few kinds
of clients, or a *theme*, in which all are about one part of the node. Much that goes wrong needs
that nothing else does meanwhile: a process that is killed each minute never stands for long.
"""

import random
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass
class Mix:
    """All that is drawn from a seed before anything happens."""

    disk_bytes: int
    open_files_max: int
    job_seconds: float
    pause_chance: float
    """Of a job, to stop before a call of the disk."""
    commit_seconds: float
    work_seconds: float
    """Of the loop, between two looks at the clock: how slow the processor is."""
    latency_seconds: float
    fragment_chance: float
    broker_options: dict[str, str]
    clients: dict[str, int]
    faults: list[str]
    """Their names; each may come at any time."""
    fault_seconds: float
    """The mean time between two."""
    faults_overlap: bool
    """The next one may come while one lasts."""
    burst_chance: float
    """Of a fault, that the next one comes at once."""
    long_chance: float
    """Of a fault, that it lasts for ten times as long as others."""
    group_count: int
    """Among how many groups the members of each kind are."""
    pause_seconds: float
    """The mean time between two things that one client does."""
    rots: bool
    """In the end bits of some files turn over."""
    keeps_lost_pages: bool
    """After a sync that failed a process may begin on the same page cache, without a reboot."""
    topic_options: dict[str, list[str]] = field(default_factory=dict)
    """Values that options of new topics have here, instead of those they may have anywhere."""
    given_options: tuple[str, ...] = (
        "cleanup.policy",
        "internal.segment.bytes",
        "min.cleanable.dirty.ratio",
    )
    """Those that each new topic is given; any other one comes with one in two."""
    altered_options: tuple[str, ...] = ()
    """Those that administrators alter; (): any of them."""
    meddling: tuple[int, ...] = (5, 4, 1, 3, 3)
    """How often administrators delete records, alter topics, add partitions, move logs, and alter
    the broker."""
    topic_seconds: tuple[int, ...] = (1, 10, 60, 300, 600)
    """How old a topic has to be to be deleted: one of these."""
    large_chance: float = 0.05
    """Of a topic, that it has so many partitions that some work on all of them takes long."""
    theme: str = ""

    def leave_out(self, names):
        """Take out faults, kinds of clients, or the rot in the end."""
        self.rots = self.rots and "rot" not in names
        self.faults = [name for name in self.faults if name not in names]
        self.clients = {name: 0 if name in names else n for name, n in self.clients.items()}


CLIENTS = {
    "plain": (0, 3),
    "idempotent": (1, 3),
    "transactional": (0, 2),
    "reader": (1, 2),
    "session": (0, 2),
    "landlord": (1, 2),
    "meddler": (0, 2),
    "classic": (0, 4),
    "consumer": (0, 4),
    "hostile": (0, 1),
    "flooder": (0, 1),
    "bulk": (0, 1),
}
WATCHERS = {"waiting": (0, 2), "auditor": (0, 1)}
"""Clients that were added later: what they are drawn by leaves other draws as they were."""
FAULTS = (
    "kill",
    "kill-at-call",
    "power",
    "power-at-call",
    "stop",
    "pause",
    "cut",
    "cut-one-way",
    "reset",
    "slow-disk",
    "sync-error",
    "write-error",
    "other-disk-error",
    "full",
    "full-then-stop",
    "full-and-broken",
    "descriptors",
    "read-only",
    "clock",
    "slow-store",
    "store-error",
    "sleepers",
    "half-open",
    "kill-at-answer",
    "power-at-answer",
    "sync-error-at-request",
    "descriptors-at-answer",
)


class Theme(NamedTuple):
    """What worlds of one kind are about."""

    name: str
    faults: tuple[str, ...]
    """Of these one or more come, none besides."""
    clients: dict[str, tuple[int, int]]
    """How many at the least and at the most; none of other kinds."""
    changes: dict[str, float]
    """What else of the mix is as it is here."""
    broker_options: dict[str, list[str]]
    topic_options: dict[str, list[str]]


THEMES = (
    Theme(
        "a process stands",
        ("pause",),
        {"plain": (1, 1), "reader": (0, 1), "landlord": (1, 1), "classic": (0, 1)},
        {"long_chance": 0.4},
        {},
        {},
    ),
    Theme(
        "logs are cleaned slowly",
        ("kill", "stop", "power", "sleepers", "slow-disk", "descriptors"),
        {
            "plain": (0, 2),
            "idempotent": (1, 2),
            "transactional": (0, 1),
            "reader": (0, 1),
            "landlord": (1, 2),
            "meddler": (2, 2),
        },
        {"pause_seconds": 0.5},
        {"log.cleaner.io.max.bytes.per.second": ["300", "2000", "20000"]},
        {"cleanup.policy": ["compact"], "internal.segment.bytes": ["2500", "4000"]},
    ),
    Theme(
        "segments are small",
        ("kill", "power", "power-at-call", "slow-disk", "sleepers"),
        {"idempotent": (2, 3), "transactional": (0, 1), "reader": (0, 1), "landlord": (1, 1)},
        {"pause_seconds": 0.5, "job_seconds": 0.02},
        {},
        {
            "cleanup.policy": ["delete"],
            "internal.segment.bytes": ["2500"],
            "retention.ms": ["-1", "20000"],
        },
    ),
    Theme(
        "directories fail as topics are made",
        ("sync-error-at-request",),
        {"plain": (2, 3), "landlord": (3, 3)},
        {"pause_seconds": 0.5},
        {},
        {},
    ),
    Theme(
        "topics come and go",
        ("sync-error-at-request", "descriptors-at-answer", "power-at-answer", "kill-at-call"),
        {"plain": (1, 3), "reader": (0, 1), "landlord": (2, 3), "meddler": (0, 1)},
        {"pause_seconds": 0.5},
        {},
        {},
    ),
    Theme(
        "a process begins on a full disk",
        ("full", "kill", "power", "stop", "full-then-stop"),
        {"plain": (1, 2), "idempotent": (1, 2), "reader": (0, 1), "landlord": (1, 3)},
        {"pause_seconds": 0.5, "faults_overlap": True, "burst_chance": 0.7},
        {},
        {},
    ),
    Theme(
        "very much is asked at once",
        ("kill", "stop", "slow-disk"),
        {"plain": (2, 3), "bulk": (1, 1), "flooder": (0, 1), "landlord": (2, 3)},
        {"pause_seconds": 0.5, "work_seconds": 5e-4},
        {},
        {"internal.segment.bytes": ["2500"]},
    ),
    Theme(
        "topics are large",
        ("kill", "stop", "slow-disk", "pause"),
        {"plain": (3, 3), "bulk": (1, 2), "landlord": (2, 3)},
        {"pause_seconds": 0.5, "large_chance": 0.6},
        {},
        {},
    ),
    Theme(
        "members come and go",
        ("kill", "stop", "pause", "cut", "slow-disk"),
        {
            "plain": (1, 2),
            "landlord": (1, 1),
            "classic": (2, 4),
            "consumer": (2, 4),
            "auditor": (1, 1),
            "waiting": (0, 1),
        },
        {"fault_seconds": 60.0, "burst_chance": 0.0, "long_chance": 0.0},
        {},
        {},
    ),
    Theme(
        "producers are fenced",
        ("kill", "stop", "power", "pause", "cut", "slow-disk"),
        {
            "transactional": (2, 3),
            "idempotent": (0, 1),
            "reader": (0, 1),
            "waiting": (0, 1),
            "landlord": (1, 1),
        },
        {"pause_seconds": 0.5},
        {},
        {"cleanup.policy": ["delete", "delete", "compact"]},
    ),
    Theme(
        "what is old is forgotten",
        ("kill", "stop", "pause", "slow-disk"),
        {
            "plain": (0, 1),
            "transactional": (2, 3),
            "reader": (1, 2),
            "classic": (0, 3),
            "consumer": (0, 3),
            "landlord": (1, 1),
        },
        {"fault_seconds": 60.0, "burst_chance": 0.0, "topic_seconds": (300, 600)},
        {
            "producer.id.expiration.ms": ["300", "5000"],
            "transactional.id.expiration.ms": ["60000"],
            "transaction.remove.expired.transaction.cleanup.interval.ms": ["2000"],
            "offsets.retention.minutes": ["1"],
            "offsets.retention.check.interval.ms": ["2000"],
        },
        {"cleanup.policy": ["delete"]},
    ),
    Theme(
        "logs are compacted no more",
        ("kill", "power", "stop", "slow-disk"),
        {"plain": (2, 3), "idempotent": (0, 1), "landlord": (1, 1), "meddler": (2, 2)},
        {
            "pause_seconds": 0.5,
            "altered_options": ("cleanup.policy", "cleanup.policy", "min.cleanable.dirty.ratio"),
            "meddling": (0, 6, 0, 1, 1),
            "topic_seconds": (120, 300),
        },
        {
            "log.cleaner.backoff.ms": ["300", "2000"],
            "log.flush.offset.checkpoint.interval.ms": ["60000"],
        },
        {
            "cleanup.policy": ["compact", "delete"],
            "internal.segment.bytes": ["2500", "4000"],
            "retention.ms": ["-1"],
            "retention.bytes": ["-1"],
        },
    ),
    Theme(
        "metadata are out of use",
        ("store-error", "slow-store", "kill", "stop"),
        {"plain": (1, 2), "reader": (0, 1), "classic": (0, 1), "landlord": (2, 3)},
        {"pause_seconds": 0.5},
        {},
        {},
    ),
)
THEME_CHANCE = 0.5
FEW_CHANCE = 0.2
LATER_THEMES = (
    Theme(
        "keys are deleted by transactions",
        ("kill", "stop", "power", "pause", "slow-disk"),
        {
            "transactional": (2, 3),
            "plain": (0, 1),
            "reader": (0, 1),
            "landlord": (1, 1),
        },
        {
            "pause_seconds": 1.5,
            "large_chance": 0.0,
            "topic_seconds": (300, 600),
            "given_options": (
                "cleanup.policy",
                "internal.segment.bytes",
                "min.cleanable.dirty.ratio",
                "segment.ms",
                "delete.retention.ms",
            ),
        },
        {"log.cleaner.backoff.ms": ["300", "2000"]},
        {
            "cleanup.policy": ["compact"],
            "internal.segment.bytes": ["2500"],
            "min.cleanable.dirty.ratio": ["0.01"],
            "segment.ms": ["1000", "10000"],
            "delete.retention.ms": ["0", "5000"],
            "min.compaction.lag.ms": ["0"],
            "retention.ms": ["-1"],
            "retention.bytes": ["-1"],
        },
    ),
)
"""Drawn by a stream of their own: other worlds stay as they were."""
LATER_CHANCE = 0.08


def mix_of(seed):
    """Return the mix of a seed."""
    chance = random.Random(f"{seed}/mix")
    clients = {name: chance.randint(*bounds) for name, bounds in CLIENTS.items()}
    watchers = random.Random(f"{seed}/mix/watchers")
    clients |= {name: watchers.randint(*bounds) for name, bounds in WATCHERS.items()}
    chosen = [name for name in FAULTS if chance.random() < 0.4] or ["kill", "power"]
    mix = Mix(
        disk_bytes=256 << 20,
        open_files_max=chance.choice([1024, 4096]),
        job_seconds=chance.choice([0.0005, 0.003, 0.02]),
        pause_chance=chance.choice([0.0, 0.1, 0.5, 1.0]),
        commit_seconds=chance.choice([0.001, 0.01]),
        work_seconds=random.Random(f"{seed}/mix/work").choice([1e-5, 1e-4, 5e-4]),
        latency_seconds=chance.choice([0.0002, 0.002, 0.02]),
        fragment_chance=chance.choice([0.0, 0.05, 0.5]),
        broker_options={
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "log.dirs": "/a,/b",
            "num.partitions": "2",
            "offsets.topic.num.partitions": chance.choice(["1", "3"]),
            "transaction.state.log.num.partitions": chance.choice(["1", "3"]),
            "log.retention.check.interval.ms": chance.choice(["1000", "5000", "30000"]),
            "log.cleaner.backoff.ms": chance.choice(["300", "2000", "15000"]),
            "log.flush.offset.checkpoint.interval.ms": chance.choice(["1000", "7000", "60000"]),
            "replica.high.watermark.checkpoint.interval.ms": chance.choice(["1000", "60000"]),
            "log.segment.delete.delay.ms": chance.choice(["0", "500", "10000"]),
            "group.initial.rebalance.delay.ms": chance.choice(["0", "3000"]),
            "ottla.stop.timeout.ms": "5000",
            "ottla.disk.reserve.bytes": "65536",
            "ottla.disk.min.free.bytes": "65536",
        },
        clients=clients,
        faults=chosen,
        fault_seconds=chance.choice([5.0, 20.0, 60.0]),
        faults_overlap=chance.random() < 0.5,
        burst_chance=chance.choice([0.0, 0.0, 0.3, 0.7]),
        long_chance=chance.choice([0.0, 0.1, 0.4]),
        group_count=chance.choice([1, 2]),
        pause_seconds=chance.choice([0.5, 2.0, 6.0]),
        rots=chance.random() < 0.3,
        keeps_lost_pages=chance.random() < 0.5,
    )
    later = random.Random(f"{seed}/mix/later")
    if later.random() < LATER_CHANCE:
        _turn_to(mix, later.choice(LATER_THEMES), later)
    else:
        _narrow(mix, random.Random(f"{seed}/mix/narrow"))
    return mix


def _narrow(mix, chance):
    """Leave out most of what was drawn, mostly not."""
    kind = chance.random()
    if kind < THEME_CHANCE:
        _turn_to(mix, chance.choice(THEMES), chance)
    elif kind < THEME_CHANCE + FEW_CHANCE:
        mix.theme = "few faults"
        mix.faults = chance.sample(FAULTS, chance.choice([1, 1, 2]))
        mix.fault_seconds = chance.choice([5.0, 20.0])
        mix.clients = {
            name: count if name == "landlord" or chance.random() < 0.5 else 0
            for name, count in mix.clients.items()
        }
        mix.clients["plain"] = max(mix.clients["plain"], 1)


def _turn_to(mix, theme, chance):
    """Leave out what a theme is not about."""
    mix.theme = theme.name
    least = 2 if theme.changes.get("faults_overlap") else 1
    mix.faults = chance.sample(theme.faults, chance.randint(least, len(theme.faults)))
    mix.clients = {name: chance.randint(*bounds) for name, bounds in theme.clients.items()}
    mix.broker_options |= {
        name: chance.choice(values) for name, values in theme.broker_options.items()
    }
    mix.topic_options = theme.topic_options
    mix.fault_seconds = chance.choice([5.0, 20.0])
    for name, value in theme.changes.items():
        setattr(mix, name, value)
