"""What the world of several nodes of one seed is like."""

import random

from tests.simulation.cluster.faults import FAULTS
from tests.simulation.cluster.themes import (
    COMPACTED,
    LATER_THEMES,
    LATEST_THEMES,
    NEWEST_THEMES,
    THEMES,
)
from tests.simulation.mix import mix_of

CLIENTS = {
    "plain": (0, 2),
    "idempotent": (1, 3),
    "transactional": (0, 2),
    "reader": (1, 3),
    "committer": (0, 1),
    "deleter": (0, 1),
    "member": (0, 3),
    "classic": (0, 3),
    "transformer": (0, 2),
}
THEME_CHANCE = 0.6
LATER_CHANCE = 0.25
LATEST_CHANCE = 0.1
NEWEST_CHANCE = 0.15


def cluster_mix_of(seed):
    """Return the mix: disks and speeds as for one node, faults and clients of several."""
    mix = mix_of(seed)
    chance = random.Random(f"{seed}/cluster")
    mix.clients = {name: chance.randint(*bounds) for name, bounds in CLIENTS.items()}
    if chance.random() < 0.4:
        mix.faults = chance.sample(FAULTS, 2)
        mix.theme = "few faults"
    else:
        mix.faults = [name for name in FAULTS if chance.random() < 0.5] or ["kill"]
        mix.theme = ""
    mix.faults_overlap = chance.random() < 0.6
    mix.fault_seconds = chance.choice([2.0, 5.0, 15.0])
    mix.pause_seconds = chance.choice([0.5, 1.0, 3.0])
    mix.latency_seconds = chance.choice([0.0002, 0.002, 0.02])
    mix.job_seconds = chance.choice([0.0005, 0.003, 0.02])
    mix.rots = False
    mix.broker_options = {
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "log.dirs": "/a,/b",
        "num.partitions": "2",
        "min.insync.replicas": "2",
        "default.replication.factor": "3",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "replica.lag.time.max.ms": chance.choice(["2000", "10000", "30000"]),
        "replica.fetch.wait.max.ms": chance.choice(["100", "500"]),
        "replica.fetch.max.bytes": chance.choice(["1000", "1048576"]),
        "replica.high.watermark.checkpoint.interval.ms": chance.choice(["1000", "60000"]),
        "log.flush.offset.checkpoint.interval.ms": chance.choice(["1000", "60000"]),
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.session.timeout.ms": "10000",
        "group.consumer.min.session.timeout.ms": "6000",
        "log.retention.ms": "-1",
        "log.cleaner.backoff.ms": chance.choice(["300", "5000"]),
        "log.cleaner.io.max.bytes.per.second": chance.choice(["2000", "10000000"]),
        "log.retention.check.interval.ms": chance.choice(["1000", "30000"]),
        "log.segment.delete.delay.ms": chance.choice(["0", "10000"]),
        "ottla.stop.timeout.ms": "5000",
        "ottla.disk.reserve.bytes": "65536",
        "ottla.disk.min.free.bytes": "65536",
    }
    mix.topic_options = {"internal.segment.bytes": chance.choice(["4000", "1000000"])}
    if chance.random() < 0.2:
        mix.topic_options["retention.bytes"] = "8000"
    if chance.random() < 0.2:
        mix.topic_options["retention.ms"] = chance.choice(["20000", "100000"])
    mix.compacted_options = COMPACTED if chance.random() < 0.4 else {}
    mix.acks = (-1, -1, 1)
    mix.skews_ms = [chance.choice([0, 0, -5000, 5000, 60_000]) for _ in range(3)]
    if chance.random() < THEME_CHANCE:
        _turn_to(mix, chance.choice(THEMES), chance)
    later = random.Random(f"{seed}/cluster/later")
    if later.random() < LATER_CHANCE:
        _turn_to(mix, later.choice(LATER_THEMES), later)
    latest = random.Random(f"{seed}/cluster/latest")
    if latest.random() < LATEST_CHANCE:
        _turn_to(mix, latest.choice(LATEST_THEMES), latest)
    newest = random.Random(f"{seed}/cluster/newest")
    if newest.random() < NEWEST_CHANCE:
        _turn_to(mix, newest.choice(NEWEST_THEMES), newest)
    return mix


def _turn_to(mix, theme, chance):
    mix.theme = theme.name
    mix.faults = chance.sample(theme.faults, chance.randint(1, len(theme.faults)))
    mix.fault_seconds = chance.choice([2.0, 5.0])
    mix.clients = {name: chance.randint(*bounds) for name, bounds in theme.clients.items()}
    for name, values in theme.broker_options.items():
        mix.broker_options[name] = chance.choice(values)
    for name, values in theme.topic_options.items():
        mix.topic_options[name] = chance.choice(values)
    for name, value in theme.changes.items():
        setattr(mix, name, value)
