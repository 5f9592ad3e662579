"""What one partition remembers of idempotent producers, and what follows for their next batch.

Owns the sequence check that makes a resend harmless (KIP-98): which of a producer's last batches
stand where, and whether a new one continues them. Decides only: no disk, no clock, no log. Called
by log.log around every write of a batch with a producer id; filled at start by
log.producers. Source: Kafka 4.3's ProducerStateEntry and ProducerAppendInfo, and a live
broker's answers:

    the same batch as one of the last five     a duplicate: answered with where that one stands
    an epoch below the producer's              INVALID_PRODUCER_EPOCH
    a higher epoch, sequence not 0             OUT_OF_ORDER_SEQUENCE_NUMBER
    the same epoch, not the next sequence      OUT_OF_ORDER_SEQUENCE_NUMBER
    a producer that is not remembered          any sequence: its batches may be long gone (KIP-360)

Unlike Kafka, a producer is forgotten by the time this broker last heard of it, not by its records'
timestamps: who writes old timestamps is protected as well.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader

BATCHES_REMEMBERED = 5
"""As many as a producer may have in flight."""

PRODUCERS_MAX = 100_000
"""Per partition; beyond it the one that was silent for the longest is forgotten."""

NO_COORDINATOR_EPOCH = -1
NO_TRANSACTION = -1
_SEQUENCE_MASK = 0x7FFFFFFF


class BatchMetadata(NamedTuple):
    """One batch that a producer wrote: which sequences, and where they stand."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    """Last offset (and sequence) less the first."""
    timestamp: int
    """The largest of its records: what a duplicate is told as the append time."""

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record; sequences wrap from 2^31-1 to 0."""
        return (self.last_sequence - self.offset_delta) & _SEQUENCE_MASK


class ProducerState:
    """What is known of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "epoch",
        "last_seen_ms",
        "last_timestamp",
    )

    def __init__(self, epoch: int, last_seen_ms: int) -> None:
        self.epoch = epoch
        self.batches: list[BatchMetadata] = []
        """Invariant: at most the last five of this epoch, oldest first."""
        self.last_timestamp = NO_TIMESTAMP
        """Of its last batch or marker: stored because Kafka's format has it."""
        self.last_seen_ms = last_seen_ms
        """Use: expiry. When this process wrote or loaded a batch of it, by the wall clock."""
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        """Of the last end-of-transaction marker, as stored; nobody asks yet."""
        self.current_transaction_first_offset = NO_TRANSACTION
        """Where the transaction that is open began; -1: none is."""


class ProducerStates:
    """The producers of one partition."""

    __slots__ = ("_producers_max", "_states", "expiration_ms")

    def __init__(self, expiration_ms: int, *, producers_max: int = PRODUCERS_MAX) -> None:
        self.expiration_ms = expiration_ms
        """``producer.id.expiration.ms``: a producer not heard of for as long is forgotten."""
        self._producers_max = producers_max
        self._states: dict[int, ProducerState] = {}
        """Invariant: in the order they were last heard of, the latest last."""

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[tuple[int, ProducerState]]:
        """Go over (producer id, state), the one silent for the longest first."""
        return iter(self._states.items())

    def get(self, producer_id: int) -> ProducerState | None:
        """Return what is known of a producer, or None."""
        return self._states.get(producer_id)

    def check(self, header: BatchHeader, now_ms: int) -> BatchMetadata | None:
        """Decide on a producer's batch: None to append it, or the batch that it repeats.

        ``header`` has a producer id. Changes nothing that counts. Raises KafkaError
        OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH.
        """
        state = self._states.get(header.producer_id)
        if state is None:
            return None
        if now_ms - state.last_seen_ms >= self.expiration_ms:
            del self._states[header.producer_id]
            return None
        epoch, sequence = header.producer_epoch, header.base_sequence
        if epoch != state.epoch:
            _check_epoch(header, state)
            return None
        if sequence == NO_SEQUENCE:
            return None  # Of a coordinator: a marker, or offsets in a transaction.
        batches = state.batches
        last_sequence = batches[-1].last_sequence if batches else NO_SEQUENCE
        if sequence == (last_sequence + 1) & _SEQUENCE_MASK:
            return None
        for batch in batches:
            if (
                batch.last_sequence == header.last_sequence
                and batch.offset_delta == header.last_offset_delta
            ):
                return batch
        if epoch == NO_PRODUCER_EPOCH:
            return None
        raise _out_of_order(header, state)

    def update(
        self, header: BatchHeader, last_offset: int, max_timestamp: int, now_ms: int
    ) -> None:
        """Note a batch with a producer id that was written, or found at start. Checks nothing.

        Offset and timestamp are the stored ones: ``header`` may be from before they were given.
        """
        states, producer_id = self._states, header.producer_id
        state = states.pop(producer_id, None)
        if state is None:
            self._make_room(now_ms)
            state = ProducerState(header.producer_epoch, now_ms)
        states[producer_id] = state
        if state.epoch != header.producer_epoch:
            state.epoch = header.producer_epoch
            state.batches = []
        state.last_seen_ms = now_ms
        state.last_timestamp = max_timestamp
        delta = header.last_offset_delta
        if header.is_control:
            state.current_transaction_first_offset = NO_TRANSACTION
            return
        batches = state.batches
        if len(batches) == BATCHES_REMEMBERED:
            del batches[0]
        batches.append(BatchMetadata(header.last_sequence, last_offset, delta, max_timestamp))
        if header.is_transactional and state.current_transaction_first_offset == NO_TRANSACTION:
            state.current_transaction_first_offset = last_offset - delta

    def load(self, states: Iterable[tuple[int, ProducerState]]) -> None:
        """Take over what a snapshot says, in its order."""
        for producer_id, state in states:
            self._make_room(state.last_seen_ms)
            self._states[producer_id] = state

    def _make_room(self, now_ms: int) -> None:
        """Forget who is silent for too long, and one more if there are still too many."""
        states, latest = self._states, now_ms - self.expiration_ms
        while states:
            producer_id = next(iter(states))
            if states[producer_id].last_seen_ms > latest and len(states) < self._producers_max:
                return
            del states[producer_id]


def _check_epoch(header: BatchHeader, state: ProducerState) -> None:
    """Raise unless a batch of another epoch than the producer's begins that epoch."""
    epoch, sequence = header.producer_epoch, header.base_sequence
    if epoch < state.epoch:
        why = f"producer id {header.producer_id} epoch {epoch}: known is epoch {state.epoch}"
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, why)
    if sequence not in {0, NO_SEQUENCE} and state.epoch != NO_PRODUCER_EPOCH:
        raise _out_of_order(header, state)


def _out_of_order(header: BatchHeader, state: ProducerState) -> KafkaError:
    last_sequence = state.batches[-1].last_sequence if state.batches else NO_SEQUENCE
    why = (
        f"producer id {header.producer_id}: epoch {header.producer_epoch} sequence "
        f"{header.base_sequence} after epoch {state.epoch} sequence {last_sequence}"
    )
    return KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)
