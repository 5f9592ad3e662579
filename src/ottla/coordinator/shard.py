"""One partition of a coordinator's topic, led by this node: loaded, served, appended to, let go.

    LOADING --all replayed--> ACTIVE --an append failed--> FAILED
    LOADING --cannot be read--> FAILED
    any state --the leadership went, or the node stops--> CLOSED

Append first, change memory after: a record reaches the state machine's ``replay`` when the high
watermark has passed it, in the order of the log, by the same way it takes at a load. So whoever
reads the memory sees durable things only, and what is seen survives. Operations run in the order
they came. One that must see everything before it, and nothing beside it, runs ``alone``: appends
before it are durable by then, and those behind it wait until its own are.

However much is loaded, replayed, waits or is due at once: the loop's other work has turns between.

A fault of ours in an operation costs that operation: it is logged and answered, and the shard goes
on. One while memory follows the log costs the memory: it is made anew from the log.

Owns that order. Knows a partition and a state machine, nothing of groups. Source: Kafka's
CoordinatorRuntime in its effect.
"""

from __future__ import annotations  # else those of inner functions are made at each call

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla.coordinator.errors import append_error
from ottla.coordinator.records import (
    CoordinatorRecord,
    EndMarker,
    ProducerIdAndEpoch,
    Slice,
    StoredRecord,
    decode_slice,
)
from ottla.coordinator.timers import Timers
from ottla.env.clock import Clock
from ottla.env.executor import Executor
from ottla.errors import ErrorCode, InvariantBroken, KafkaError
from ottla.ids import TopicPartition
from ottla.log.append import Analysis, built
from ottla.log.results import AppendResult
from ottla.pending import Pending
from ottla.protocol.messages.produce import ACKS_ALL
from ottla.records.batch import (
    HEADER_SIZE_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    read_header,
)
from ottla.records.builder import KeyAndValue, build_batch, build_plain_batch
from ottla.records.compression import Codec
from ottla.records.record import Record
from ottla.replication.append import AppendOutcome
from ottla.replication.partition import Partition
from ottla.replication.replica_manager import ReplicaManager
from ottla.turns import Portions, Turns

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Machine = TypeVar("Machine", bound="StateMachine")
LOAD_BYTES = 256 * 1024
"""How much of the log is decoded in one go; it is replayed in slices."""
RECORDS_PER_STEP = 32
"""Replayed before it is looked whether the others are to have a turn: some 0.2 ms."""
NO_TIMEOUT_MS = 1 << 40
"""An append is durable one day or fails: what is in memory must follow the log, however late."""
RECORD_OVERHEAD_BYTES = 32
"""More than what a record takes besides its key and value."""


class ShardState(Enum):
    """What a shard can do for requests."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class StateMachine(Protocol):
    """What is kept in memory of one partition. Called on the loop only."""

    def replay(self, stored: StoredRecord) -> None:
        """Take a durable record. Raises KafkaError or MalformedMessage if it makes no sense."""

    def end_transaction(self, marker: EndMarker) -> None:
        """Take or drop what a producer's transaction wrote."""

    def loaded(self) -> Iterator[None] | None:
        """Begin to serve: all there is has been replayed. Operations wait until the last step."""

    def unloaded(self, error: KafkaError) -> None:
        """Answer whoever waits with ``error``, and forget everything."""


class Context(NamedTuple):
    """What all shards of a coordinator share."""

    replica_manager: ReplicaManager
    executor: Executor
    clock: Clock
    codec: Codec = Codec.NONE
    """What their batches are compressed with."""
    turns: Turns | None = None
    """The line of the loop; None: nobody else stands in it."""


class _Operation(NamedTuple):
    run: Callable[[], None]
    refuse: Callable[[KafkaError], None]
    is_alone: bool


class Shard(Generic[Machine]):
    """See the module. ``machine`` may be looked at while the shard is ACTIVE."""

    def __init__(
        self,
        context: Context,
        partition: Partition,
        make_machine: Callable[[Shard[Machine]], Machine],
    ) -> None:
        self.where: TopicPartition = partition.topic_partition
        self.leader_epoch = partition.leader_epoch
        self.state = ShardState.LOADING
        self.turns = turns = Turns(context.clock) if context.turns is None else context.turns
        self.timers = Timers(context.clock, turns)
        """Use: timers of the state machine, gone with the shard."""
        self.clock = context.clock
        self._replica_manager = context.replica_manager
        self._executor = context.executor
        self._codec = context.codec
        self.partition = partition
        """Use: the log. Another object once the replica manager had to open it anew."""
        self._in_flight = 0
        """Use: appends that are not durable and replayed yet, and decisions under way."""
        self._ended: deque[Iterator[None]] = deque()
        """Use: what is left to do of appends that are over, in the order of the log."""
        self._following = Portions(turns, self._follow, f"appends to {self.where}")
        self._long: deque[Iterator[object]] = deque()
        self._going_on = Portions(turns, self._go_on, f"long work of {self.where}")
        self._is_alone = False
        """Use: the appends in flight are those of an operation that runs alone."""
        self._queue: deque[_Operation] = deque()
        self._serving = Portions(turns, self._run_first, f"operations on {self.where}")
        self.needs_reload = False
        """Use: FAILED by a fault of ours behind an append, not by its log: the log can be read."""
        self.machine = make_machine(self)

    # The way in.

    def check_active(self) -> None:
        """Raise KafkaError unless requests can be served."""
        error = self._refusal()
        if error is not None:
            raise error

    def _refusal(self) -> KafkaError | None:
        if self.state is ShardState.ACTIVE:
            return None
        if self.state is ShardState.LOADING:
            return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.where} is loading")
        if self.state is ShardState.FAILED:
            return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.where} has failed")
        return KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.where} is not led here")

    def execute(
        self,
        run: Callable[[], None],
        refuse: Callable[[KafkaError], None],
        *,
        alone: bool = False,
    ) -> None:
        """Run an operation in its turn, now if nothing is in its way. Or ``refuse`` it."""
        error = self._refusal()
        if error is not None:
            refuse(error)
        elif self._queue or self._is_alone or (alone and self._in_flight):
            self._queue.append(_Operation(run, refuse, alone))
        else:
            self._run(run, refuse, alone=alone)

    def answer(
        self, run: Callable[[Pending[Answer | KafkaError]], None], *, alone: bool = False
    ) -> Pending[Answer | KafkaError]:
        """Execute an operation that resolves the Pending it is given; so does a refusal."""
        pending: Pending[Answer | KafkaError] = Pending()
        self.execute(lambda: run(pending), pending.resolve, alone=alone)
        return pending

    def look(
        self, run: Callable[[Pending[Answer | KafkaError]], None]
    ) -> Pending[Answer | KafkaError]:
        """Run an operation that only reads, at once: what memory holds is durable at any time."""
        pending: Pending[Answer | KafkaError] = Pending()
        error = self._refusal()
        if error is None:
            try:
                run(pending)
            except KafkaError as refusal:
                error = refusal.as_value()
        if error is not None:
            pending.resolve(error)
        return pending

    def _run(
        self, run: Callable[[], None], refuse: Callable[[KafkaError], None], *, alone: bool
    ) -> None:
        self._is_alone = alone
        self.attempt(run, refuse)
        if not self._in_flight:
            self._is_alone = False

    def attempt(self, run: Callable[[], None], refuse: Callable[[KafkaError], None]) -> None:
        """Run what belongs to an operation; what it raises is answered."""
        try:
            run()
        except KafkaError as error:
            refuse(error.as_value())
        except Exception:
            logger.exception("%s: an operation failed unexpectedly", self.where)
            self._refuse_faulty(refuse)

    def _refuse_faulty(self, refuse: Callable[[KafkaError], None]) -> None:
        """Answer an operation that went wrong; it may have answered, or waits to be, already."""
        try:
            refuse(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "see the broker's log"))
        except InvariantBroken:
            logger.debug("%s: it was answered before it failed", self.where)

    def _run_first(self) -> bool:
        """Run the first operation of the queue; False when there is none that can run now."""
        if not self._queue or self._is_alone or (self._queue[0].is_alone and self._in_flight):
            return False
        operation = self._queue.popleft()
        self._run(operation.run, operation.refuse, alone=operation.is_alone)
        return True

    def in_steps(self, steps: Iterator[object]) -> None:
        """Do what is left of an operation in steps; it ends with the last one.

        So what runs alone waits for it, and those behind it if it runs alone itself. Also when the
        shard is let go meanwhile: who needs its memory looks at ``state``.
        """
        self.hold()
        self._long.append(steps)
        self._going_on.go_on()

    def _go_on(self) -> bool:
        try:
            next(self._long[0])
        except StopIteration:
            self._long.popleft()
            self.release()
        except Exception:  # A fault of ours ends the steps.
            logger.exception("%s: an operation failed unexpectedly", self.where)
            self._long.popleft()
            self.release()
        return bool(self._long)

    def hold(self) -> None:
        """Let operations that run alone wait until ``release``: something is being decided."""
        self._in_flight += 1

    def release(self) -> None:
        """Let them run, when everything else that they wait for is over."""
        self._in_flight -= 1
        if not self._in_flight:
            self._is_alone = False
        if self._queue:
            self._serving.go_on()

    # Appends.

    def append(
        self,
        records: Sequence[KeyAndValue],
        done: Callable[[KafkaError | None], None],
        *,
        replayed: bool = True,
        apply: Callable[[int], Iterator[None] | None] | None = None,
        producer: ProducerIdAndEpoch | None = None,
    ) -> None:
        """Append one batch; ``done`` once it is durable and replayed, or with why it is not.

        ``replayed`` False: the state machine has the change already, or makes it in ``done``.
        ``apply``: called with the base offset, does to the state machine what a replay of the
        records would do, at once or in steps. ``producer``: whose transaction the records belong
        to. ``done`` may be called before this returns.
        """
        try:
            analysis = self._batch(records, producer)
        except KafkaError as error:
            done(error)
            return

        def replay(base_offset: int) -> Iterator[None] | None:
            producer_id = -1 if producer is None else producer.producer_id
            return self._replay(records, base_offset, producer_id) if replayed else None

        self._append(analysis, apply or replay, done)

    def append_marker(
        self,
        batch: bytearray,
        marker: EndMarker,
        done: Callable[[KafkaError | None], None],
        *,
        transaction_version: int,
    ) -> None:
        """End a producer's transaction in this partition by a marker, made already; as above."""
        header = read_header(batch)
        self._append(
            built(batch, header, transaction_version=transaction_version),
            lambda _: self.machine.end_transaction(marker),
            done,
        )

    def _append(
        self,
        analysis: Analysis,
        apply: Callable[[int], Iterator[None] | None],
        done: Callable[[KafkaError | None], None],
    ) -> None:
        """Append a batch; when it is durable, ``apply`` it with its base offset."""
        self._in_flight += 1
        outcome = self._replica_manager.appends.one(
            self.where, analysis, acks=ACKS_ALL, timeout_ms=NO_TIMEOUT_MS
        )

        def finish(outcome: AppendOutcome) -> None:
            self._ended.append(self._finish(outcome, apply, done))
            self._following.go_on()

        if isinstance(outcome, Pending):
            outcome.on_done(lambda pending: finish(_first(pending)))
        else:
            finish(outcome)

    def _follow(self) -> bool:
        """Do a step for the first of the appends that are over."""
        try:
            next(self._ended[0])
        except StopIteration:
            self._ended.popleft()
        return bool(self._ended)

    def _finish(
        self,
        outcome: AppendOutcome,
        apply: Callable[[int], Iterator[None] | None],
        done: Callable[[KafkaError | None], None],
    ) -> Iterator[None]:
        """Let memory follow an append, and tell whoever waits for it; in steps."""
        error: KafkaError | None = None
        try:
            if not isinstance(outcome, AppendResult):
                error = append_error(outcome.code, outcome.why)
            elif self.state is ShardState.ACTIVE:
                for _ in apply(outcome.base_offset) or ():
                    yield
                    if self.state is not ShardState.ACTIVE:
                        break  # There is no memory any more.
            done(error)
        except Exception:
            # Some of what is durable is in memory by now, and some is not.
            logger.exception("%s: memory could not follow the log", self.where)
            self.needs_reload = True
            self._fail("memory could not follow the log; it is read again")
            _tell_faulty(done)
        if error is not None and self.partition.is_failed:
            self._fail(f"its log has failed: {error}")  # A full disk is no such thing.
        self.release()

    def append_each(
        self, records: Sequence[CoordinatorRecord], done: Callable[[KafkaError | None], None]
    ) -> None:
        """Append in as many batches as it takes; for what need not be one.

        ``done`` with the first error, once all of them are over.
        """
        errors: list[KafkaError] = []
        left = 1  # It is not over before all are under way.

        def one_done(error: KafkaError | None) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                errors.append(error)
            if not left:
                done(errors[0] if errors else None)

        def steps() -> Iterator[None]:
            nonlocal left
            for chunk in self._chunks(records):
                if chunk:
                    left += 1
                    self.append(chunk, one_done)
                yield
            one_done(None)

        self.in_steps(steps())

    def _chunks(
        self, records: Sequence[CoordinatorRecord]
    ) -> Iterator[Sequence[CoordinatorRecord]]:
        """Yield what fits a batch, and nothing now and then."""
        limit = self.partition.log.config.max_message_bytes - HEADER_SIZE_BYTES
        begin, size_bytes = 0, 0
        for ordinal, record in enumerate(records):
            needed = RECORD_OVERHEAD_BYTES + len(record.key) + len(record.value or b"")
            if size_bytes + needed > limit and ordinal > begin:
                yield records[begin:ordinal]
                begin, size_bytes = ordinal, 0
            elif not ordinal % RECORDS_PER_STEP:
                yield ()
            size_bytes += needed
        if begin < len(records):
            yield records[begin:]

    def _batch(
        self, records: Sequence[KeyAndValue], producer: ProducerIdAndEpoch | None
    ) -> Analysis:
        now_ms = self.clock.wall_ms()
        producer_id, epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        if self._codec is Codec.NONE:
            batch, header = build_plain_batch(
                records, now_ms, producer_id=producer_id, producer_epoch=epoch
            )
        else:
            batch = build_batch(
                [Record(timestamp=now_ms, key=key, value=value) for key, value in records],
                codec=self._codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                transactional=producer is not None,
            )
            header = read_header(batch)
        self._check_size(len(batch))
        return built(batch, header)

    def check_room(self, records: int, bytes_min: int) -> None:
        """Raise what ``append`` says of a batch that is too large, before it is made.

        Of so many records of so many bytes at least; whether it fits cannot be told if they are
        compressed.
        """
        if self._codec is Codec.NONE:
            self._check_size(records * bytes_min)

    def _check_size(self, size_bytes: int) -> None:
        limit = self.partition.log.config.max_message_bytes
        if size_bytes > limit:
            # What Kafka says to a group whose members' metadata is too large altogether.
            why = f"{size_bytes} bytes or more for {self.where}; max.message.bytes is {limit}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, why)

    def _replay(
        self, records: Sequence[KeyAndValue], base_offset: int, producer_id: int
    ) -> Iterator[None]:
        for offset, (key, value) in enumerate(records, base_offset):
            self.machine.replay(StoredRecord(offset, producer_id, key, value))
            if not offset % RECORDS_PER_STEP:
                yield

    # Loading.

    def load(self) -> None:
        """Begin to replay the log up to its present end; ACTIVE or FAILED once that is over.

        Bytes are read and decoded in the executor, and replayed in slices.
        """
        log = self.partition.log
        self._load_from(log.log_start_offset, log.log_end_offset)

    def _load_from(self, offset: int, end_offset: int) -> None:
        if self.state is not ShardState.LOADING:
            return
        if offset >= end_offset:
            self._loaded()
            return
        try:
            region = self.partition.log.read(
                offset, max_bytes=LOAD_BYTES, upper_offset=end_offset, min_one_message=True
            ).region
        except KafkaError as error:
            self._fail(f"offset {offset} cannot be read: {error}")
            return
        if region is None:
            self._loaded()
            return

        def done(piece: Slice | None, error: BaseException | None) -> None:
            if piece is None:
                if not isinstance(error, KafkaError | OSError):
                    logger.error("%s: the load failed unexpectedly", self.where, exc_info=error)
                self._fail(f"the batches from offset {offset} on cannot be read: {error!r}")
            else:
                self._ended.append(self._take(piece, offset, end_offset))
                self._following.go_on()

        self._executor.submit(lambda: decode_slice(region.read()), done)

    def _take(self, piece: Slice, offset: int, end_offset: int) -> Iterator[None]:
        if self.state is not ShardState.LOADING:
            return
        if piece.next_offset <= offset:
            self._fail(f"there is no whole batch at offset {offset}")
            return
        at = offset
        try:
            for ordinal, entry in enumerate(piece.entries, 1):
                if not ordinal % RECORDS_PER_STEP:
                    yield
                    if self.state is not ShardState.LOADING:
                        return
                if isinstance(entry, EndMarker):
                    self.machine.end_transaction(entry)
                elif entry.offset >= offset:  # A batch may begin below what the log still counts.
                    at = entry.offset
                    self.machine.replay(entry)
        except KafkaError as error:
            self._fail(f"the record at offset {at} makes no sense: {error}")
            return
        except Exception:
            logger.exception("%s: offset %d cannot be replayed", self.where, at)
            self._fail(f"the record at offset {at} cannot be replayed")
            return
        self._load_from(piece.next_offset, end_offset)

    def _loaded(self) -> None:
        self.state = ShardState.ACTIVE
        self.hold()
        self._is_alone = True
        self._ended.append(self._begin_to_serve())
        self._following.go_on()

    def _begin_to_serve(self) -> Iterator[None]:
        try:
            for _ in self.machine.loaded() or ():
                yield
                if self.state is not ShardState.ACTIVE:
                    break
        except Exception:
            logger.exception("%s: it could not begin to serve", self.where)
            self._fail("it could not begin to serve")
        self.release()

    # The end.

    def _fail(self, why: str) -> None:
        """Serve no more: what memory says and what the log holds may differ."""
        if self.state in (ShardState.FAILED, ShardState.CLOSED):
            return
        logger.error("the coordinator of %s is out of service: %s", self.where, why)
        self._end(ShardState.FAILED, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why))

    def close(self) -> None:
        """Let go: another node leads, the topic is gone, or this node stops."""
        if self.state is not ShardState.CLOSED:
            why = f"{self.where} is not led here"
            self._end(ShardState.CLOSED, KafkaError(ErrorCode.NOT_COORDINATOR, why))

    def _end(self, state: ShardState, error: KafkaError) -> None:
        self.state = state
        self.timers.close()
        try:
            self.machine.unloaded(error)
        except Exception:
            logger.exception("%s: those who wait could not be told all", self.where)
        queued, self._queue = self._queue, deque()
        self._ended.append(self._send_away(queued, error))
        self._following.go_on()

    def _send_away(self, queued: deque[_Operation], error: KafkaError) -> Iterator[None]:
        for operation in queued:
            try:
                operation.refuse(error)
            except Exception:
                logger.exception("%s: an operation could not be refused", self.where)
            yield


def _tell_faulty(done: Callable[[KafkaError | None], None]) -> None:
    """Tell whoever waits for an append that memory did not follow, if it was not told already."""
    try:
        done(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "see the broker's log"))
    except Exception:
        logger.debug("it was told before, or cannot be", exc_info=True)


def _first(pending: Pending[list[AppendOutcome]]) -> AppendOutcome:
    assert pending.value is not None, "an append resolves, it does not fail"
    return pending.value[0]
