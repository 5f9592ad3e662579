"""Sends records: batches them by partition, numbers them, retries them. On asyncio.

Owns the batches that are filling and the promises made to callers. One batch per partition is in
flight, so order and sequence numbers need no bookkeeping. ``sending`` builds requests and reads
answers. Source: Kafka's producer documentation (linger.ms, batch.size, enable.idempotence), KIP-98.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.producer_ids import fresh_identity
from ottla.client.wire.backoff import Backoff
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.lanes import WRITTEN, failure, sequence_after
from ottla.client.wire.partitioner import partition_of_key
from ottla.client.wire.sending import (
    NO_IDENTITY,
    Appended,
    produce_request,
    produce_version_limit,
    read_produce,
)
from ottla.env.clock import Clock, SystemClock
from ottla.env.rng import Rng, SystemRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.produce import ProduceResponse
from ottla.records.batch import NO_SEQUENCE
from ottla.records.builder import build_batch_of_rows
from ottla.records.compression import Codec
from ottla.records.rows import PlainRow

RECORD_OVERHEAD_BYTES = 21
"""The most that lengths and deltas add to a record's key and value."""
HEADER_OVERHEAD_BYTES = 10
REQUEST_BYTES = 8 << 20
"""Batches beyond this go with another request."""

Promise = asyncio.Future["Delivery"]


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How records are sent. ``acks``: -1 all in-sync replicas, 1 the leader, 0 no answer."""

    acks: int = -1
    linger_ms: int = 5
    batch_size_bytes: int = 256 << 10
    codec: Codec = Codec.NONE
    level: int | None = None
    is_idempotent: bool = True
    """A retry never writes twice. Needs acks=-1; without effect otherwise."""
    delivery_timeout_ms: int = 120_000
    buffer_bytes: int = 32 << 20
    """Records not yet acknowledged; ``send`` waits beyond."""
    may_create_topics: bool = True
    stops_at_failure: bool = False
    """Nothing goes to a partition behind a record that failed: it would lie in the gap's place."""


class Delivery(NamedTuple):
    """Where a record was written; offset -1 with acks=0."""

    partition: TopicPartition
    offset: int
    timestamp: int


class Outcome(NamedTuple):
    """What became of records that went together. ``base_offset``: of the first; -1 with acks=0."""

    partition: TopicPartition
    record_count: int
    base_offset: int
    error: KafkaError | ConnectionFailed | None


Told = Callable[[Outcome], None]


@dataclass(slots=True)
class _Batch:
    """Records of one partition that go together."""

    due: float
    """When it is sent even if it is not full, in the loop's seconds."""
    rows: list[PlainRow] = field(default_factory=list)
    promises: list[tuple[int, Promise]] = field(default_factory=list)
    """By the record's index; those that were ``put`` have none."""
    size_bytes: int = 0


@dataclass(slots=True)
class _Lane:
    """One partition: the batches that wait, the last of them filling, and what is in flight.

    Why it is not one of ``wire.lanes``: see there.
    """

    waiting: deque[_Batch] = field(default_factory=deque)
    is_busy: bool = False
    next_sequence: int = 0


class Producer:
    """Use as an async context manager: leaving it in peace flushes."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings | None = None,
        *,
        told: Told | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        """``told`` hears of every batch that was written or has failed."""
        self._told = told
        self._cluster = cluster
        self._settings = settings or ProducerSettings()
        self._clock = clock or SystemClock()
        self._rng = rng or SystemRng()
        self._is_idempotent = self._settings.is_idempotent and self._settings.acks == -1
        self._identity = NO_IDENTITY
        self._needs_identity = self._is_idempotent
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._sticky: dict[str, int] = {}
        self._stopped: dict[TopicPartition, KafkaError | ConnectionFailed] = {}
        self._buffered_bytes = 0
        self._unfinished_count = 0
        self._is_flushing = False
        self._wake = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_done = asyncio.Event()
        self._is_done.set()
        self._sender: asyncio.Task[None] | None = None
        self._deliveries: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._sender = asyncio.create_task(self._send_due(), name="ottla producer")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            tasks = [*self._deliveries, *([self._sender] if self._sender else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Promise:
        """Hand in a record; await the result to know that it was written.

        Waits while the buffer is full, and once per topic for its metadata. Raises KafkaError when
        there is no such topic or partition, and what stopped the partition, if the settings say so.
        The promise fails with KafkaError or ConnectionFailed.
        """
        await self._ready(topic)
        target = self._target(topic, key, partition)
        timestamp = self._clock.wall_ms() if timestamp_ms is None else timestamp_ms
        promise: Promise = asyncio.get_running_loop().create_future()
        row = timestamp, key, value, tuple(headers)
        batch = self._add(target, row)
        batch.promises.append((len(batch.rows) - 1, promise))
        if self._wake.is_set():
            await asyncio.sleep(0)  # a caller that never waits would starve the sender
        return promise

    async def put(self, topic: str, row: PlainRow, partition: int | None = None) -> None:
        """Hand in a record as ``send`` does, without a promise: ``told`` hears of its batch."""
        await self._ready(topic)
        self._add(self._target(topic, row[1], partition), row)
        if self._wake.is_set():
            await asyncio.sleep(0)

    async def put_all(self, target: TopicPartition, rows: list[PlainRow], size_bytes: int) -> None:
        """Hand in records of one partition at once: as ``put``, at a fraction of the cost.

        ``size_bytes``: of all keys, values and headers.
        """
        await self._ready(target.topic)
        self._check_stopped(target)
        size_bytes += RECORD_OVERHEAD_BYTES * len(rows)
        if size_bytes > self._settings.batch_size_bytes:
            for row in rows:
                self._add(target, row)
        elif rows:
            batch = self._batch(target, size_bytes)
            batch.rows += rows
            self._count(batch, size_bytes)
        if self._wake.is_set():
            await asyncio.sleep(0)

    def partition_without_key(self, topic: str) -> int:
        """Return where records of a topic that is known go without a key, until that is sent."""
        return self._choose(topic, None, None)

    async def flush(self) -> None:
        """Send what is buffered, and wait until each record was written or has failed."""
        self._is_flushing = True
        self._wake.set()
        await self._is_done.wait()
        self._is_flushing = False

    async def _ready(self, topic: str) -> None:
        """Wait for room, and once per topic for its metadata."""
        if not self._has_room.is_set():
            await self._has_room.wait()
        if topic not in self._cluster.view.topics:
            await self._cluster.ensure([topic], create=self._settings.may_create_topics, led=False)

    def _target(self, topic: str, key: bytes | None, partition: int | None) -> TopicPartition:
        target = TopicPartition(topic, self._choose(topic, key, partition))
        self._check_stopped(target)
        return target

    def _check_stopped(self, target: TopicPartition) -> None:
        if target in self._stopped:
            raise self._stopped[target]

    def _choose(self, topic: str, key: bytes | None, partition: int | None) -> int:
        partitions = self._cluster.view.topic(topic).partitions
        if partition is not None:
            if partition not in partitions:
                why = f"{topic} has {len(partitions)} partitions, numbered from 0; not {partition}"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
            return partition
        if key is not None:
            return partition_of_key(key, len(partitions))
        if topic not in self._sticky:
            self._sticky[topic] = self._rng.random_below(len(partitions))
        return self._sticky[topic]

    def _add(self, target: TopicPartition, row: PlainRow) -> _Batch:
        size = _size_bytes(row)
        batch = self._batch(target, size)
        batch.rows.append(row)
        self._count(batch, size)
        return batch

    def _batch(self, target: TopicPartition, size_bytes: int) -> _Batch:
        """Return the batch that is to take records of ``size_bytes``."""
        lane = self._lanes.get(target)
        if lane is None:
            lane = self._lanes[target] = _Lane()
        waiting = lane.waiting
        if not waiting or waiting[-1].size_bytes + size_bytes > self._settings.batch_size_bytes:
            now = asyncio.get_running_loop().time()
            waiting.append(_Batch(due=now + self._settings.linger_ms / 1000))
            self._unfinished_count += 1
            self._is_done.clear()
            self._wake.set()
        return waiting[-1]

    def _count(self, batch: _Batch, size_bytes: int) -> None:
        batch.size_bytes += size_bytes
        self._buffered_bytes += size_bytes
        if batch.size_bytes >= self._settings.batch_size_bytes:
            self._wake.set()
        if self._buffered_bytes >= self._settings.buffer_bytes:
            self._has_room.clear()

    async def _send_due(self) -> None:
        """Start deliveries as batches become due; the one task that does."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            if not (self._needs_identity and self._deliveries):
                if self._needs_identity and self._unfinished_count:
                    await self._take_identity()
                self._start_deliveries(loop.time())
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_due()):
                    await self._wake.wait()

    def _next_due(self) -> float | None:
        dues = [
            lane.waiting[0].due
            for lane in self._lanes.values()
            if lane.waiting and not lane.is_busy
        ]
        return min(dues, default=None)

    def _start_deliveries(self, now: float) -> None:
        by_leader: dict[int, dict[TopicPartition, _Batch]] = {}
        sizes: dict[int, int] = {}
        for target, lane in self._lanes.items():
            if lane.is_busy or not self._is_due(lane, now):
                continue
            batch = lane.waiting.popleft()
            lane.is_busy = True
            self._sticky.pop(target.topic, None)
            topic = self._cluster.view.topics.get(target.topic)
            leader = topic.partitions[target.partition].leader if topic else -1
            sizes[leader] = sizes.get(leader, 0) + batch.size_bytes
            if sizes[leader] > REQUEST_BYTES and by_leader.get(leader):
                self._start(by_leader.pop(leader))
                sizes[leader] = batch.size_bytes
            by_leader.setdefault(leader, {})[target] = batch
        for batches in by_leader.values():
            self._start(batches)

    def _is_due(self, lane: _Lane, now: float) -> bool:
        if not lane.waiting:
            return False
        first = lane.waiting[0]
        is_full = len(lane.waiting) > 1 or first.size_bytes >= self._settings.batch_size_bytes
        return is_full or self._is_flushing or first.due <= now

    def _start(self, batches: dict[TopicPartition, _Batch]) -> None:
        delivery = asyncio.create_task(self._deliver(batches), name="ottla delivery")
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._delivered)

    def _delivered(self, delivery: "asyncio.Task[None]") -> None:
        self._deliveries.discard(delivery)
        self._wake.set()

    async def _deliver(self, batches: dict[TopicPartition, _Batch]) -> None:
        """Send these batches until each is written or must fail; order within a lane is kept."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(
            self._cluster.settings, loop.time(), timeout_ms=self._settings.delivery_timeout_ms
        )
        backoff.connected()
        encoded = {target: self._encode(target, batch) for target, batch in batches.items()}
        of = object()
        while encoded:
            errors = await self._try(encoded, batches)
            longest = 0.0
            for target, error in errors.items():
                pause = backoff.pause_seconds(error, loop.time())
                if pause is None:
                    del encoded[target]
                    self._fail(target, batches[target], error)
                else:
                    longest = max(longest, pause)
            if not errors:
                self._cluster.trouble.answered(of)
            if encoded:
                self._cluster.trouble.retrying(next(iter(errors.values())), of)
                self._cluster.forget_leaders()
                await asyncio.sleep(longest)
        self._cluster.trouble.gave_up(of)

    async def _try(
        self, encoded: dict[TopicPartition, bytearray], batches: dict[TopicPartition, _Batch]
    ) -> dict[TopicPartition, KafkaError | ConnectionFailed]:
        """Send each batch once; take those written out of ``encoded`` and return the others."""
        try:
            view = await self._cluster.look(encoded)
        except (KafkaError, ConnectionFailed) as error:
            return dict.fromkeys(encoded, error)
        unled = view.unled(encoded)  # That is no matter of the others.
        errors: dict[TopicPartition, KafkaError | ConnectionFailed] = {**unled}
        by_leader = view.by_leader([each for each in encoded if each not in unled])
        for leader, targets in by_leader.items():
            try:
                appended = await self._produce(leader, {each: encoded[each] for each in targets})
            except (KafkaError, ConnectionFailed) as error:
                errors.update(dict.fromkeys(targets, error))
                continue
            for target in targets:
                result = appended[target]
                if result.error in WRITTEN:
                    del encoded[target]
                    self._succeed(target, batches[target], result)
                else:
                    errors[target] = failure(target, result)
        return errors

    async def _produce(
        self, leader: int, encoded: dict[TopicPartition, bytearray]
    ) -> dict[TopicPartition, Appended]:
        cluster, acks = self._cluster, self._settings.acks
        view = cluster.view
        connection = await cluster.connection(leader, "produce")
        highest = produce_version_limit(view, encoded)
        request = produce_request(view, encoded, acks, cluster.settings.request_timeout_ms)
        if acks == 0:
            await connection.drain()
            connection.send_only(request, highest=highest)
            return dict.fromkeys(encoded, Appended(ErrorCode.NONE, -1, -1, ""))
        return read_produce(view, await connection.call(request, ProduceResponse, highest=highest))

    async def _take_identity(self) -> None:
        """Get a fresh producer id; sequences begin anew. On failure everything buffered fails."""
        try:
            self._identity = await fresh_identity(self._cluster)
        except (KafkaError, ConnectionFailed) as error:
            for target, lane in self._lanes.items():
                while lane.waiting:
                    self._fail(target, lane.waiting.popleft(), error)
            return
        self._needs_identity = False
        for lane in self._lanes.values():
            lane.next_sequence = 0

    def _encode(self, target: TopicPartition, batch: _Batch) -> bytearray:
        lane = self._lanes[target]
        sequence = lane.next_sequence if self._is_idempotent else NO_SEQUENCE
        lane.next_sequence = sequence_after(lane.next_sequence, len(batch.rows))
        return build_batch_of_rows(
            batch.rows,
            codec=self._settings.codec,
            level=self._settings.level,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=sequence,
        )

    def _succeed(self, target: TopicPartition, batch: _Batch, result: Appended) -> None:
        for index, promise in batch.promises:
            if not promise.done():
                offset = result.base_offset + index if result.base_offset >= 0 else -1
                timestamp = result.log_append_time
                if timestamp < 0:
                    timestamp = batch.rows[index][0]
                promise.set_result(Delivery(target, offset, timestamp))
        self._finish(target, batch, Outcome(target, len(batch.rows), result.base_offset, None))

    def _fail(
        self, target: TopicPartition, batch: _Batch, error: KafkaError | ConnectionFailed
    ) -> None:
        failed = [batch]
        if self._settings.stops_at_failure:
            self._stopped.setdefault(target, error)
            failed += self._lanes[target].waiting
            self._lanes[target].waiting.clear()
        # The broker may or may not have it: the next sequence number would be a guess.
        self._needs_identity = self._is_idempotent
        for each in failed:
            for _, promise in each.promises:
                if not promise.done():
                    promise.set_exception(error)
                    promise.exception()  # whoever does not await it has chosen not to know
            self._finish(target, each, Outcome(target, len(each.rows), -1, error))

    def _finish(self, target: TopicPartition, batch: _Batch, outcome: Outcome) -> None:
        if self._told is not None:
            self._told(outcome)
        self._lanes[target].is_busy = False
        self._buffered_bytes -= batch.size_bytes
        if self._buffered_bytes < self._settings.buffer_bytes:
            self._has_room.set()
        self._unfinished_count -= 1
        if not self._unfinished_count:
            self._is_done.set()
        self._wake.set()


def _size_bytes(row: PlainRow) -> int:
    _, key, value, headers = row
    size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, data in headers:
        size += HEADER_OVERHEAD_BYTES + len(name) + len(data or b"")
    return size
