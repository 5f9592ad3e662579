"""Records on their way into batches: which partition, which batch, how much is buffered.

Owns the batches that fill, and those that wait to be sent. Does no I/O and waits for nobody, so
that the caller's thread may put records in while the loop's thread takes batches out: every method
holds the lock for a moment. ``sending`` takes the batches. Source: Kafka's documentation of
batch.size, linger.ms and partitioner.class (murmur2 for keys, sticky without).
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.client.library.failures import BadArgument, ClientClosed, ClientError
from ottla.client.wire.lanes import MAYBE_WRITTEN, TOO_LARGE
from ottla.client.wire.partitioner import partition_of_key
from ottla.env.blocking import new_lock
from ottla.env.rng import Rng
from ottla.errors import KafkaError, OttlaError
from ottla.ids import TopicPartition
from ottla.records.compression import Codec
from ottla.records.rows import PlainRow

RECORD_OVERHEAD_BYTES = 24
"""About what lengths and deltas add to a record's key and value."""
ROW_BYTES = 192
"""About what a record's objects take beside: tuple, time, key, value, the place in the list."""
HEADER_BYTES = 168
"""About what the objects of a header take beside: tuple, name, value."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How records are sent; the defaults are Kafka's but for the batch size.

    ``acks``: -1 all in-sync replicas, 1 the leader, 0 no answer.
    """

    acks: int = -1
    linger_ms: float = 5
    batch_size_bytes: int = 128 << 10
    codec: Codec = Codec.NONE
    level: int | None = None
    is_idempotent: bool = True
    """A retry never writes twice. Needs acks=-1."""
    delivery_timeout_ms: int = 120_000
    buffer_bytes: int = 32 << 20
    """Memory of records that are not acknowledged yet, their objects counted; ``send`` waits
    beyond."""
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    may_create_topics: bool = True


class Batch:
    """Records of one partition that go together."""

    __slots__ = (
        "append_time",
        "base_offset",
        "base_sequence",
        "deadline",
        "due",
        "error",
        "is_done",
        "is_doubtful",
        "is_seen",
        "lane",
        "memory_bytes",
        "parts",
        "rows",
        "size_bytes",
        "times",
        "waiters",
    )

    def __init__(self, lane: "Lane", due: float, deadline: float) -> None:
        self.lane = lane
        self.due = due
        """When it is sent even if it is not full, in monotonic seconds."""
        self.deadline = deadline
        """When it fails if it is not written by then, in monotonic seconds."""
        self.rows: list[PlainRow] = []
        self.size_bytes = 0
        """About how long it is on the wire, before compression."""
        self.memory_bytes = 0
        self.is_done = False
        self.is_doubtful = False
        """Whether a try may have written it, though nobody was told."""
        self.parts: list[tuple[int, Batch]] = []
        """Use: what it was divided into, each with the index of its first record."""
        self.base_sequence = -1
        self.error: ClientError | None = None
        self.is_seen = False
        """Whether somebody has heard of ``error``."""
        self.base_offset = -1
        self.append_time = -1
        self.times: list[int] = []
        """Use: the records' times, once they are written and their rows are dropped."""
        self.waiters: list[asyncio.Future[None]] = []
        """Use: on the loop's thread only."""


@dataclass(slots=True, eq=False)
class Lane:
    """One partition: the batch that fills, those that wait, and what is known of its numbers."""

    partition: TopicPartition
    batch_bytes: int
    """How large a batch may become; less than the settings say once one was too large."""
    waiting: deque[Batch] = field(default_factory=deque)
    """The last one may still fill."""
    is_busy: bool = False
    """A batch is in flight: one at a time, so that order and numbers need no bookkeeping."""
    next_sequence: int = 0
    epoch: int = -1
    """-1: the producer's."""
    is_in_transaction: bool = False
    trouble: OttlaError | None = None
    """Use: why the last try failed; None since one succeeded."""


@dataclass(slots=True, eq=False)
class Topic:
    """The lanes of a topic; ``sticky``: where records without key go until a batch is sent."""

    name: str
    lanes: list[Lane]
    sticky: int

    def has(self, partition: int) -> bool:
        """Tell whether a partition is known, as far as it is a number."""
        return not hasattr(partition, "__index__") or partition < len(self.lanes)


class Gatherer:
    """Batches by partition."""

    def __init__(self, settings: ProducerSettings, rng: Rng) -> None:
        self.settings = settings
        self.topics: dict[str, Topic] = {}
        self.buffered_bytes = 0
        self.unfinished_count = 0
        """Batches that are neither written nor failed."""
        self.active: dict[Lane, None] = {}
        """Use: the lanes with batches that wait. Invariant: no other lane has one."""
        self._is_closed = False
        self._rng = rng
        self._lock = new_lock()

    @property
    def is_full(self) -> bool:
        """Whether callers have to wait for room."""
        return self.buffered_bytes >= self.settings.buffer_bytes

    def know(self, name: str, partition_count: int) -> Topic:
        """Take note of how many partitions a topic has; they may have become more."""
        with self._lock:
            topic = self.topics.get(name)
            if topic is None:
                topic = self.topics[name] = Topic(name, [], self._rng.random_below(partition_count))
            for index in range(len(topic.lanes), partition_count):
                where = TopicPartition(name, index)
                topic.lanes.append(Lane(where, self.settings.batch_size_bytes))
            return topic

    def forget(self, name: str) -> None:
        """Have a topic looked up again, unless it has batches."""
        with self._lock:
            topic = self.topics.get(name)
            if topic is not None and not any(one.waiting or one.is_busy for one in topic.lanes):
                del self.topics[name]

    def add(
        self, topic: Topic, partition: int | None, row: PlainRow, now: float
    ) -> tuple[Batch, int, bool]:
        """Put a record into its batch; return that, its index, and whether to wake the sender.

        Raises BadArgument for a partition that there is not, ClientClosed after ``close``.
        """
        key, value, headers = row[1], row[2], row[3]
        size = RECORD_OVERHEAD_BYTES
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers:
            size += sum(16 + len(name) + len(data or b"") for name, data in headers)
        memory = size + ROW_BYTES + HEADER_BYTES * len(headers)
        with self._lock:
            if self._is_closed:
                raise ClientClosed("send", "the producer is closed")
            # It may have been forgotten since its caller asked for it.
            topic = self.topics.setdefault(topic.name, topic)
            lanes = topic.lanes
            if partition is not None:
                if not hasattr(partition, "__index__") or not 0 <= partition < len(lanes):
                    why = f"it has {len(lanes)} partitions, numbered from 0, and no {partition!r}"
                    raise BadArgument(f"send to {topic.name}", why)
                lane = lanes[partition]
            elif key is not None:
                lane = lanes[partition_of_key(key, len(lanes)) if len(lanes) > 1 else 0]
            else:
                lane = lanes[topic.sticky]
            wakes = False
            waiting = lane.waiting
            if waiting and waiting[-1].size_bytes + size <= lane.batch_bytes:
                batch = waiting[-1]
            else:
                due = now + self.settings.linger_ms / 1000
                batch = Batch(lane, due, due + self.settings.delivery_timeout_ms / 1000)
                waiting.append(batch)
                self.active[lane] = None
                self.unfinished_count += 1
                wakes = True
            rows = batch.rows
            rows.append(row)
            batch.size_bytes += size
            batch.memory_bytes += memory
            self.buffered_bytes += memory
            return batch, len(rows) - 1, wakes

    def take_due(self, now: float, *, everything: bool) -> list[Batch]:
        """Take the first batch of each lane that is free and due; nothing is put into it later."""
        with self._lock:
            taken: list[Batch] = []
            for lane in list(self.active):
                if lane.is_busy:
                    continue
                first = lane.waiting[0]
                if not everything and len(lane.waiting) == 1 and first.due > now:
                    continue
                lane.waiting.popleft()
                lane.is_busy = True
                if not lane.waiting:
                    del self.active[lane]
                topic = self.topics[lane.partition.topic]
                if topic.sticky == lane.partition.partition and len(topic.lanes) > 1:
                    topic.sticky = self._rng.random_below(len(topic.lanes))
                taken.append(first)
            return taken

    def divide(self, batch: Batch) -> None:
        """Have the records of a batch that was too large sent in two, before all that waits."""
        with self._lock:
            batch.lane.next_sequence = max(batch.base_sequence, 0)  # Nothing of it was written.
            lane, middle = batch.lane, len(batch.rows) // 2
            lane.batch_bytes = min(lane.batch_bytes, batch.size_bytes // 2)
            for first, rows in ((0, batch.rows[:middle]), (middle, batch.rows[middle:])):
                part = Batch(lane, 0.0, batch.deadline)
                part.rows = rows
                part.size_bytes = batch.size_bytes * len(rows) // len(batch.rows)
                part.memory_bytes = batch.memory_bytes * len(rows) // len(batch.rows)
                batch.parts.append((first, part))
            # What the division of the bytes has left over.
            self.buffered_bytes -= batch.memory_bytes
            self.buffered_bytes += sum(part.memory_bytes for _, part in batch.parts)
            batch.rows = []
            lane.waiting.extendleft(part for _, part in reversed(batch.parts))
            lane.is_busy = False
            self.active[lane] = None
            self.unfinished_count += 1

    def next_due(self) -> float | None:
        """Return when the next batch is due; None when none waits for its time."""
        with self._lock:
            dues = [lane.waiting[0].due for lane in self.active if not lane.is_busy]
        return min(dues, default=None)

    def take_expired(self, now: float) -> list[Batch]:
        """Take the batches that wait and whose time is up: they are to fail."""
        with self._lock:
            taken: list[Batch] = []
            for lane in list(self.active):
                waiting = lane.waiting
                while waiting and waiting[0].deadline <= now:
                    taken.append(waiting.popleft())
                if not waiting:
                    del self.active[lane]
            return taken

    def next_deadline(self) -> float | None:
        """Return when the next batch that waits expires; None when none waits."""
        with self._lock:
            return min((lane.waiting[0].deadline for lane in self.active), default=None)

    def close(self) -> None:
        """Take no record any more."""
        with self._lock:
            self._is_closed = True

    def take_waiting(self) -> list[Batch]:
        """Take everything that is not in flight: it is to fail."""
        with self._lock:
            taken = [batch for lane in self.active for batch in lane.waiting]
            for lane in self.active:
                lane.waiting.clear()
            self.active.clear()
            return taken

    def finish(self, batch: Batch, error: ClientError | None) -> None:
        """Take note of what became of a batch; its records are dropped."""
        with self._lock:
            batch.error = error
            batch.times = [row[0] for row in batch.rows]
            batch.rows = []
            batch.is_done = True
            self.buffered_bytes -= batch.memory_bytes
            self.unfinished_count -= 1

    def lanes(self) -> Iterable[Lane]:
        """Return the lanes of all topics."""
        with self._lock:
            return [lane for topic in self.topics.values() for lane in topic.lanes]


def may_be_divided(batch: Batch, error: OttlaError) -> bool:
    """Whether a batch is too large for its topic, though perhaps no record of it is.

    Not if a try before may have written it: the parts would be there twice.
    """
    code = error.code if isinstance(error, KafkaError) else None
    batch.is_doubtful = batch.is_doubtful or code is None or code in MAYBE_WRITTEN
    return code in TOO_LARGE and len(batch.rows) > 1 and not batch.is_doubtful
