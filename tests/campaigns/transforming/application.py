r"""The consume-transform-produce application of the exactly-once campaign, on confluent-kafka.

    python -m tests.campaigns.transforming.application \
        BOOTSTRAP SLOT BATCH ABORT_EVERY PROTOCOL SESSION

Reads ``in``, writes ``out``, ``audit`` and ``manifest`` and its offsets in transactions of BATCH
inputs; every ABORT_EVERY-th is first done with marked records, offsets too, and aborted. SLOT is
its transactional id. PROTOCOL: classic or consumer. SESSION: its timeout in seconds.
Says each step on a line of its standard output. Lives through whatever it can; is killed for the
rest.
"""

import contextlib
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.campaigns.transforming import records

CALM = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "metadata.recovery.strategy": "none",
    # librdkafka forgets all brokers when the last has gone (KIP-1102), and then waits for ever for
    # the group coordinator that it remembers: the one that it has forgotten.
    "log_level": int(os.environ.get("CLIENT_LOG_LEVEL", "0")),
}
if "CLIENT_DEBUG" in os.environ:
    CALM["debug"] = os.environ["CLIENT_DEBUG"]
TRANSACTION_TIMEOUT_MS = 20_000
CALL_SECONDS = 10


def say(*words: object) -> None:
    print(*words, flush=True)


class Life:
    """What a life of any client's application is told, and counts."""

    def __init__(self, arguments: list[str]) -> None:
        self.bootstrap, self.slot, batch, abort_every, self.protocol, session = arguments
        self.session_timeout_ms = int(session) * 1000
        self.batch = int(batch)
        self.abort_every = int(abort_every)
        self.born = f"{self.slot}/{os.getpid()}/{time.monotonic_ns()}"
        self.count = 0


class Application(Life):
    """One life of it: ends with a KafkaException that only a new life helps against."""

    def live(self) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.slot,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 20,
                **CALM,
            }
        )
        self.retry(lambda: self.producer.init_transactions(CALL_SECONDS))
        session = {
            "session.timeout.ms": self.session_timeout_ms,
            "heartbeat.interval.ms": 500,
        }
        self.consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "transforming",
                "group.protocol": self.protocol,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **(session if self.protocol == "classic" else {}),
                **CALM,
            }
        )
        try:
            self.consumer.subscribe(
                [records.IN], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.revoked
            )
            say("ready")
            while True:
                # Taken before the records: if a rebalance comes between, the group refuses the
                # offsets, and nobody else's records are done twice.
                metadata = self.consumer.consumer_group_metadata()
                found = [one for one in self.consumer.consume(self.batch, 0.5) if not one.error()]
                if found:
                    self.transform(found, metadata)
                else:
                    say("idle")
        finally:
            self.consumer.close()

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        say("assigned", len(partitions))

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        say("revoked", len(partitions))

    def transform(self, found: list[Message], metadata: object) -> None:
        self.count += 1
        try:
            if self.count % self.abort_every == 0:
                self.write(found, metadata, is_marked=True)
                self.producer.flush(CALL_SECONDS)
                self.abort()
                say("marked")
            self.write(found, metadata, is_marked=False)
            self.retry(lambda: self.producer.commit_transaction(CALL_SECONDS))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            say("aborted", error)
            self.abort()
            self.go_back(found)
        else:
            say("committed", len(found))

    def write(self, found: list[Message], metadata: object, *, is_marked: bool) -> None:
        """Begin a transaction and write all that belongs to it; on return its offsets are in."""
        name = f"{self.born}/{self.count}{'-' if is_marked else ''}".encode()
        self.producer.begin_transaction()
        numbers = []
        nexts: dict[tuple[str, int], int] = {}
        for message in found:
            value = message.value()
            assert value != records.MARK, "an aborted input was read"
            number = records.number_of(value)
            result = records.MARK if is_marked else records.transformed(value)
            for topic in (records.OUT, records.AUDIT):
                self.produce(topic, name, result, records.partition_of(topic, number))
            numbers.append(number)
            nexts[message.topic(), message.partition()] = message.offset() + 1
        manifest = records.MARK if is_marked else records.make_manifest(numbers)
        self.produce(records.MANIFEST, name, manifest, 0)
        offsets = [TopicPartition(*where, offset) for where, offset in nexts.items()]
        self.retry(
            lambda: self.producer.send_offsets_to_transaction(offsets, metadata, CALL_SECONDS)
        )

    def produce(self, topic: str, key: bytes, value: bytes, partition: int) -> None:
        while True:
            try:
                self.producer.produce(topic, value, key, partition)
            except BufferError:
                self.producer.poll(0.1)
            else:
                return

    def abort(self) -> None:
        self.retry(lambda: self.producer.abort_transaction(CALL_SECONDS))

    def go_back(self, found: list[Message]) -> None:
        """Read the same again, as far as it is still this member's."""
        firsts: dict[tuple[str, int], int] = {}
        for message in found:
            firsts.setdefault((message.topic(), message.partition()), message.offset())
        for where, offset in firsts.items():
            with contextlib.suppress(KafkaException):
                self.consumer.seek(TopicPartition(*where, offset))

    def retry(self, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                say("again", error.args[0].name())
            else:
                return


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    while True:
        try:
            Application(sys.argv[1:]).live()
        except KafkaException as error:
            first = error.args[0]
            say("anew", first if isinstance(first, KafkaError) else error)
            time.sleep(0.1)


if __name__ == "__main__":
    main()
