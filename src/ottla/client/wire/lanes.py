"""One partition's batches on their way to its leader: their numbers, their order, their retries.

Pure: between the writer that closes batches and ``blocking.producer``, which sends them. Owns what
an error in an answer means for a batch and for those behind it. Batches leave and are written in
the order of their numbers: when one comes back, the lane waits until nothing of it is in flight any
more, and starts again with the first that is not written. The first of an epoch goes alone: a
leader that knows nothing of the epoch takes any number, so where it refuses the first (the
partition is about to be there) and takes the second, it would never take the first any more.

``asyncio.producer`` has lanes of its own, for another promise. There a batch is a list of records,
each with a promise, and becomes bytes when it leaves; one batch is in flight, so its number is
given last; a batch that fails fails its records only, and the others go on with a new producer id.
Here a batch is closed bytes and up to five are in flight, so they are numbered early, anew in a
next epoch, and split when too large; one batch that is lost ends the producer. Both share what an
answer says (``WRITTEN``, ``failure``), ``sequence_after`` and the pauses (``backoff``).

Source: KIP-98 (sequence numbers), KIP-360 (a new epoch where the leader has lost them), KIP-890;
Kafka's documentation of its producer's settings.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from ottla.client.wire.sending import NO_IDENTITY, Appended, ProducerIdentity
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import TopicPartition
from ottla.records.batch import NO_SEQUENCE, SEQUENCES, set_producer

EPOCH_MAX = 0x7FFF
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
"""A batch that may be written in parts."""
MAYBE_WRITTEN = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""A batch that may be there all the same."""
WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""A leader answers one of these when it has the batch, by this try or by one before."""


class Verdict(Enum):
    """What becomes of a batch after an answer."""

    WRITTEN = "written"
    AGAIN = "again"
    NEXT_EPOCH = "again, numbered from 0 in the next epoch"
    SPLIT = "again, in parts"
    LOST = "not to be written"


@dataclass(slots=True)
class OutgoingBatch:
    """A closed batch. The first ``size_bytes`` of ``data`` are it."""

    data: bytearray
    size_bytes: int
    record_count: int
    deadline: float
    """When to give up, in seconds of the sender's clock."""
    base_sequence: int = NO_SEQUENCE

    @property
    def view(self) -> memoryview:
        """The batch's bytes, as they go over the wire."""
        return memoryview(self.data)[: self.size_bytes]


@dataclass(slots=True)
class Written:
    """What was written to one partition."""

    record_count: int = 0
    size_bytes: int = 0
    """The size of the record batches, compressed."""
    first_offset: int = -1
    """-1: not told (acks=0)."""
    next_offset: int = -1
    """After the last record."""

    def add(self, batch: OutgoingBatch, base_offset: int) -> None:
        """Count a batch. ``base_offset`` -1: not told."""
        self.record_count += batch.record_count
        self.size_bytes += batch.size_bytes
        if base_offset >= 0:
            if self.first_offset < 0 or base_offset < self.first_offset:
                self.first_offset = base_offset
            self.next_offset = max(self.next_offset, base_offset + batch.record_count)


@dataclass(slots=True)
class Lane:
    """The batches of one partition that are not written yet.

    Invariant: the sequence numbers of ``in_flight``, ``returned`` and ``waiting`` together are
    contiguous, but for batches that were written before one ahead of them.
    """

    partition: TopicPartition
    identity: ProducerIdentity = NO_IDENTITY
    in_flight_max: int = 5
    waiting: deque[OutgoingBatch] = field(default_factory=deque)
    in_flight: list[OutgoingBatch] = field(default_factory=list)
    returned: list[OutgoingBatch] = field(default_factory=list)
    """Answered with an error that allows another try."""
    next_sequence: int = 0
    """Use: of the next batch that is added."""
    expected_sequence: int = 0
    """Use: what the leader must take next, as far as its answers tell."""
    retry_at: float = 0.0
    try_count: int = 0
    """Tries since the last success."""
    error: OttlaError | None = None
    """Why the last batch came back."""
    needs_epoch: bool = False
    was_split: bool = False
    """Whether a batch that came back was too large, and comes again in parts."""
    needs_pause: bool = False
    """Whether one came back for what time may cure, or for what nobody foresaw."""
    has_begun: bool = False
    """Whether the leader has taken a batch of this epoch."""
    is_in_transaction: bool = False
    """Whether the coordinator knows that the transaction writes this partition."""
    written: Written = field(default_factory=Written)

    @property
    def is_idempotent(self) -> bool:
        """Whether the batches are numbered."""
        return self.identity.producer_id >= 0

    @property
    def is_done(self) -> bool:
        """Whether everything was written."""
        return not (self.waiting or self.in_flight or self.returned)

    def add(self, batch: OutgoingBatch) -> None:
        """Take a batch, numbered and summed here."""
        self._number(batch)
        self.waiting.append(batch)

    def may_send(self, now: float) -> bool:
        """Tell whether the first waiting batch may leave."""
        return bool(
            self.waiting
            and not self.returned
            and len(self.in_flight) < (self.in_flight_max if self.has_begun else 1)
            and self.retry_at <= now
        )

    def take(self) -> OutgoingBatch:
        """Return the first waiting batch, which is in flight from now on."""
        batch = self.waiting.popleft()
        self.in_flight.append(batch)
        return batch

    def judge(self, batch: OutgoingBatch, error: ErrorCode) -> Verdict:
        """Return what an answer means for ``batch``."""
        if error in WRITTEN:
            return Verdict.WRITTEN
        is_next = batch.base_sequence == self.expected_sequence
        match error:
            case ErrorCode.MESSAGE_TOO_LARGE if batch.record_count > 1:
                return Verdict.SPLIT
            case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if self.is_idempotent and not is_next:
                return Verdict.AGAIN  # because one before it came back
            case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER | ErrorCode.UNKNOWN_PRODUCER_ID:
                # The leader has lost what it knew of the producer. In a transaction that means
                # that records may be missing.
                is_plain = self.is_idempotent and self.identity.transactional_id is None
                return Verdict.NEXT_EPOCH if is_plain else Verdict.LOST
        return Verdict.AGAIN if error.retriable else Verdict.LOST

    def succeed(self, batch: OutgoingBatch, base_offset: int) -> None:
        """Take note that ``batch``, in flight, was written."""
        self.in_flight.remove(batch)
        self.written.add(batch, base_offset)
        self.try_count = 0
        self.has_begun = True
        if self.is_idempotent:
            end = sequence_after(batch.base_sequence, batch.record_count)
            if (end - self.expected_sequence) % SEQUENCES < SEQUENCES // 2:
                self.expected_sequence = end

    def put_back(
        self, batch: OutgoingBatch, error: OttlaError, *, next_epoch: bool = False
    ) -> None:
        """Take note that ``batch``, in flight, has to be sent again."""
        self.in_flight.remove(batch)
        self.returned.append(batch)
        self.error = error
        self.needs_epoch |= next_epoch
        is_behind_another = (
            isinstance(error, KafkaError)
            and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            and not next_epoch
        )
        self.needs_pause |= not is_behind_another

    def put_back_split(
        self, batch: OutgoingBatch, error: OttlaError, parts: list[OutgoingBatch]
    ) -> None:
        """Take note that ``parts``, with the same records, have to be sent instead of ``batch``."""
        self.in_flight.remove(batch)
        self.error = error
        self.was_split = True
        following = self.next_sequence
        self.next_sequence = batch.base_sequence
        for part in parts:
            self._number(part)
        self.next_sequence = following
        self.returned += parts

    @property
    def is_back(self) -> bool:
        """Whether something came back and nothing is in flight any more."""
        return bool(self.returned) and not self.in_flight

    def goes_on(self) -> bool:
        """Start again at once if nothing but a split is why batches ``is_back``; tell whether."""
        if not self.is_back or self.needs_pause or not self.was_split:
            return False
        self._rewind()
        return True

    def pause(self, retry_at: float) -> None:
        """Send nothing before ``retry_at``; if ``is_back``, then from the first not written on."""
        self.retry_at = retry_at
        self.try_count += 1
        if self.is_back:
            self._rewind()

    def _rewind(self) -> None:
        self.returned.sort(key=self._distance)
        self.waiting.extendleft(reversed(self.returned))
        self.returned = []
        self.was_split = self.needs_pause = False
        if self.needs_epoch:
            self._begin_epoch()

    def _distance(self, batch: OutgoingBatch) -> int:
        """Return how far behind the next expected one a batch is; negative: ahead of it."""
        distance = (batch.base_sequence - self.expected_sequence) % SEQUENCES
        return distance if distance < SEQUENCES // 2 else distance - SEQUENCES

    def _begin_epoch(self) -> None:
        """Count from 0 in the next epoch, as a leader that knows nothing of us expects."""
        if self.identity.epoch >= EPOCH_MAX:
            why = f"{self.partition}: the producer has no epoch left"
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)
        self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
        self.needs_epoch = self.has_begun = False
        self.next_sequence = self.expected_sequence = 0
        for batch in self.waiting:
            self._number(batch)

    def _number(self, batch: OutgoingBatch) -> None:
        if self.is_idempotent:
            batch.base_sequence = self.next_sequence
            self.next_sequence = sequence_after(self.next_sequence, batch.record_count)
        set_producer(
            batch.view, self.identity.producer_id, self.identity.epoch, batch.base_sequence
        )


def sequence_after(first: int, record_count: int) -> int:
    """Return the number behind ``record_count`` records that begin at ``first``; they wrap."""
    return (first + record_count) % SEQUENCES


def failure(partition: TopicPartition, appended: Appended) -> KafkaError:
    """Return the error of a batch as it is raised: with the partition and the broker's words."""
    return KafkaError(appended.error, f"{partition}: {appended.message or appended.error.text}")
