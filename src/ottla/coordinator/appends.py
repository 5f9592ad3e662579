"""Writes a shard's records to its log, gathered into batches; memory follows in the log's order.

    append -> no batch of this shard is under way: one batch, now
           -> else gathered until that batch is durable: then one batch, one write, one sync for all

So many clients share a batch, as in Kafka's coordinators (``append.linger.ms``), and no client
waits longer: records appended during a sync are durable with the next sync either way. A marker is
a batch of its own, and so are the records of a producer's transaction; all batches keep their
order. The records of one ``append`` are never split, so a crash leaves all of them or none.

Nothing is written once there is no memory that would follow: what waited for a partition that was
held, and the rest of long work, may come when a shard of a newer leader epoch has read the log.

Memory follows when the high watermark has passed a batch, append by append, and the ``done`` of
each is called. What the log refuses goes to the ``refuse`` of each append in the batch. Owns what
is gathered and what is under way.
"""

from __future__ import annotations  # else those of inner functions are made at each call

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from ottla.coordinator.errors import append_error
from ottla.coordinator.operations import Operations, Refuse
from ottla.coordinator.records import (
    CoordinatorRecord,
    EndMarker,
    ProducerIdAndEpoch,
    StoredRecord,
)
from ottla.coordinator.step_line import StepLine
from ottla.env.clock import Clock
from ottla.errors import ErrorCode, KafkaError
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
from ottla.replication.append import LEADERSHIP_MOVED, AppendOutcome, AppendRefusal
from ottla.replication.partition import Partition
from ottla.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

RECORDS_PER_STEP = 32
"""Records replayed between two chances for other work to have its turn: some 0.2 ms."""
AT_ONCE = 8
"""Up to so many records are replayed at once: mostly those of one client."""
GATHERED_MAX = 4096
"""The most records in a batch of several appends: it takes some ms to build."""
NO_TIMEOUT_MS = 1 << 40
"""Effectively no timeout: an append becomes durable or fails, and memory must follow the log
however late."""
RECORD_OVERHEAD_BYTES = 32
"""A record takes fewer bytes than this besides its key and value."""

Done = Callable[[], None]
Apply = Callable[[int], Iterator[None] | None]


class Memory(Protocol):
    """The memory that follows the log."""

    @property
    def is_served(self) -> bool:
        """Whether there is memory: not before the load has ended, nor after the shard has."""

    def replay(self, stored: StoredRecord) -> None:
        """Take a durable record."""

    def end_transaction(self, marker: EndMarker) -> Iterator[None] | None:
        """Take or drop what a producer's transaction wrote, at once or in steps."""

    def fail(self, why: str, *, needs_reload: bool = False) -> None:
        """Serve no more. ``needs_reload``: the log is not to blame; it can be read again."""


class _Entry(NamedTuple):
    """One append: its records, and what follows them."""

    records: Sequence[KeyAndValue]
    apply: Apply | None
    """None: nothing follows in memory."""
    done: Done
    refuse: Refuse
    is_bounded: bool = True
    """Whether ``max.message.bytes`` holds for it."""


class ShardAppends:
    """The appends of one shard."""

    def __init__(
        self,
        *,
        partition: Partition,
        replica_manager: ReplicaManager,
        clock: Clock,
        codec: Codec,
        operations: Operations,
        following: StepLine,
        memory: Memory,
    ) -> None:
        """``following``: the line in which all changes of memory stand."""
        self._where = partition.topic_partition
        self._partition = partition
        self._replica_manager = replica_manager
        self._clock = clock
        self._codec = codec
        self._operations = operations
        self._following = following
        self._memory = memory
        self._under_way = 0
        """Use: how many batches are not durable yet."""
        self._gathered: list[_Entry] = []
        """Invariant: empty unless a batch is under way; these are appended when that batch ends."""
        self._gathered_bytes = self._gathered_count = 0
        """Use: at least the bytes that their batch will take, and the number of their records."""

    def append(
        self,
        records: Sequence[KeyAndValue],
        done: Done,
        refuse: Refuse,
        *,
        replayed: bool = True,
        apply: Apply | None = None,
        producer: ProducerIdAndEpoch | None = None,
        is_bounded: bool = True,
    ) -> None:
        """Append records; see ``Shard.append``."""
        if apply is None and replayed:
            producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
            apply = partial(self._replay, records, producer_id)
        entry = _Entry(records, apply, done, refuse, is_bounded)
        if producer is None and self._under_way and self._gather(entry):
            return
        if self._gathered:
            self._append_gathered()
        self._append_batch([entry], producer)

    def append_marker(
        self,
        batch: bytearray,
        marker: EndMarker,
        done: Done,
        refuse: Refuse,
        *,
        transaction_version: int,
    ) -> None:
        """Append a marker, which ends a producer's transaction."""
        if self._gathered:
            self._append_gathered()
        analysis = built(batch, read_header(batch), transaction_version=transaction_version)
        entry = _Entry((), lambda _: self._memory.end_transaction(marker), done, refuse)
        self._operations.hold()
        self._append(analysis, [entry], is_short=False)  # The transaction may be large.

    # Together.

    def _gather(self, entry: _Entry) -> bool:
        """Gather an append with others. Return False if it is too large to share a batch."""
        size_bytes = _size_bytes(entry.records)
        limit = self._limit_bytes()
        if size_bytes > limit:
            return False
        count = len(entry.records)
        if (
            self._gathered_bytes + size_bytes > limit or self._gathered_count + count > GATHERED_MAX
        ) and self._gathered:
            self._append_gathered()
        if not self._gathered:
            self._operations.hold()
        self._gathered.append(entry)
        self._gathered_bytes += size_bytes
        self._gathered_count += count
        return True

    def _append_gathered(self) -> None:
        is_too_large = self._gathered_bytes > self._limit_bytes()
        entries = self._take_gathered()
        if is_too_large:  # The topic's limit has changed meanwhile.
            for entry in entries:
                self._append_batch([entry], None)
        else:
            self._append_batch(entries, None)
        self._operations.release()

    def _take_gathered(self) -> list[_Entry]:
        gathered, self._gathered = self._gathered, []
        self._gathered_bytes = self._gathered_count = 0
        return gathered

    def _limit_bytes(self) -> int:
        """Return how many bytes the records of a batch may take."""
        config = self._partition.log.config
        return min(config.max_message_bytes, config.segment_bytes) - HEADER_SIZE_BYTES

    def refuse_gathered(self, error: KafkaError) -> Iterator[None]:
        """Refuse the gathered appends, in steps. Nothing is gathered any more at once."""
        return self._refuse_each(self._take_gathered(), error)

    def _refuse_each(self, entries: list[_Entry], error: KafkaError) -> Iterator[None]:
        for entry in entries:
            try:
                entry.refuse(error)
            except Exception:
                logger.exception("%s: an append could not be refused", self._where)
            yield
        if entries:
            self._operations.release()

    # One batch.

    def _append_batch(self, entries: list[_Entry], producer: ProducerIdAndEpoch | None) -> None:
        """Append entries as one batch."""
        if len(entries) == 1:
            records = entries[0].records
        else:
            records = [record for entry in entries for record in entry.records]
        try:
            is_bounded = all(entry.is_bounded for entry in entries)
            analysis = self._batch(records, producer, is_bounded=is_bounded)
        except KafkaError as error:
            for entry in entries:
                entry.refuse(error)
            return
        self._operations.hold()
        self._append(analysis, entries, is_short=len(records) <= AT_ONCE)

    def _append(self, analysis: Analysis, entries: list[_Entry], *, is_short: bool) -> None:
        """Append a batch, for which ``hold`` was called. ``is_short``: memory follows at once."""
        self._under_way += 1
        outcome: AppendOutcome | Pending[list[AppendOutcome]]
        try:
            if self._memory.is_served:
                outcome = self._replica_manager.appends.one(
                    self._where,
                    analysis,
                    acks=ACKS_ALL,
                    timeout_ms=NO_TIMEOUT_MS,
                    still_allowed=self._still_allowed,
                )
            else:
                outcome = LEADERSHIP_MOVED
        except Exception:  # Unexpected: no client waits for ever, here or behind.
            logger.exception("%s: an append failed unexpectedly", self._where)
            outcome = AppendRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, "see the broker's log")
        if isinstance(outcome, Pending):
            outcome.on_done(lambda pending: self._end(_first(pending), entries, is_short=is_short))
        else:
            self._end(outcome, entries, is_short=is_short)

    def _still_allowed(self, where: TopicPartition) -> KafkaError | None:
        """Return why what had to wait is not written any more; None: it is."""
        if self._memory.is_served:
            return None
        return KafkaError(LEADERSHIP_MOVED.code, f"{where}: {LEADERSHIP_MOVED.why}")

    def _end(self, outcome: AppendOutcome, entries: list[_Entry], *, is_short: bool) -> None:
        self._under_way -= 1
        steps = self._finish(outcome, entries)
        if self._gathered:
            # The next sync begins before memory follows this batch. This batch has its place in
            # the line all the same: what is appended now may be durable at once.
            self._following.put(steps)
            self._append_gathered()
            self._following.go_on()
        elif is_short:
            self._following.do(steps)
        else:
            self._following.add(steps)

    def _finish(self, outcome: AppendOutcome, entries: list[_Entry]) -> Iterator[None]:
        """Let memory follow a batch, and call back each append in it; in steps."""
        memory = self._memory
        if not isinstance(outcome, AppendResult):
            error = append_error(outcome.code, outcome.why)
            for entry in entries:
                self._refuse(entry, error)
                yield
            if self._partition.is_failed:
                memory.fail(f"its log has failed: {error}")  # A full disk does not fail the log.
            self._operations.release()
            return
        offset, followed = outcome.base_offset, 0
        for entry in entries:
            records, apply, done, refuse, _ = entry
            try:
                if apply is not None and memory.is_served:
                    for _ in apply(offset) or ():
                        yield
                        if not memory.is_served:
                            break  # The shard has ended.
                done()
            except Exception:
                # Memory holds a part of what is durable.
                logger.exception("%s: memory could not follow the log", self._where)
                memory.fail("memory could not follow the log; it is read again", needs_reload=True)
                _refuse_faulty(refuse)
            offset += len(records)
            followed += len(records)
            if followed >= RECORDS_PER_STEP:
                followed = 0
                yield
        self._operations.release()

    def _refuse(self, entry: _Entry, error: KafkaError) -> None:
        try:
            entry.refuse(error)
        except Exception:
            logger.exception("%s: an append could not be refused", self._where)
            self._memory.fail("what was refused could not be undone", needs_reload=True)
            _refuse_faulty(entry.refuse)

    def _replay(
        self, records: Sequence[KeyAndValue], producer_id: int, base_offset: int
    ) -> Iterator[None]:
        for offset, (key, value) in enumerate(records, base_offset):
            self._memory.replay(StoredRecord(offset, producer_id, key, value))
            if not offset % RECORDS_PER_STEP:
                yield

    # Many.

    def append_each(self, records: Sequence[CoordinatorRecord], done: Done, refuse: Refuse) -> None:
        """Append in as many batches as it takes; see ``Shard.append_each``."""
        errors: list[KafkaError] = []
        left = 1  # One more, until all batches are under way.

        def one_over() -> None:
            nonlocal left
            left -= 1
            if left:
                return
            if errors:
                refuse(errors[0])
            else:
                done()

        def one_refused(error: KafkaError) -> None:
            errors.append(error)
            one_over()

        def steps() -> Iterator[None]:
            nonlocal left
            for chunk in self._chunks(records):
                if chunk:
                    left += 1
                    self.append(chunk, one_over, one_refused)
                yield
            one_over()

        self._operations.in_steps(steps())

    def _chunks(
        self, records: Sequence[CoordinatorRecord]
    ) -> Iterator[Sequence[CoordinatorRecord]]:
        """Yield the records of one batch after the other, and now and then an empty chunk."""
        limit = self._partition.log.config.max_message_bytes - HEADER_SIZE_BYTES
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

    # Bytes.

    def _batch(
        self,
        records: Sequence[KeyAndValue],
        producer: ProducerIdAndEpoch | None,
        *,
        is_bounded: bool,
    ) -> Analysis:
        """Build a batch. Raises KafkaError if it is too large."""
        now_ms = self._clock.wall_ms()
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
        if is_bounded:
            self._check_size(len(batch))
        return built(batch, header)

    def check_room(self, records: int, bytes_min: int) -> None:
        """Raise the KafkaError of a batch that is too large; see ``Shard.check_room``."""
        if self._codec is Codec.NONE:
            self._check_size(records * bytes_min)

    def _check_size(self, size_bytes: int) -> None:
        limit = self._partition.log.config.max_message_bytes
        if size_bytes > limit:
            # Kafka gives this code to a group whose members' metadata is too large altogether.
            why = f"{size_bytes} bytes or more for {self._where}; max.message.bytes is {limit}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, why)


def _size_bytes(records: Sequence[KeyAndValue]) -> int:
    """Return how many bytes the records take in a batch, at least."""
    size_bytes = RECORD_OVERHEAD_BYTES * len(records)
    for key, value in records:
        size_bytes += len(key) + (len(value) if value else 0)
    return size_bytes


def _refuse_faulty(refuse: Refuse) -> None:
    """Refuse an append that memory did not follow, unless it was called back already."""
    try:
        refuse(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "see the broker's log"))
    except Exception:
        logger.debug("it was told before, or cannot be", exc_info=True)


def _first(pending: Pending[list[AppendOutcome]]) -> AppendOutcome:
    if pending.value is None:  # As where it fails at once.
        logger.error("an append that had to wait failed unexpectedly", exc_info=pending.error)
        return AppendRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, "see the broker's log")
    return pending.value[0]
