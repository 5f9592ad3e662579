"""Writers of transactions with offsets, and groups that read them, whose members come and go.

The judge of transactions is that of nodes_transactions.py. A group has to read all that was
committed at least once and nothing else, and a committed offset never falls.
"""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.campaigns.nodes_transactions import INPUT, Writer
from tests.campaigns.soaking.worker import Worker, config, name_of

TOPIC = "transactions"
PARTITIONS = 3
STAY_SECONDS = (10.0, 60.0)
"""How long a member stays."""
AWAY_SECONDS = (0.0, 10.0)
CALL_SECONDS = 10.0
LOOK_SECONDS = 3.0
Floor = Callable[[], dict[int, int]]


class SteadyWriter(Writer):
    """Writes a transaction, rests, writes the next one."""

    topic = TOPIC
    rest_seconds = 1.0

    def one(self, producer: Producer, group: Any) -> None:
        """Write one transaction."""
        super().one(producer, group)
        self.enough.wait(self.rest_seconds)

    def floor(self) -> dict[int, int]:
        """Return the offset that is committed at least, by partition of INPUT."""
        return {0: max(self.committed.copy(), default=0)}


class Group:
    """What the members of one group have read and committed."""

    def __init__(self, name: str, protocol: str) -> None:
        self.name = name
        self.protocol = protocol
        self._lock = threading.Lock()
        self._seen: defaultdict[int, set[bytes]] = defaultdict(set)
        self._committed: dict[int, int] = {}

    def see(self, messages: Sequence[Message]) -> None:
        """Note what a member got."""
        with self._lock:
            for message in messages:
                self._seen[message.partition()].add(message.key())

    def commit(self, offsets: Sequence[TopicPartition]) -> None:
        """Note what was acknowledged."""
        with self._lock:
            for each in offsets:
                if each.error is None and each.offset >= 0:
                    known = self._committed.get(each.partition, 0)
                    self._committed[each.partition] = max(each.offset, known)

    def floor(self) -> dict[int, int]:
        """Return the offset that is committed at least, by partition."""
        with self._lock:
            return dict(self._committed)

    def missing(self, writers: Sequence[Writer]) -> list[str]:
        """Return what was committed and that no member has got."""
        with self._lock:
            seen = [set(self._seen[partition]) for partition in range(PARTITIONS)]
        return [
            f"{self.name}: nobody got {writer.name} {number} of partition {partition}"
            for writer in writers
            for number in sorted(writer.committed.copy())
            for partition in range(PARTITIONS)
            if f"{writer.name} {number}".encode() not in seen[partition]
        ]

    def unwanted(self, writers: Sequence[Writer]) -> list[str]:
        """Return what some member got though it was not committed; nobody writes any more."""
        allowed = {
            f"{writer.name} {number}".encode()
            for writer in writers
            for number in writer.committed | writer.unknown
        }
        return [
            f"{self.name}: somebody got {key!r} of partition {partition}"
            for partition, keys in self._seen.items()
            for key in sorted(keys - allowed)
        ]


class Member(Worker):
    """A member of a group that comes, reads and commits, goes, and comes again as another one."""

    def __init__(self, bootstrap: str, group: Group, seed: int) -> None:
        super().__init__(bootstrap)
        self._group = group
        self._rng = random.Random(seed)

    def once(self) -> None:
        """Be one member."""
        consumer = Consumer(
            config(
                self.bootstrap,
                group_id=self._group.name,
                group_protocol=self._group.protocol,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
        )
        consumer.subscribe([TOPIC])
        leaves = time.monotonic() + self._rng.uniform(*STAY_SECONDS)
        try:
            while time.monotonic() < leaves and not self.stopping.is_set():
                self._read(consumer)
        except KafkaException as error:  # Who is its successor reads that again.
            self.errors[f"Member: {name_of(error)}"] += 1
        finally:
            consumer.close()
        self.stopping.wait(self._rng.uniform(*AWAY_SECONDS))

    def _read(self, consumer: Consumer) -> None:
        messages = [each for each in consumer.consume(100, 1.0) if each.error() is None]
        if messages:
            self._group.see(messages)
            self._group.commit(consumer.commit(asynchronous=False) or [])


class OffsetsWatch(Worker):
    """Asks for a group's offsets all the time: they are never below what was committed or told."""

    def __init__(self, bootstrap: str, group: str, topic: str, floor: Floor) -> None:
        super().__init__(bootstrap)
        self._group = group
        self._topic = topic
        self._floor = floor
        self._told: dict[int, int] = {}
        self._consumer = Consumer(config(bootstrap, group_id=group))

    def once(self) -> None:
        """Look once."""
        floor = self._floor()
        for partition, offset in self._told.items():
            floor[partition] = max(offset, floor.get(partition, 0))
        asked = [TopicPartition(self._topic, each) for each in range(PARTITIONS)]
        if self._topic == INPUT:
            asked = asked[:1]
        try:
            answer = self._consumer.committed(asked, CALL_SECONDS)
        except KafkaException as error:
            self.errors[f"OffsetsWatch: {name_of(error)}"] += 1
            answer = []
        for each in answer:
            if each.error is None:
                self._judge(each.partition, max(each.offset, 0), floor.get(each.partition, 0))
        self.stopping.wait(LOOK_SECONDS)

    def _judge(self, partition: int, offset: int, floor: int) -> None:
        if offset < floor:
            self.fail(f"{self._group}: partition {partition} fell from {floor} to {offset}")
        self._told[partition] = offset

    def close(self) -> None:
        """Close the connection."""
        with suppress(KafkaException):
            self._consumer.close()
