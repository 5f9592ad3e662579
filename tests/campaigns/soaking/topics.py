"""Clients whose topics come and go, topics whose segments do, and connections.

Each says what has to be true of the hosts' data directories when all are well.
"""

import random
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.campaigns.soaking.worker import PATIENCE_SECONDS, Worker, config
from tools.wire_client import Closed, WireClient

CALL_SECONDS = 15.0
SHORT = "short"
SHORT_PARTITIONS = 2
SHORT_RECORDS = 20
GONE_AFTER_SECONDS = 120.0
"""A deleted topic has no files any more; a host that was away learns of it when it is back."""
RETAINED = "retained"
SEGMENT_BYTES = 1 << 20
RETENTION_BYTES = 3 << 20
RETAINED_MAX_BYTES = RETENTION_BYTES + 4 * SEGMENT_BYTES
"""The active segment, one that retention cannot take yet, and what is written until it looks."""
RETAINED_VALUE_BYTES = 16_000


class ShortLived(Worker):
    """Makes a topic, writes and reads it, deletes it, waits until nobody knows of it."""

    def __init__(self, bootstrap: str, rest_seconds: float) -> None:
        super().__init__(bootstrap)
        self._rest_seconds = rest_seconds
        self._admin = AdminClient(config(bootstrap))
        self.gone: dict[int, float] = {}
        """Use: by number, when a topic was said to be gone."""
        self._told: set[str] = set()

    def once(self) -> None:
        """Let one topic come and go."""
        name = f"{SHORT}-{self.count}"
        done = self.persist(f"{name} is to be made", lambda: self._make(name))
        if done and self._write(name):
            self._read(name)
        if done and self.persist(f"{name} is to be deleted", lambda: self._remove(name)):
            self.persist(
                f"{name} is to be gone",
                lambda: name not in self._admin.list_topics(timeout=CALL_SECONDS).topics,
            )
            self.gone[self.count] = time.monotonic()
        self.stopping.wait(self._rest_seconds)

    def _make(self, name: str) -> bool:
        wanted = NewTopic(name, SHORT_PARTITIONS, 3)
        future = self._admin.create_topics([wanted], request_timeout=CALL_SECONDS)[name]
        return _is_so(future, KafkaError.TOPIC_ALREADY_EXISTS)

    def _remove(self, name: str) -> bool:
        future = self._admin.delete_topics([name], request_timeout=CALL_SECONDS)[name]
        return _is_so(future, KafkaError.UNKNOWN_TOPIC_OR_PART)

    def _write(self, name: str) -> bool:
        patience_ms = round(PATIENCE_SECONDS * 1000)
        producer = Producer(
            config(self.bootstrap, enable_idempotence=True, message_timeout_ms=patience_ms)
        )
        failed: list[str] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failed.append(error.name())

        for number in range(SHORT_RECORDS):
            partition = number % SHORT_PARTITIONS
            producer.produce(name, b"%d" % number, partition=partition, on_delivery=delivered)
        left = producer.flush(PATIENCE_SECONDS + 1)
        if left or failed:
            self.fail(f"{name}: {left} were not written, {sorted(set(failed))}")
        producer.close()
        return not left and not failed

    def _read(self, name: str) -> None:
        consumer = Consumer(config(self.bootstrap, group_id=name))
        consumer.assign([TopicPartition(name, each, 0) for each in range(SHORT_PARTITIONS)])
        found: list[list[int]] = [[] for _ in range(SHORT_PARTITIONS)]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while sum(map(len, found)) < SHORT_RECORDS and time.monotonic() < deadline:
            for message in consumer.consume(SHORT_RECORDS, 1.0):
                if message.error() is None:
                    found[message.partition()].append(int(message.value()))
        consumer.close()
        wanted = [list(range(at, SHORT_RECORDS, SHORT_PARTITIONS)) for at in range(len(found))]
        if found != wanted:
            self.fail(f"{name}: {found} were read")

    def left_behind(self, places: Iterable[Path]) -> list[str]:
        """Return the directories of topics that are long gone, each once."""
        long_ago = time.monotonic() - GONE_AFTER_SECONDS
        gone = {number for number, at in list(self.gone.items()) if at < long_ago}
        found = []
        for place in places:
            for path in place.glob(f"{SHORT}-*"):
                number = int(path.name.split("-")[1].partition(".")[0])
                if number in gone and str(path) not in self._told:
                    self._told.add(str(path))
                    found.append(f"{path.parents[2].name}: {path.name} is still there")
        return found


def _is_so(future: Future[None], already: int) -> bool:
    """Wait for an answer; that it is ``already`` so is one, too, when it was asked for before."""
    try:
        future.result(CALL_SECONDS)
    except KafkaException as error:
        return error.args[0].code() == already
    except TimeoutError:
        return False
    return True


class Retained(Worker):
    """Writes a partition of which only the last segments are kept: record n is at offset n."""

    def __init__(self, bootstrap: str, rest_seconds: float) -> None:
        super().__init__(bootstrap)
        self._rest_seconds = rest_seconds
        patience_ms = round(PATIENCE_SECONDS * 1000)
        self._producer = Producer(
            config(bootstrap, enable_idempotence=True, message_timeout_ms=patience_ms)
        )
        self.acknowledged = 0

    def once(self) -> None:
        """Write the next record."""
        value = b"%d/" % self.count + b"x" * RETAINED_VALUE_BYTES
        self._producer.produce(RETAINED, value, partition=0, on_delivery=self._delivered)
        self._producer.poll(0)
        self.stopping.wait(self._rest_seconds)

    def close(self) -> None:
        """Wait for the last answers."""
        self._producer.flush(PATIENCE_SECONDS)
        self._producer.close()
        if self.acknowledged < self.count:
            self.fail(f"{RETAINED}: {self.acknowledged} of {self.count} were acknowledged")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.fail(f"{RETAINED}: {error.name()}")
            return
        if message.offset() != self.acknowledged:
            self.fail(f"{RETAINED}: {self.acknowledged} was acknowledged at {message.offset()}")
        self.acknowledged = message.offset() + 1

    def too_large(self, places: Iterable[Path]) -> list[str]:
        """Return where much more is kept than should be."""
        found = []
        for place in places:
            size = 0
            for path in (place / f"{RETAINED}-0").glob("*.log"):
                with suppress(FileNotFoundError):  # Deleted meanwhile.
                    size += path.stat().st_size
            if size > RETAINED_MAX_BYTES:
                found.append(f"{place.parents[1].name}: {RETAINED} has {size} bytes")
        return found

    def read_again(self) -> None:
        """Judge what is kept in the end: all from the log's start on."""
        consumer = Consumer(config(self.bootstrap, group_id=RETAINED))
        place = TopicPartition(RETAINED, 0)
        start, end = consumer.get_watermark_offsets(place, CALL_SECONDS)
        consumer.assign([TopicPartition(RETAINED, 0, start)])
        following, deadline = start, time.monotonic() + PATIENCE_SECONDS
        while following < end and time.monotonic() < deadline:
            for message in consumer.consume(500, 1.0):
                if message.error() is not None:
                    continue
                number = int(message.value().partition(b"/")[0])
                if not number == message.offset() == following:
                    self.fail(f"{RETAINED}: {number} at {message.offset()} after {following - 1}")
                following = message.offset() + 1
        consumer.close()
        if following != self.acknowledged:
            self.fail(f"{RETAINED}: {self.acknowledged} acknowledged, {following} are there")
        if start == 0 and end * RETAINED_VALUE_BYTES > RETAINED_MAX_BYTES:
            self.fail(f"{RETAINED}: nothing was deleted of {end} records")


class Visitor(Worker):
    """Connects, asks something or nothing, and goes; some hang up within a request."""

    def __init__(self, bootstraps: Mapping[int, str], rest_seconds: float, seed: int) -> None:
        super().__init__("")
        self._addresses = list(bootstraps.values())
        self._rest_seconds = rest_seconds
        self._rng = random.Random(seed)

    def once(self) -> None:
        """Visit one node."""
        try:
            with WireClient(self._rng.choice(self._addresses), timeout_seconds=1.0) as client:
                self._visit(client)
        except (OSError, Closed) as error:
            self.errors[f"Visitor: {type(error).__name__}"] += 1
        self.stopping.wait(self._rest_seconds)

    def _visit(self, client: WireClient) -> None:
        way = self._rng.randrange(4)
        if way == 0:
            client.call("api_versions", 3, client_software_name="visitor")
        elif way == 1:
            client.call("metadata", 9, topics=[{"name": RETAINED}])
        elif way == 2:
            client.send((1000).to_bytes(4, "big") + b"\0\3\0\11")  # And no more of it.
