"""Rows of one Spark task to topics: partitions, record batches, produce requests. Blocks.

The executor's side: from the Arrow batches that Spark hands over to a ``BlockingProducer``. Owns
the batches that are filling, one per partition, and which partition a row without key goes to.
Partitions are chosen as Java's producer does. A writer is for one task: what fails, fails it.
"""

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from ottla.client.blocking import BlockingClient
from ottla.client.blocking_producer import BlockingProducer
from ottla.client.lanes import Written
from ottla.client.partitioner import partition_of_key
from ottla.client.sending import ProducerIdentity
from ottla.client.settings import ClientSettings
from ottla.client.view import TopicView
from ottla.env.clock import Clock, SystemClock
from ottla.env.rng import Rng, SystemRng
from ottla.ids import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.spark.rows import RowError, Rows, find_rows
from ottla.spark.write_settings import WriteOptions

ROW_OVERHEAD_BYTES = 30


class BatchSender(Protocol):
    """Where finished batches go. ``BlockingProducer`` is one, and describes the methods."""

    @property
    def written(self) -> dict[TopicPartition, Written]:
        """What was acknowledged so far."""

    def topic(self, name: str, *, again: bool = False) -> TopicView:
        """Return a topic's partitions."""

    def send(self, partition: TopicPartition, data: bytearray, size_bytes: int) -> None:
        """Take a batch, complete but for its producer and sum."""

    def flush(self) -> None:
        """Wait until all is written."""

    def close(self) -> None:
        """Close."""


class RowsWriter:
    """Writes the rows of one task. ``finish`` or ``abort`` ends it; nothing is written after."""

    def __init__(
        self,
        settings: ClientSettings,
        options: WriteOptions,
        producer: ProducerIdentity | None = None,
        *,
        sender: BatchSender | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        """Connect at the first row.

        ``producer``: the identity of an open transaction, in a fresh epoch; each partition is
        then written by one writer only. None: an identity of its own, if the options want one.
        ``sender``: takes the batches instead, which are part of a transaction of the sender's.
        """
        self._options = options
        self._client = BlockingClient(settings)
        self._producer: BatchSender = sender or BlockingProducer(
            self._client, settings, options.sending, producer
        )
        self._is_transactional = sender is not None or (
            producer is not None and producer.transactional_id is not None
        )
        self._clock = clock or SystemClock()
        self._rng = rng or SystemRng()
        self._filling: dict[TopicPartition, tuple[list[Record], int]] = {}
        self._sticky: dict[str, int] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of ``batch``; full record batches are sent.

        Waits for acknowledgements when too much is in flight. Raises RowError for columns or rows
        that cannot be written, KafkaError and ConnectionFailed for what the cluster refuses.
        """
        if batch.num_rows == 0:
            return
        rows = find_rows(batch, topic_given=self._options.topic is not None)
        for topic, part in self._by_topic(rows):
            self._write_topic(topic, part)

    def finish(self) -> dict[TopicPartition, Written]:
        """Send what is left, wait until all is acknowledged, and tell what was written where."""
        try:
            for target in list(self._filling):
                self._close(target)
            self._producer.flush()
            return self._producer.written
        finally:
            self.abort()

    def abort(self) -> None:
        """Close the connections. What was sent may have been written. Harmless when ended."""
        self._producer.close()
        self._client.close()

    def _by_topic(self, rows: Rows) -> Iterator[tuple[str, Rows]]:
        if rows.topic is None:
            assert self._options.topic is not None, "find_rows wants a topic"
            yield self._options.topic, rows
            return
        encoded = rows.topic.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if len(names) == 1:
            yield names[0], rows
            return
        import pyarrow.compute as pc

        for number, name in enumerate(names):
            yield name, rows.take(pc.indices_nonzero(pc.equal(encoded.indices, number)))

    def _write_topic(self, topic: str, rows: Rows) -> None:
        count = len(self._producer.topic(topic).partitions)
        now = self._clock.wall_ms()
        keys = [None] * len(rows.value) if rows.key is None else rows.key.to_pylist()
        values = rows.value.to_pylist()
        partitions = None if rows.partition is None else rows.partition.to_pylist()
        headers = None if rows.headers is None else rows.headers.to_pylist()
        timestamps = None if rows.timestamp is None else rows.timestamp.to_pylist()
        for index, (key, value) in enumerate(zip(keys, values, strict=True)):
            partition = partitions[index] if partitions else None
            if partition is None:
                partition = self._choose(topic, key, count)
            elif not 0 <= partition < count:
                raise RowError(f"{topic} has {count} partitions, numbered from 0; not {partition}")
            timestamp = timestamps[index] if timestamps else None
            record = Record(
                timestamp=now if timestamp is None else timestamp // 1000,
                key=key,
                value=value,
                headers=tuple((each["key"], each["value"]) for each in (headers[index] or ()))
                if headers
                else (),
            )
            self._add(TopicPartition(topic, partition), record)

    def _choose(self, topic: str, key: bytes | None, count: int) -> int:
        if key is not None:
            return partition_of_key(key, count)
        if topic not in self._sticky:
            self._sticky[topic] = self._rng.random_below(count)
        return self._sticky[topic]

    def _add(self, target: TopicPartition, record: Record) -> None:
        size = ROW_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value or b"") + 10 for name, value in record.headers)
        if size > self._options.record_bytes_max:
            raise RowError(f"{target}: a row of {size} bytes is above max.request.size")
        records, filled = self._filling.get(target, ([], 0))
        if records and filled + size > self._options.batch_bytes:
            self._close(target)
            records, filled = [], 0
        records.append(record)
        self._filling[target] = (records, filled + size)

    def _close(self, target: TopicPartition) -> None:
        records, _ = self._filling.pop(target)
        self._sticky.pop(target.topic, None)
        data = build_batch(
            records,
            codec=self._options.codec,
            level=self._options.level,
            transactional=self._is_transactional,
        )
        self._producer.send(target, data, len(data))
