"""Everyday tasks by `ottla` commands on an Ottla and on a Kafka: who is asked, and how.

The fixtures that start both are in ``e2e/conftest.py``; what is asked is in ``test_cli_tasks*``.
"""

import json
import time
from pathlib import Path

from tools.ottla_peer import OttlaPeer

OPTIONS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' user_root="root-secret" user_ann="ann-secret";'
    ),
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "log.retention.check.interval.ms": 86_400_000,
}
TIME = 1_700_000_000_000
"""2023-11-14T22:13:20Z"""
NUMBERS = [(n % 2, f"k{n}", f"v{n}", n) for n in range(20)]


def made_peer(kind, data):
    both = f"{data},{data}-2"
    if kind is OttlaPeer:
        return kind(Path(both), OPTIONS, protocols=("SASL_PLAINTEXT",))
    return kind(data, OPTIONS | {"log.dirs": both}, protocols=("SASL_PLAINTEXT",))


class Asked:
    """One of the clusters, and the commands that are run against it."""

    def __init__(self, kind, peer, server):
        self.kind = kind
        self.peer = peer
        self.server = server

    def run(self, line, *more, code=0, stdin=b"", bootstrap=None):
        """Run the words of ``line`` and then ``more``; return what standard output got."""
        text = stdin.encode() if isinstance(stdin, str) else stdin
        environment = {"OTTLA_BOOTSTRAP": bootstrap or self.peer.bootstrap}
        said = self.server.run(*line.split(), *more, stdin=text, environment=environment)
        assert said.code == code, (self.kind, line, said)
        self.err = said.err
        return said.out

    def shown(self, line, *more, **options):
        """Run a command; return what it says as JSON."""
        return json.loads(self.run(line, *more, "-o", "json", **options))

    def eventually(self, line, condition):
        """Return what a command says as JSON once ``condition`` holds of it.

        Brokers of Kafka hear of what its controller has decided a moment after who asked for it.
        """
        found = []

        def holds():
            found[:] = [self.shown(line)]
            return condition(found[0])

        until(holds)
        return found[0]


def assert_same(ours, theirs):
    """Compare answers piece by piece, so that a failure names the piece."""
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs), (ours, theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    else:
        assert ours == theirs, (ours, theirs)


def without(row, *keys):
    return {key: value for key, value in row.items() if key not in keys}


def lines_of(text):
    return sorted(text.splitlines())


def made(asked, topic, partitions=1, records=()):
    """Make a topic with records: (partition, key, value, time after TIME in seconds)."""
    for_ever = "-c retention.ms=-1"  # Kafka looks once, 30 s after its start.
    asked.run(f"topic create {topic} -p {partitions} {for_ever}")
    lines = [
        {"partition": partition, "key": key, "value": value, "timestamp": TIME + 1000 * seconds}
        for partition, key, value, seconds in records
    ]
    if lines:
        asked.run(f"produce {topic} --jsonl -q", stdin="\n".join(map(json.dumps, lines)))


def until(condition):
    """Return when ``condition()`` holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def open_transaction(peer, topic, transactional_id):
    """Leave a transaction open behind one record in the topic's partition 0."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": peer.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"held", partition=0)
    assert producer.flush(30) == 0
    return producer
