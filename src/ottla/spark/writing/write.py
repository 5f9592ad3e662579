"""Rows of one Spark task to topics: partitions, record batches, produce requests. Blocks.

The executor's side: from the Arrow batches that Spark hands over to a ``BlockingProducer``. Owns
the batches that are filling, one per partition, and which partition a row without key goes to.
Partitions are chosen as Java's producer does: the column ``partition``, else murmur2 of the key,
else one partition until it has got a batch's worth of rows, then the next. The loops over rows are
those of ``records.columnar.writer``. A writer is for one task: what fails, fails it.
"""

import logging
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa

from ottla.client.blocking.producer import BlockingProducer, describe_row
from ottla.client.wire.lanes import OutgoingBatch, Written
from ottla.client.wire.sending import ProducerIdentity
from ottla.client.wire.settings import ClientSettings
from ottla.client.wire.view import TopicView
from ottla.env.clock import Clock, SystemClock
from ottla.env.rng import Rng, SystemRng
from ottla.ids import TopicPartition
from ottla.records.batch import HEADER_SIZE_BYTES
from ottla.records.columnar.filling import FillingBatch
from ottla.records.columnar.writer import ColumnWriter, group_rows
from ottla.records.compression import Codec
from ottla.spark.writing.kept import Standing
from ottla.spark.writing.rows import RowError, Rows, find_rows
from ottla.spark.writing.write_settings import WriteOptions

ROOM_BYTES_FIRST = 64 << 10
"""Room of a partition's first batch; it doubles: many partitions with few rows cost little."""
ROOM_BYTES_MIN = 1 << 10
DAY_MS = 24 * 3_600_000
OLD_MS = 7 * DAY_MS
"""A broker's default of retention.ms."""
_NOTED: list[bool] = []
LOG = logging.getLogger("ottla.spark")
BUFFERS_MAX = 16
"""Empty buffers of a full batch's size that are kept for the next."""


class BatchSender(Protocol):
    """Where finished batches go. ``BlockingProducer`` is one, and describes the methods."""

    @property
    def written(self) -> dict[TopicPartition, Written]:
        """What was acknowledged so far."""

    @property
    def smallest_refused_bytes(self) -> int | None:
        """The size of the smallest batch that was found too large."""

    def topic(self, name: str, *, again: bool = False) -> TopicView:
        """Return a topic's partitions."""

    def send(self, partition: TopicPartition, data: bytearray, size_bytes: int) -> None:
        """Take a batch, complete but for its producer and sum."""

    def flush(self) -> None:
        """Wait until all is written."""

    def close(self) -> None:
        """Close."""


class _Part(NamedTuple):
    """The rows of one topic, as they were handed in and as the kernel sees them."""

    rows: Rows
    writer: ColumnWriter


@dataclass(slots=True)
class _Topic:
    """Where the rows of one topic go."""

    name: str
    partition_count: int = 0
    sticky: int = 0
    """The partition of rows without key; it changes when ``room_bytes`` is used up."""
    room_bytes: int = 0
    filling: dict[int, FillingBatch] = field(default_factory=dict)


class RowsWriter:
    """Writes the rows of one task. ``finish`` or ``abort`` ends it; nothing is written after."""

    def __init__(
        self,
        settings: ClientSettings,
        options: WriteOptions,
        producer: ProducerIdentity | None = None,
        *,
        sender: BatchSender | None = None,
        standing: Standing | None = None,
        seen: Callable[[Rows], None] | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        """Connect at the first row.

        ``producer``: the identity of an open transaction, in a fresh epoch; each partition is
        then written by one writer only. None: an identity of its own, if the options want one.
        ``sender``: takes the batches instead, which are part of a transaction of the sender's.
        ``standing``: what an earlier task has left, which this one leaves to the next.
        ``seen``: is given all rows, as they come.
        """
        self._options = options
        self._standing = standing or Standing(settings)
        self._is_lent = standing is not None
        is_numbered = options.sending.is_idempotent and options.sending.acks == -1
        kept = self._standing.identity if is_numbered else None
        self._own = BlockingProducer(
            self._standing.client,
            settings,
            options.sending,
            producer or kept,
            done=self._take_back,
            connect=self._standing.connect,
        )
        self._producer: BatchSender = sender or self._own
        self._is_transactional = sender is not None or (
            producer is not None and producer.transactional_id is not None
        )
        self._seen = seen
        self._clock = clock or SystemClock()
        self._rng = rng or SystemRng()
        self._topics: dict[str, _Topic] = {}
        self._free: list[bytearray] = []
        self._has_closed = False
        self._chosen = array("i")
        self._order = array("i")

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of ``batch``; full record batches are sent.

        Waits for acknowledgements when too much is in flight. Raises RowError for columns or rows
        that cannot be written, KafkaError and ConnectionFailed for what the cluster refuses.
        """
        if batch.num_rows == 0:
            return
        rows = find_rows(
            batch,
            topic_given=self._options.topic is not None,
            timestamp_ignored=self._options.ignores_timestamp,
        )
        self._note_old(rows)
        if self._seen is not None:
            self._seen(rows)
        for name, part in self._by_topic(rows):
            self._write_topic(self._topics.get(name) or self._open_topic(name), part)
        self._bound_memory()

    def finish(self) -> dict[TopicPartition, Written]:
        """Send what is left, wait until all is acknowledged, and tell what was written where."""
        try:
            for topic in self._topics.values():
                for partition in sorted(topic.filling):
                    self._close(topic, partition)
            self._producer.flush()
            written = self._producer.written
            if self._is_lent:
                self._standing.take_over(self._own)
            return written
        finally:
            self.abort()

    def abort(self) -> None:
        """Close the connections. What was sent may have been written. Harmless when ended."""
        self._producer.close()
        if not self._is_lent:
            self._standing.close()

    def _note_old(self, rows: Rows) -> None:
        """Tell once in a process when rows are old by their own timestamps, as the first one is."""
        if _NOTED or rows.timestamp is None:
            return
        first_us = rows.timestamp[0].as_py()
        age_ms = self._clock.wall_ms() - (first_us or 0) // 1000
        if first_us is not None and age_ms > OLD_MS:
            _NOTED.append(True)
            LOG.warning(
                "rows are %d days old by their column timestamp, which they are written with: a "
                "topic's retention.ms (7 days by default) may soon take them. The option "
                "ignoreTimestamp=true writes them with the time of writing",
                age_ms // DAY_MS,
            )

    # -- rows to partitions ------------------------------------------------------------------------

    def _by_topic(self, rows: Rows) -> Iterator[tuple[str, Rows]]:
        if rows.topic is None:
            assert self._options.topic is not None, "find_rows wants a topic"
            yield self._options.topic, rows
            return
        encoded = rows.topic.dictionary_encode()
        names = _texts(encoded.dictionary)
        if len(names) == 1:
            yield names[0], rows
            return
        import pyarrow.compute as pc  # slow, and only for several topics at once

        for number, name in enumerate(names):
            yield name, rows.take(pc.indices_nonzero(pc.equal(encoded.indices, number)))

    def _open_topic(self, name: str, *, again: bool = False) -> _Topic:
        """Return the topic with its partitions, after asking for them; ``again``: once more."""
        topic = self._topics.setdefault(name, _Topic(name))
        topic.partition_count = len(self._producer.topic(name, again=again).partitions)
        if not topic.room_bytes:
            topic.sticky = self._rng.random_below(topic.partition_count)
            topic.room_bytes = self._options.batch_bytes
        return topic

    def _write_topic(self, topic: _Topic, rows: Rows) -> None:
        part = _Part(rows, rows.column_writer(self._clock.wall_ms()))
        self._choose_partitions(topic, part)
        count = len(rows.value)
        ends = array("i", bytes(4 * topic.partition_count))
        group_rows(self._chosen, count, self._order, ends)
        start = 0
        for partition, end in enumerate(ends):
            if end > start:
                self._fill(topic, partition, part, start, end)
                start = end

    def _choose_partitions(self, topic: _Topic, part: _Part) -> None:
        """Have ``_chosen`` say where each row goes. Raises RowError for one that cannot go."""
        rows, writer = part
        count = len(rows.value)
        if len(self._chosen) < count:
            self._chosen = array("i", bytes(4 * count))
            self._order = array("i", bytes(4 * count))
        asked = rows.partitions()
        start, refused = 0, -1
        while start < count:
            start, room = writer.choose_partitions(
                self._chosen,
                start,
                partition_count=topic.partition_count,
                sticky=topic.sticky,
                room_bytes=topic.room_bytes,
                partition=asked,
            )
            if room < 0:  # perhaps the topic has got more partitions meanwhile
                if refused == start:
                    raise self._refusal(topic, rows, start)
                refused = start
                self._open_topic(topic.name, again=True)
            elif room == 0:
                topic.sticky = (topic.sticky + 1) % topic.partition_count
                topic.room_bytes = self._options.batch_bytes
            else:
                topic.room_bytes = room

    def _refusal(self, topic: _Topic, rows: Rows, row: int) -> RowError:
        what = _describe(rows, row)
        partition = None if rows.partition is None else rows.partition[row].as_py()
        if partition is not None and not 0 <= partition < topic.partition_count:
            why = f"has {topic.partition_count} partitions, numbered from 0; not {partition}"
            return RowError(f"topic {topic.name} {why}, which is asked for by {what}")
        return RowError(f"topic {topic.name}: the timestamp is before 1970 of {what}")

    # -- partitions to batches ---------------------------------------------------------------------

    def _fill(self, topic: _Topic, partition: int, part: _Part, start: int, end: int) -> None:
        """Encode the rows ``_order[start:end]`` into batches of one partition."""
        while True:
            filling = topic.filling.get(partition)
            if filling is None:
                filling = topic.filling[partition] = FillingBatch(self._buffer())
            start = part.writer.encode(self._order, start, end, filling.data, filling.state)
            if start == end:
                return
            if not self._make_room(topic, partition, filling):
                size = HEADER_SIZE_BYTES + filling.wanted_bytes - filling.size_bytes
                limit = self._options.record_bytes_max
                what = _describe(part.rows, self._order[start])
                why = f"has {size} bytes as a batch, more than max.request.size={limit} allows"
                raise RowError(f"{topic.name}-{partition}: {what} {why}")

    def _make_room(self, topic: _Topic, partition: int, filling: FillingBatch) -> bool:
        """Close the batch when it is full, else let it grow; False: the row is too large."""
        limit = self._batch_bytes()
        wanted = filling.wanted_bytes
        if HEADER_SIZE_BYTES + wanted - filling.size_bytes > self._options.record_bytes_max:
            return False
        if filling.record_count and wanted > limit:
            self._close(topic, partition)
        else:
            filling.grow(max(wanted, min(2 * len(filling.data), limit)))
        return True

    def _batch_bytes(self) -> int:
        """Return what a batch may have: half of what a broker has refused, if one did."""
        refused = self._producer.smallest_refused_bytes
        limit = self._options.batch_bytes
        return limit if refused is None else min(limit, refused // 2)

    def _close(self, topic: _Topic, partition: int) -> None:
        filling = topic.filling.pop(partition)
        self._has_closed |= filling.size_bytes > ROOM_BYTES_FIRST
        options = self._options
        data, size = filling.close(
            options.codec, options.level, transactional=self._is_transactional
        )
        if data is not filling.data:
            self._give_back(filling.data)
        self._producer.send(TopicPartition(topic.name, partition), data, size)

    def _bound_memory(self) -> None:
        """Send the fullest batches when all together take half of the buffer."""
        allowed = self._options.sending.buffer_bytes // 2
        open_batches = sum(len(topic.filling) for topic in self._topics.values())
        if open_batches * self._options.batch_bytes <= allowed:
            return
        by_size = sorted(
            (filling.size_bytes, topic.name, partition)
            for topic in self._topics.values()
            for partition, filling in topic.filling.items()
        )
        total = sum(size for size, _, _ in by_size)
        while total > allowed:
            size, name, partition = by_size.pop()
            self._close(self._topics[name], partition)
            total -= size

    # -- buffers -----------------------------------------------------------------------------------

    def _buffer(self) -> bytearray:
        """Return an empty one: small until a batch was closed, since most tasks have few rows."""
        if self._free:
            return self._free.pop()
        limit = max(self._batch_bytes(), HEADER_SIZE_BYTES)
        room = limit if self._has_closed else min(ROOM_BYTES_FIRST, limit)
        # With thousands of partitions all of them together are not to take more than is allowed.
        partition_count = sum(topic.partition_count for topic in self._topics.values())
        fair = self._options.sending.buffer_bytes // 2 // max(partition_count, 1)
        return bytearray(max(min(room, fair), min(ROOM_BYTES_MIN, limit)))

    def _give_back(self, buffer: bytearray) -> None:
        """Keep an empty buffer that has grown to a full batch, at most: writing to it is cheap."""
        if len(self._free) < BUFFERS_MAX and len(buffer) == self._batch_bytes():
            self._free.append(buffer)

    def _take_back(self, batch: OutgoingBatch) -> None:
        if self._options.codec is Codec.NONE:
            self._give_back(batch.data)


def _texts(topics: pa.Array) -> list[str]:
    """Return topics' names. Raises RowError: Spark's strings may hold any bytes."""
    try:
        names: list[str] = topics.to_pylist()
    except UnicodeDecodeError as error:
        raise RowError(f"a row has a topic whose name is no UTF-8: {error.object!r}") from error
    return names


def _describe(rows: Rows, row: int) -> str:
    key = None if rows.key is None else rows.key[row].as_py()
    return describe_row(key, rows.value[row].as_py())
