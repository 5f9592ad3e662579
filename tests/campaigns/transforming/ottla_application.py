r"""The consume-transform-produce application of the exactly-once campaign, on ``ottla.Client``.

    python -m tests.campaigns.transforming.ottla_application \
        BOOTSTRAP SLOT BATCH ABORT_EVERY PROTOCOL SESSION

As ``application`` is, whose words and arguments these are. A life ends with an error that leaves
open what became of a transaction; the next one takes the transactional id over before it reads.
"""

import faulthandler
import signal
import sys
import time
from collections.abc import Iterator, Sequence

import ottla
from tests.campaigns.transforming import records, tracing
from tests.campaigns.transforming.application import (
    CALL_SECONDS,
    TRANSACTION_TIMEOUT_MS,
    Life,
    say,
)

Result = tuple[str, bytes, bytes, int]


class MeantToBeAborted(Exception):
    """Ends a transaction of marked records."""


class OttlaLife(Life):
    """What lives on either face of the client share."""

    def client_config(self) -> dict[str, object]:
        return {
            "bootstrap.servers": self.bootstrap,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "linger.ms": 20,
        }

    def consumer_options(self) -> dict[str, object]:
        options = {"auto_offset_reset": "earliest", "auto_commit": False, "read_committed": True}
        if self.protocol == "classic":
            options["session_timeout_ms"] = self.session_timeout_ms
        return {"group": "transforming", "group_protocol": self.protocol, **options}

    def results(self, found: Sequence[ottla.Record], *, is_marked: bool) -> Iterator[Result]:
        """Return all that belongs to a transaction: topic, value, key and partition."""
        name = f"{self.born}/{self.count}{'-' if is_marked else ''}".encode()
        numbers = []
        for record in found:
            assert record.value != records.MARK, "an aborted input was read"
            number = records.number_of(record.value)
            result = records.MARK if is_marked else records.transformed(record.value)
            for topic in (records.OUT, records.AUDIT):
                yield topic, result, name, records.partition_of(topic, number)
            numbers.append(number)
        manifest = records.MARK if is_marked else records.make_manifest(numbers)
        yield records.MANIFEST, manifest, name, 0

    def told(self) -> dict[str, object]:
        """Return the callbacks of the subscription."""
        return {
            "on_assigned": lambda partitions: say("assigned", len(partitions)),
            "on_revoked": lambda partitions: say("revoked", len(partitions)),
            "on_lost": lambda partitions: say("revoked", len(partitions)),
        }


class Application(OttlaLife):
    """One life of it: ends with a ClientError."""

    def live(self) -> None:
        client = ottla.Client.from_config(self.client_config())
        try:
            self.producer = client.producer(transactional_id=self.slot)
            self.take_over()
            self.consumer = client.consumer(**self.consumer_options())
            self.consumer.subscribe(records.IN, **self.told())
            say("ready")
            while True:
                found = self.consumer.poll(limit=self.batch, timeout=0.5)
                if found:
                    self.transform(found)
                else:
                    say("idle")
        finally:
            client.close(timeout=CALL_SECONDS)

    def take_over(self) -> None:
        """End what an earlier life has left open: its offsets would else be waited for."""
        with self.producer.transaction(timeout=CALL_SECONDS):
            pass

    def transform(self, found: Sequence[ottla.Record]) -> None:
        self.count += 1
        try:
            if self.count % self.abort_every == 0:
                try:
                    with self.producer.transaction(timeout=CALL_SECONDS) as transaction:
                        self.write(found, is_marked=True)
                        transaction.commit_offsets(self.consumer, timeout=CALL_SECONDS)
                        self.producer.flush(timeout=CALL_SECONDS)
                        raise MeantToBeAborted
                except MeantToBeAborted:
                    say("marked")
            with self.producer.transaction(timeout=CALL_SECONDS) as transaction:
                self.write(found, is_marked=False)
                transaction.commit_offsets(self.consumer, timeout=CALL_SECONDS)
        except ottla.Fenced:
            raise
        except ottla.ClientError as error:
            say("aborted", error)
            self.take_over()  # However it ended, it has.
            self.go_back()
        else:
            say("committed", len(found))

    def write(self, found: Sequence[ottla.Record], *, is_marked: bool) -> None:
        """Write all that belongs to a transaction."""
        for topic, value, key, partition in self.results(found, is_marked=is_marked):
            self.producer.send(topic, value, key=key, partition=partition)

    def go_back(self) -> None:
        """Read from what is committed, as far as it is still this member's."""
        committed = self.consumer.committed(timeout=CALL_SECONDS)
        for each in self.consumer.assignment:
            self.consumer.seek(each, committed.get(each, "earliest"), timeout=CALL_SECONDS)


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    tracing.start()
    while True:
        try:
            Application(sys.argv[1:]).live()
        except ottla.ClientError as error:
            say("anew", type(error).__name__, error)
            time.sleep(0.1)


if __name__ == "__main__":
    main()
