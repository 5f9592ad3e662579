"""Sends the batches that ``gathering`` has, numbered and retried. On asyncio.

Owns the producer's identity and its tasks. One batch of a partition is in flight at a time; those
of several partitions of a leader share a request. Source: KIP-98, KIP-360, KIP-447, KIP-890.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.producer_ids import fresh_identity
from ottla.client.library.failures import (
    BadArgument,
    ClientClosed,
    ClientError,
    Fenced,
    TimedOut,
    as_failure,
    as_write_failure,
)
from ottla.client.library.gathering import (
    Batch,
    Gatherer,
    Lane,
    ProducerSettings,
    may_be_divided,
)
from ottla.client.library.targets import Targets
from ottla.client.library.transacting import TransactionCalls
from ottla.client.wire.backoff import Backoff
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.lanes import (
    EPOCH_MAX,
    WRITTEN,
    failure,
    sequence_after,
)
from ottla.client.wire.sending import (
    NO_IDENTITY,
    Appended,
    produce_request,
    produce_version_limit,
    read_produce,
)
from ottla.client.wire.transacting import PRODUCE_ADDS_SINCE
from ottla.client.wire.view import ClusterView
from ottla.env.clock import Clock, SystemClock
from ottla.env.rng import SystemRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.records.batch import NO_SEQUENCE
from ottla.records.builder import build_batch_of_rows

REQUEST_BYTES = 8 << 20
"""Batches beyond this go with another request."""
UNSEEN_MAX = 1_000
"""Failures that may wait for a flush to tell of the first that no ``result`` has told."""
_FORGOTTEN = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
"""The leader has lost what it knew of the producer: nothing else of it is in flight there."""


class BatchSender:
    """``start`` it on a loop; ``wake`` it when a batch is due. ``close`` ends its tasks."""

    def __init__(
        self, cluster: Cluster, settings: ProducerSettings, *, clock: Clock | None = None
    ) -> None:
        self.settings = settings
        self.gatherer = Gatherer(settings, SystemRng())
        self.clock = clock or SystemClock()
        self.targets = Targets(cluster, self.gatherer, self.clock)
        self.is_closed = False
        self.is_in_transaction = False
        self.transaction_serial = 0
        """Use: counts the transactions; a record that waited is not for the next one."""
        self._cluster = cluster
        self._identity = NO_IDENTITY
        self._is_idempotent = self._needs_identity = settings.is_idempotent and settings.acks == -1
        self._calls = TransactionCalls(cluster, settings)
        self._fatal: ClientError | None = None
        """Use: after this nothing can be sent any more."""
        self._spoiled: ClientError | None = None
        """Use: why the open transaction can only be aborted."""
        self._wrote_in_transaction = False
        self._is_second = False
        """Use: whether the open transaction is of the second version (KIP-890)."""
        self._unseen: list[Batch] = []
        """Use: batches that failed since the last flush, the first first; UNSEEN_MAX at most."""
        self._flushing_count = 0
        self._wake = asyncio.Event()
        self._progress: asyncio.Event = asyncio.Event()
        """Use: set, and replaced, whenever a batch is done."""
        self._task: asyncio.Task[None] | None = None
        self._deliveries: set[asyncio.Task[None]] = set()

    # -- for callers -------------------------------------------------------------------------------

    def check(self, serial: int | None = None) -> None:
        """Raise what makes sending impossible: in the transaction of ``serial`` (None: any)."""
        if self.is_closed:
            raise ClientClosed("send", "the producer is closed")
        if self._fatal is not None:
            raise self._fatal
        if self.settings.transactional_id is not None and not self.is_in_transaction:
            why = "a producer with a transactional id sends within a transaction only"
            raise BadArgument("send", why, fix="use: with producer.transaction(): ...")
        if serial is not None and serial != self.transaction_serial:
            raise ClientClosed("send", "the transaction has ended meanwhile")

    def wake(self) -> None:
        """Have a look at what is due. On the loop's thread."""
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._task = loop.create_task(self._run(), name="ottla sender")
        elif self._task.get_loop() is not loop:
            raise ClientClosed("send", "the producer belongs to another event loop")
        self._wake.set()

    async def wait_for_room(self) -> None:
        """Return when the buffer has room."""
        while self.gatherer.is_full:
            self.wake()
            await self._wait_for_progress()
            self.check()

    async def wait_for(self, batch: Batch, *, at_once: bool = False) -> None:
        """Return when ``batch`` is written or has failed. ``at_once``: do not let it fill."""
        if at_once:
            batch.due = 0.0
            self.wake()
        if not (batch.is_done or batch.parts):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            batch.waiters.append(waiter)
            if not batch.is_done:  # by another thread's doing, meanwhile
                await waiter
        for _, part in batch.parts:
            await self.wait_for(part)

    async def flush(self) -> None:
        """Send everything; raise the first failure that nobody has heard of."""
        self._flushing_count += 1
        try:
            self.wake()
            while self.gatherer.unfinished_count:
                await self._wait_for_progress()
        finally:
            self._flushing_count -= 1
        failed, self._unseen = self._unseen, []
        for batch in failed:
            if batch.error is not None and not batch.is_seen:
                batch.is_seen = True
                raise batch.error

    def abandon(self) -> list["asyncio.Task[None]"]:
        """Let the tasks end, and return them."""
        self.is_closed = True
        self.gatherer.close()
        tasks = [*self._deliveries, *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        return tasks

    async def close(self) -> None:
        """End the tasks; what is not sent fails. Harmless when closed."""
        await asyncio.gather(*self.abandon(), return_exceptions=True)
        for batch in self.gatherer.take_waiting():
            self._finish(batch, ClientClosed("send", "the producer was closed before it was sent"))

    # -- the sender's task -------------------------------------------------------------------------

    async def _run(self) -> None:
        """Start deliveries as batches become due."""
        while True:
            self._wake.clear()
            self._fail_expired()
            if self._fatal is not None:
                self._fail_all(self._fatal)
            elif not (self._needs_identity and self._deliveries):
                if self._needs_identity and self.gatherer.unfinished_count:
                    await self._take_identity()
                now = self.clock.monotonic()
                self._start(self.gatherer.take_due(now, everything=self._flushing_count > 0))
            due = self._next_look()
            pause = None if due is None else max(due - self.clock.monotonic(), 0.001)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    def _next_look(self) -> float | None:
        """Return when a batch is due, or its time is up; None: none waits."""
        due, deadline = self.gatherer.next_due(), self.gatherer.next_deadline()
        return deadline if due is None else min(due, deadline or due)

    def _fail_expired(self) -> None:
        """Fail what has waited too long behind other batches, so that each ends in its time."""
        for batch in self.gatherer.take_expired(self.clock.monotonic()):
            error = _out_of_time(batch, self.settings, self._cluster)
            self._spoil(error)
            self._finish(batch, error)

    async def _take_identity(self) -> None:
        """Get a fresh producer id; numbers begin anew. If there is none, what waits fails."""
        if self.settings.transactional_id is not None:
            self._fail_all(self._spoiled or ClientClosed("send", "the transaction has failed"))
            return
        deadline = self.gatherer.next_deadline()
        limit = asyncio.timeout(deadline and max(deadline - self.clock.monotonic(), 0.001))
        try:
            async with limit:
                self._identity = await fresh_identity(self._cluster)
        except TimeoutError:
            if not limit.expired():
                raise
            return  # What waited so long fails now; the others may still get one.
        except (KafkaError, ConnectionFailed) as error:
            self._fail_all(as_failure("get a producer id", error))
            return
        self._number_anew()

    def _number_anew(self) -> None:
        self._needs_identity = False
        for lane in self.gatherer.lanes():
            lane.next_sequence, lane.epoch = 0, -1
            lane.is_in_transaction = False

    def _start(self, batches: list[Batch]) -> None:
        by_leader: dict[int, list[Batch]] = {}
        sizes: dict[int, int] = {}
        for batch in batches:
            where = batch.lane.partition
            topic = self._cluster.view.topics.get(where.topic)
            known = topic.partitions.get(where.partition) if topic else None
            leader = known.leader if known else -1
            sizes[leader] = sizes.get(leader, 0) + batch.size_bytes
            if sizes[leader] > REQUEST_BYTES and leader in by_leader:
                self._deliver_soon(by_leader.pop(leader))
                sizes[leader] = batch.size_bytes
            by_leader.setdefault(leader, []).append(batch)
        for each in by_leader.values():
            self._deliver_soon(each)

    def _deliver_soon(self, batches: list[Batch]) -> None:
        delivery = asyncio.get_running_loop().create_task(self._deliver(batches))
        self._deliveries.add(delivery)
        delivery.add_done_callback(partial(self._delivered, batches))

    def _delivered(self, batches: list[Batch], delivery: "asyncio.Task[None]") -> None:
        self._deliveries.discard(delivery)
        why = "the producer was closed" if self.is_closed else "the transaction was given up"
        for batch in batches:
            if not (batch.is_done or batch.parts):  # Cancelled, perhaps before it began.
                self._finish(batch, ClientClosed("send", why))
        self._wake.set()

    async def _deliver(self, batches: list[Batch]) -> None:
        """Send these batches until each is written or must fail."""
        left = {batch.lane.partition: batch for batch in batches}
        now = self.clock.monotonic()
        backoff = Backoff(self._cluster.settings, now, self.settings.delivery_timeout_ms)
        backoff.connected()
        encoded: dict[TopicPartition, bytearray] = {}
        while left:
            for each, batch in left.items():
                if each not in encoded:
                    encoded[each] = self._encode(batch)
            errors = await self._try_in_time(left, encoded)
            pause = 0.0
            for each, error in errors.items():
                if may_be_divided(left[each], error):
                    self.gatherer.divide(left[each])
                    self._tell(left.pop(each))
                    continue
                if not isinstance(error, TimedOut):
                    left[each].lane.trouble = error
                again = self._again(left[each], error, backoff)
                if again is None:
                    self._fail(left.pop(each), error)
                else:
                    pause = max(pause, again)
                    if isinstance(error, KafkaError) and error.code in _FORGOTTEN:
                        del encoded[each]  # It gets another number.
            if left:
                self._cluster.forget_leaders()
                await asyncio.sleep(pause)

    def _again(
        self, batch: Batch, error: KafkaError | ConnectionFailed | TimedOut, backoff: Backoff
    ) -> float | None:
        """Return the pause before the next try; None if there is none."""
        lane, now = batch.lane, self.clock.monotonic()
        if isinstance(error, TimedOut) or now >= batch.deadline:
            return None
        is_forgotten = isinstance(error, KafkaError) and error.code in _FORGOTTEN
        if is_forgotten and self._is_idempotent and self.settings.transactional_id is None:
            epoch = self._identity.epoch if lane.epoch < 0 else lane.epoch
            if epoch >= EPOCH_MAX:
                return None
            lane.epoch, lane.next_sequence = epoch + 1, 0
            return backoff.pause_for_any(now)
        return backoff.pause_seconds(error, now)

    async def _try_in_time(
        self, left: dict[TopicPartition, Batch], encoded: dict[TopicPartition, bytearray]
    ) -> Mapping[TopicPartition, KafkaError | ConnectionFailed | TimedOut]:
        """As ``_try``, until the time of the last of them is up."""
        latest = max(batch.deadline for batch in left.values())
        limit = asyncio.timeout(max(latest - self.clock.monotonic(), 0.001))
        try:
            async with limit:
                return await self._try(left, encoded)
        except TimeoutError:
            if not limit.expired():
                raise
            return {
                each: _out_of_time(batch, self.settings, self._cluster)
                for each, batch in left.items()
            }

    async def _try(
        self, left: dict[TopicPartition, Batch], encoded: dict[TopicPartition, bytearray]
    ) -> dict[TopicPartition, KafkaError | ConnectionFailed]:
        """Send each batch once; take those that were written out of ``left``, return the others."""
        try:
            view = await self.targets.view(left)
        except (KafkaError, ConnectionFailed) as error:
            return dict.fromkeys(left, error)
        unled = view.unled(left)
        errors: dict[TopicPartition, KafkaError | ConnectionFailed] = {**unled}
        led = [each for each in left if each not in unled]
        try:
            by_leader = view.by_leader(led)
            await self._join_transaction([left[each].lane for each in led])
        except (KafkaError, ConnectionFailed) as error:
            return {**errors, **dict.fromkeys(led, error)}
        for leader, targets in by_leader.items():
            try:
                asked = {each: encoded[each] for each in targets}
                appended = await self._produce(view, leader, asked)
            except (KafkaError, ConnectionFailed) as error:
                errors.update(dict.fromkeys(targets, error))
                continue
            for each in targets:
                result = appended.get(each)
                if result is None:
                    code = ErrorCode.UNKNOWN_SERVER_ERROR
                    errors[each] = KafkaError(code, f"{each}: the answer is without it")
                elif result.error in WRITTEN:
                    self._succeed(left.pop(each), result)
                else:
                    errors[each] = failure(each, result)
        return errors

    async def _produce(
        self, view: ClusterView, leader: int, encoded: dict[TopicPartition, bytearray]
    ) -> dict[TopicPartition, Appended]:
        cluster, acks = self._cluster, self.settings.acks
        connection = await cluster.connection(leader, "produce")
        highest = produce_version_limit(view, encoded)
        identity = self.settings.transactional_id
        if identity is not None and not self._is_second:
            highest = PRODUCE_ADDS_SINCE - 1
        elif identity is not None:
            newest = connection.exchange.version(ProduceRequest)
            if newest < PRODUCE_ADDS_SINCE:
                why = f"node {leader} cannot add partitions to a transaction as it writes"
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, why)
        timeout_ms = cluster.settings.request_timeout_ms
        request = produce_request(view, encoded, acks, timeout_ms, identity)
        if acks == 0:
            await connection.drain()
            connection.send_only(request, highest=highest)
            return dict.fromkeys(encoded, Appended(ErrorCode.NONE, -1, -1, ""))
        return read_produce(view, await connection.call(request, ProduceResponse, highest=highest))

    async def _join_transaction(self, lanes: list[Lane]) -> None:
        if self.settings.transactional_id is None:
            return
        fresh = [lane for lane in lanes if not lane.is_in_transaction]
        if fresh:
            self._wrote_in_transaction = True
            if not self._is_second:
                await self._calls.add_partitions(self._identity, [each.partition for each in fresh])
        for lane in fresh:
            lane.is_in_transaction = True

    # -- what becomes of batches -------------------------------------------------------------------

    def _encode(self, batch: Batch) -> bytearray:
        lane = batch.lane
        sequence = lane.next_sequence if self._is_idempotent else NO_SEQUENCE
        batch.base_sequence = sequence
        lane.next_sequence = sequence_after(lane.next_sequence, len(batch.rows))
        return build_batch_of_rows(
            batch.rows,
            codec=self.settings.codec,
            level=self.settings.level,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch if lane.epoch < 0 else lane.epoch,
            base_sequence=sequence,
            transactional=self.settings.transactional_id is not None,
        )

    def _succeed(self, batch: Batch, result: Appended) -> None:
        batch.lane.trouble = None
        batch.base_offset = result.base_offset
        batch.append_time = result.log_append_time
        self._finish(batch, None)

    def _fail(self, batch: Batch, error: KafkaError | ConnectionFailed | TimedOut) -> None:
        # In the first version the coordinator tells no more than the leader does.
        is_settled_later = self._is_second or self.settings.transactional_id is None
        what = f"write to {batch.lane.partition}"
        failed = as_write_failure(what, error, is_settled_later=is_settled_later)
        self._cluster.forget_leaders()
        if isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self.gatherer.forget(batch.lane.partition.topic)
        # The broker may or may not have it: the next sequence number would be a guess.
        self._needs_identity = self._is_idempotent
        self._spoil(failed)
        self._finish(batch, failed)
        if not batch.lane.waiting:
            batch.lane.trouble = None  # Not the business of a record that comes later.

    def _spoil(self, error: ClientError) -> None:
        if self.settings.transactional_id is None:
            return
        if isinstance(error, Fenced):
            self._fatal = error
        self._spoiled = self._spoiled or error

    def _fail_all(self, error: ClientError) -> None:
        for batch in self.gatherer.take_waiting():
            self._finish(batch, error)

    def _finish(self, batch: Batch, error: ClientError | None) -> None:
        self.gatherer.finish(batch, error)
        batch.lane.is_busy = False
        if error is not None:
            if len(self._unseen) >= UNSEEN_MAX:
                self._unseen = [each for each in self._unseen if not each.is_seen]
            if len(self._unseen) < UNSEEN_MAX:
                self._unseen.append(batch)
        self._tell(batch)

    def _tell(self, batch: Batch) -> None:
        """Wake whoever waits for a batch, for room, or for what is next."""
        for waiter in batch.waiters:
            if not waiter.done():
                waiter.set_result(None)
        batch.waiters.clear()
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()
        self._wake.set()

    async def _wait_for_progress(self) -> None:
        await self._progress.wait()


def _out_of_time(batch: Batch, settings: ProducerSettings, cluster: Cluster) -> TimedOut:
    """Return the failure of a batch whose time is up, with why the last try failed."""
    why = f"not done within {settings.delivery_timeout_ms} ms"
    cause = batch.lane.trouble or cluster.last_failure
    where = batch.lane.partition
    return TimedOut(f"write to {where}", f"{why}; the last try: {cause}" if cause else why)
