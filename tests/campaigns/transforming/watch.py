"""Who looks on while the campaign runs: a reader of committed results, and one of their offsets.

The Follower reads all results as they come, through all restarts of the broker. The OffsetWatch
asks for last stable offsets: they never fall, and nothing was read beyond them.
"""

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.campaigns.transforming import records
from tests.campaigns.transforming.ledger import Ledger
from tools.wire_client import Closed, WireClient

READ_COMMITTED = 1
EVERY = [(topic, index) for topic in records.RESULTS for index in range(records.PARTITIONS[topic])]
HARMLESS = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)


def open_reader(bootstrap: str) -> Consumer:
    """Return a reader of all results from their start."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
    )
    reader.assign([TopicPartition(topic, index, 0) for topic, index in EVERY])
    return reader


def read_all(bootstrap: str, ledger: Ledger, seconds: float) -> None:
    """Read everything there is, in one go."""
    reader = open_reader(bootstrap)
    ended: set[tuple[str, int]] = set()
    deadline = time.monotonic() + seconds
    while len(ended) < len(EVERY) and time.monotonic() < deadline:
        for message in reader.consume(5000, 0.5):
            error = message.error()
            if error is None:
                take(ledger, message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add((message.topic(), message.partition()))
    reader.close()
    if len(ended) < len(EVERY):
        ledger.complain(f"has not come to the ends of {set(EVERY) - ended}")


def take(ledger: Ledger, message: object) -> None:
    ledger.see(
        message.topic(), message.partition(), message.offset(), message.key(), message.value()
    )


class Follower(threading.Thread):
    """Reads results while they are written."""

    def __init__(self, bootstrap: str, ledger: Ledger) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.ledger = ledger
        self.is_over = threading.Event()

    def run(self) -> None:
        reader = open_reader(self.bootstrap)
        while not self.is_over.is_set():
            for message in reader.consume(5000, 0.2):
                error = message.error()
                if error is None:
                    take(self.ledger, message)
                elif error.code() not in (*HARMLESS, KafkaError._PARTITION_EOF):
                    self.ledger.complain(f"was told {error}")
        reader.close()


class OffsetWatch(threading.Thread):
    """Asks for last stable offsets, again and again."""

    def __init__(self, bootstrap: Callable[[], str], ledger: Ledger) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.ledger = ledger
        self.stable: dict[tuple[str, int], int] = {}
        self.asked = 0
        self.problems: list[str] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.wait(0.2):
            try:
                with WireClient(self.bootstrap()) as wire:
                    while not self.is_over.wait(0.05):
                        self.ask(wire)
            except (Closed, OSError):
                continue

    def ask(self, wire: WireClient) -> None:
        seen = dict(self.ledger.ends)
        found = stable_offsets(wire)
        self.asked += 1
        for where, offset in found.items():
            if offset < self.stable.get(where, 0):
                self.problems.append(f"{where} was stable to {self.stable[where]}, now {offset}")
            if offset < seen.get(where, 0):
                self.problems.append(f"{where} was read to {seen[where]}, is stable to {offset}")
            self.stable[where] = offset


def stable_offsets(
    wire: WireClient, *, isolation: int = READ_COMMITTED
) -> dict[tuple[str, int], int]:
    """Return where each partition of the results ends for such a reader."""
    asked = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": index, "timestamp": -1}
                for index in range(records.PARTITIONS[topic])
            ],
        }
        for topic in records.RESULTS
    ]
    answer = wire.call("list_offsets", 7, replica_id=-1, isolation_level=isolation, topics=asked)
    return {
        (topic["name"], one["partition_index"]): one["offset"]
        for topic in answer["topics"]
        for one in topic["partitions"]
        if one["error_code"] == 0
    }
