"""Write transactions over several nodes while one of the nodes is killed every few seconds.

    python tests/campaigns/nodes_transactions.py [--nodes 3] [--transactions 10000] [--writers 8]
        [--kill-seconds 5] [--pauses 0.0] [--partitions 6] [--replication 1] [--seed 1]
        [--directory DIR]

Each writer (confluent-kafka) puts its key into every partition in one transaction, together with an
offset of a group of its own; every fifth transaction is aborted. A commit without answer may have
happened or not. Promised: what is committed is in every partition once, what is aborted nowhere,
what is unknown in all or none; the group's offset is that of the last commit; nothing stays open.
A producer that is lost to a fatal error is followed by a new one, as in an application.
``--pauses``: the share of kills that only stop a node, for up to PAUSE_SECONDS: it comes back as a
leader that was replaced. Prints a JSON report; exit code 1 when a promise was broken.
"""

import argparse
import json
import logging
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tools.nodes_peer import NodesPeer

TOPIC, INPUT = "campaign", "input"
INTERNAL = ("offsets.topic", "transaction.state.log")
ABORT_EVERY = 5
QUIET = {"log_level": 0, "logger": logging.getLogger("librdkafka")}
CALL_SECONDS = 20.0
STALL_SECONDS = 180.0
PAUSE_SECONDS = 15.0
"""Some are longer than a node's registration lasts without a sign of life, some shorter."""
SLOW_SECONDS = 10.0
IDLE_MS = 10_000
"""librdkafka looks for a group's coordinator three times, here 20 ms apart, and then again only if
one of its connections comes or goes; ``send_offsets_to_transaction`` waits for that without end
(librdkafka's issues 5456 and 5511). So connections go when nothing is said on them."""


class Writer(threading.Thread):
    """Writes numbered transactions until there are enough of them in all."""

    topic = TOPIC

    def __init__(self, name: str, bootstrap: str, partitions: int, enough: threading.Event) -> None:
        super().__init__(daemon=True, name=name)
        self.bootstrap = bootstrap
        self.partitions = partitions
        self.enough = enough
        self.number = 0
        self.committed: set[int] = set()
        self.unknown: set[int] = set()
        self.aborted_count = self.producers_made = 0
        self.failure: BaseException | None = None
        self.errors: Counter[str] = Counter()
        self.slow: list[str] = []
        """Calls that took longer than SLOW_SECONDS."""
        self.call = ""
        """The call under way."""

    def run(self) -> None:
        """Write; what ends this thread is kept."""
        try:
            self.write()
        except BaseException as error:  # noqa: BLE001 - told in the report
            self.failure = error

    def write(self) -> None:
        """Write transactions."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.name, **QUIET})
        group = consumer.consumer_group_metadata()
        producer = self.producer()
        while not self.enough.is_set():
            self.number += 1
            try:
                self.one(producer, group)
            except KafkaException as error:
                self.errors[error.args[0].name()] += 1
                if not self.gives_up(producer, error):
                    producer = self.producer()
        consumer.close()

    @contextmanager
    def timed(self, call: str) -> Iterator[None]:
        """Note a call that takes long, and when it began."""
        begun = time.monotonic()
        self.call = f"{call} {self.number}"
        try:
            yield
        finally:
            self.call = ""
            seconds = time.monotonic() - begun
            if seconds > SLOW_SECONDS:
                self.slow.append(
                    f"{time.time() - seconds:.1f} {call} {self.number}: {seconds:.1f} s"
                )

    def one(self, producer: Producer, group: Any) -> None:
        """Write one transaction."""
        number, key = self.number, f"{self.name} {self.number}".encode()
        producer.begin_transaction()
        for index in range(self.partitions):
            producer.produce(self.topic, key, key, partition=index)
        offset = TopicPartition(INPUT, 0, number)
        with self.timed("offsets"):
            producer.send_offsets_to_transaction([offset], group, CALL_SECONDS)
        if number % ABORT_EVERY == 0:
            with self.timed("abort"):
                producer.abort_transaction(CALL_SECONDS)
            self.aborted_count += 1
            return
        self.unknown.add(number)
        with self.timed("commit"):
            producer.commit_transaction(CALL_SECONDS)
        self.committed.add(number)
        self.unknown.discard(number)

    def gives_up(self, producer: Producer, error: KafkaException) -> bool:
        """Abort the transaction, if the client says that it can; tell whether it was."""
        try:
            if not error.args[0].fatal():
                producer.abort_transaction(CALL_SECONDS)
                self.unknown.discard(self.number)
                return True
        except KafkaException as second:
            self.errors[f"abort: {second.args[0].name()}"] += 1
        return False

    def producer(self) -> Producer:
        """Return a producer whose predecessor's transaction is over."""
        self.producers_made += 1
        deadline = time.monotonic() + STALL_SECONDS
        while True:
            producer = Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "transactional.id": self.name,
                    "transaction.timeout.ms": 60_000,
                    "linger.ms": 1,
                    "socket.timeout.ms": 10_000,
                    "retry.backoff.ms": 20,
                    "retry.backoff.max.ms": 200,
                    "reconnect.backoff.ms": 20,
                    "reconnect.backoff.max.ms": 200,
                    "connections.max.idle.ms": IDLE_MS,
                    **QUIET,
                }
            )
            try:
                with self.timed("init"):
                    producer.init_transactions(CALL_SECONDS)
            except KafkaException as error:
                self.errors[f"init: {error.args[0].name()}"] += 1
                if time.monotonic() > deadline:
                    raise
                continue
            return producer


def read_committed(bootstrap: str, partitions: int, topic: str) -> Counter[tuple[bytes, int]]:
    """Return how often each (key, partition) can be read, up to the ends of the partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: Counter[tuple[bytes, int]] = Counter()
    at_end: set[int] = set()
    deadline = time.monotonic() + STALL_SECONDS
    while len(at_end) < partitions:
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {at_end} were read to their ends")
        for message in consumer.consume(5000, 1.0):
            if message.error() is None:
                found[message.key(), message.partition()] += 1
                at_end.discard(message.partition())
            elif message.error().name() == "_PARTITION_EOF":
                at_end.add(message.partition())
    consumer.close()
    return found


def judge(
    writers: Sequence[Writer], bootstrap: str, partitions: int, topic: str = TOPIC
) -> list[str]:
    """Return what was promised and is not so."""
    found, wrong = read_committed(bootstrap, partitions, topic), []
    for writer in writers:
        for number in range(1, writer.number + 1):
            key = f"{writer.name} {number}".encode()
            counts = [found.pop((key, index), 0) for index in range(partitions)]
            allowed = [[1] * partitions] if number in writer.committed else [[0] * partitions]
            if number in writer.unknown:
                allowed = [[0] * partitions, [1] * partitions]
            if counts not in allowed:
                wrong.append(f"{writer.name} {number}: {counts}, and not {allowed}")
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": writer.name, **QUIET})
        (offset,) = consumer.committed([TopicPartition(INPUT, 0)], CALL_SECONDS)
        consumer.close()
        last = max(writer.committed, default=0)
        if offset.offset != last and offset.offset not in {
            number for number in writer.unknown if number > last
        }:
            wrong.append(f"{writer.name}: the group is at {offset.offset}, committed was {last}")
    wrong += [f"{key!r} in {index}: nobody wrote it" for key, index in found]
    return wrong


def wait_until_all_is_over(bootstrap: str, name: str = TOPIC) -> list[str]:
    """Wait for the end of what was left open by its writer; return what stays open."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    deadline = time.monotonic() + STALL_SECONDS
    while True:
        offsets = {}
        for isolation in ("read_committed", "read_uncommitted"):
            consumer = Consumer(
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": "ends",
                    "isolation.level": isolation,
                    **QUIET,
                }
            )
            topic = admin.list_topics(name, CALL_SECONDS).topics[name]
            offsets[isolation] = {
                index: consumer.get_watermark_offsets(TopicPartition(name, index), CALL_SECONDS)[1]
                for index in topic.partitions
            }
            consumer.close()
        ends = offsets["read_uncommitted"]
        open_ones = [str(i) for i, stable in offsets["read_committed"].items() if stable < ends[i]]
        if not open_ones or time.monotonic() > deadline:
            return open_ones
        time.sleep(1)


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--transactions", type=int, default=10_000)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--replication", type=int, default=1)
    parser.add_argument("--kill-seconds", type=float, default=5.0)
    parser.add_argument("--pauses", type=float, default=0.0)
    parser.add_argument("--seconds-max", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="keep the data and the log here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        replicas = {f"{topic}.replication.factor": options.replication for topic in INTERNAL}
        peer = NodesPeer((options.directory or Path(directory)) / "data", options.nodes, replicas)
        try:
            report = run(peer.start(), options)
        finally:
            peer.stop()
    print(json.dumps(report, indent=2))
    sys.exit(1 if report["wrong_count"] else 0)


def run(peer: NodesPeer, options: argparse.Namespace) -> dict[str, Any]:
    """Run all writers and kills; return the report."""
    rng = random.Random(options.seed)
    admin = AdminClient({"bootstrap.servers": peer.bootstrap, **QUIET})
    made = admin.create_topics(
        [NewTopic(TOPIC, options.partitions, options.replication), NewTopic(INPUT, 1, 1)]
    )
    for one in made.values():
        one.result(CALL_SECONDS)
    enough = threading.Event()
    writers = [
        Writer(f"writer-{number}", peer.bootstrap, options.partitions, enough)
        for number in range(options.writers)
    ]
    for writer in writers:
        writer.start()
    begun, kills, pauses, last_at, last_count = time.monotonic(), 0, 0, time.monotonic(), 0
    stalled = False
    next_kill = begun + options.kill_seconds
    while not enough.is_set():
        time.sleep(0.1)
        now = time.monotonic()
        count = sum(len(writer.committed) + writer.aborted_count for writer in writers)
        if count > last_count:
            last_at, last_count = now, count
        stalled = now - last_at > STALL_SECONDS
        is_over = now - begun > options.seconds_max or stalled
        if count >= options.transactions or is_over or all(each.failure for each in writers):
            enough.set()
        elif now >= next_kill:
            next_kill = now + options.kill_seconds
            running = [node for node, pid in peer.workers().items() if pid]
            if running and rng.random() < options.pauses:
                peer.pause_worker(rng.choice(running), rng.uniform(1, PAUSE_SECONDS))
                pauses += 1
            elif running:
                peer.kill_worker(rng.choice(running))
                kills += 1
    seconds = time.monotonic() - begun
    for writer in writers:
        writer.join(2 * STALL_SECONDS)
    still_open = wait_until_all_is_over(peer.bootstrap)
    wrong = judge(writers, peer.bootstrap, options.partitions)
    wrong += [f"partition {index} has an open transaction" for index in still_open]
    wrong += [f"{each.name}: {each.failure!r}" for each in writers if each.failure]
    wrong += [f"{each.name} does not end: {each.call}" for each in writers if each.is_alive()]
    if stalled:
        wrong.append(f"no transaction in {STALL_SECONDS:g} s")
    return {
        "seconds": round(seconds),
        "kills": kills,
        "pauses": pauses,
        "committed": sum(len(each.committed) for each in writers),
        "aborted": sum(each.aborted_count for each in writers),
        "unknown": sum(len(each.unknown) for each in writers),
        "producers": sum(each.producers_made for each in writers),
        "errors": dict(sum((each.errors for each in writers), Counter())),
        "slow": [f"{each.name} {line}" for each in writers for line in each.slow][:50],
        "wrong_count": len(wrong),
        "wrong": wrong[:50],
    }


if __name__ == "__main__":
    main()
