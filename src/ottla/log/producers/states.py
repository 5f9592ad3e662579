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
    outside of its open transaction            INVALID_TXN_STATE
    a sequence of an ended transaction         UNKNOWN_PRODUCER_ID
    a marker of an older epoch                 INVALID_PRODUCER_EPOCH; in transaction version 2 of
                                               the same one, too, when it would end a transaction
    a marker of an older coordinator           TRANSACTION_COORDINATOR_FENCED

A batch like one of an ended transaction is a duplicate for Kafka, and one that only begins with
such a sequence is out of order. Nobody sends again what such a transaction holds; but a client that
aborts with batches on their way may give their sequences to the next ones (librdkafka 2.16 does),
which would be acknowledged and lost, or end the client (ADR 51).

Unlike Kafka, too, a producer is forgotten by the time this broker last heard of it, not by its
records' timestamps: who writes old timestamps is protected as well.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.log.producers.transactions import CompletedTransaction, Transactions
from ottla.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from ottla.records.control import ControlType, EndTransactionMarker

BATCHES_REMEMBERED = 5
"""As many as a producer may have in flight."""

PRODUCERS_MAX = 100_000
"""Per partition; beyond it the one that was silent for the longest is forgotten."""

NO_COORDINATOR_EPOCH = -1
NO_TRANSACTION = -1
EPOCH_BUMPED_SINCE = 2
"""The transaction version whose markers carry an epoch above that of the records (KIP-890)."""

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
        "generation",
        "last_seen_ms",
        "last_timestamp",
    )

    def __init__(self, epoch: int, last_seen_ms: int, generation: int = 0) -> None:
        self.epoch = epoch
        self.generation = generation
        """Use: one of an older generation is kept as it is, and copied to be changed."""
        self.batches: list[BatchMetadata] = []
        """Invariant: at most the last five of this epoch, oldest first."""
        self.last_timestamp = NO_TIMESTAMP
        """Of its last batch or marker: stored because Kafka's format has it."""
        self.last_seen_ms = last_seen_ms
        """Use: expiry. When this process wrote or loaded a batch of it, by the monotonic clock: one
        that is set forward must not forget producers whose batches are on their way again."""
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        """Use: fences markers of an older coordinator. Of the last end-of-transaction marker."""
        self.current_transaction_first_offset = NO_TRANSACTION
        """Where the transaction that is open began; -1: none is."""


class Verification:
    """A question to a coordinator elsewhere whether a producer may write to one partition.

    Its "yes" counts only while it is not void: a marker that arrives in between has ended the
    transaction that the question was about (KIP-890, verification guard).
    """

    __slots__ = ("is_void", "producer_id")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.is_void = False


class ProducerStates:
    """The producers of one partition."""

    __slots__ = (
        "_generation",
        "_producers_max",
        "_states",
        "_verifications",
        "expiration_ms",
        "transactions",
    )

    def __init__(self, expiration_ms: int, *, producers_max: int = PRODUCERS_MAX) -> None:
        self.expiration_ms = expiration_ms
        """``producer.id.expiration.ms``: a producer not heard of for as long is forgotten."""
        self._producers_max = producers_max
        self._states: OrderedDict[int, ProducerState] = OrderedDict()
        """Invariant: in the order they were last heard of, the latest last."""
        self._generation = 0
        """Use: see ``freeze``. Invariant: not below that of any state."""
        self._verifications: dict[int, list[Verification]] = _NO_VERIFICATIONS
        """Use: those under way, by producer id. Invariant: none is void."""
        self.transactions = Transactions()
        """Invariant: open are those of the states' ``current_transaction_first_offset``."""

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[tuple[int, ProducerState]]:
        """Go over (producer id, state), the one silent for the longest first."""
        return iter(self._states.items())

    def get(self, producer_id: int) -> ProducerState | None:
        """Return what is known of a producer, or None."""
        return self._states.get(producer_id)

    def freeze(self) -> tuple[list[int], list[ProducerState]]:
        """Return producer ids and their states, which will not change any more whatever is noted.

        Costs little at once: a state is copied when its producer is next heard of.
        """
        self._generation += 1
        return list(self._states), list(self._states.values())

    def check(self, header: BatchHeader, now_ms: int) -> BatchMetadata | None:
        """Decide on a producer's batch: None to append it, or the batch that it repeats.

        ``header`` has a producer id and is no marker. Changes nothing that counts. Raises
        KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID, INVALID_PRODUCER_EPOCH or
        INVALID_TXN_STATE.
        """
        state = self._states.get(header.producer_id)
        if state is None:
            return None
        in_transaction = state.current_transaction_first_offset != NO_TRANSACTION
        if now_ms - state.last_seen_ms >= self.expiration_ms and not in_transaction:
            del self._states[header.producer_id]
            return None
        if header.producer_epoch != state.epoch:
            _check_epoch(header, state)
        else:
            batches, sequence = state.batches, header.base_sequence
            last_sequence = batches[-1].last_sequence if batches else NO_SEQUENCE
            # Without a sequence it is a coordinator's: offsets in a transaction.
            if sequence != (last_sequence + 1) & _SEQUENCE_MASK and sequence != NO_SEQUENCE:
                for batch in batches:
                    if (
                        batch.last_sequence == header.last_sequence
                        and batch.offset_delta == header.last_offset_delta
                    ):
                        if header.is_transactional and not _is_open(batch, state):
                            break
                        return batch
                if state.epoch != NO_PRODUCER_EPOCH:
                    raise _out_of_order(header, state)
        if in_transaction and not header.is_transactional:
            raise _outside(header, state)
        return None

    def check_marker(
        self, header: BatchHeader, marker: EndTransactionMarker, transaction_version: int
    ) -> None:
        """Raise unless a coordinator may write this marker.

        KafkaError INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED. With
        ``transaction_version`` 2 the same marker once more is let pass: its answer was lost.
        """
        state = self._states.get(header.producer_id)
        if state is None:
            return
        epoch, known = header.producer_epoch, state.epoch
        is_bumped = transaction_version >= EPOCH_BUMPED_SINCE
        ends_one = state.current_transaction_first_offset != NO_TRANSACTION
        if epoch < known or (epoch == known and is_bumped and ends_one):
            why = f"marker of producer id {header.producer_id} epoch {epoch}: known is {known}"
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, why)
        if marker.coordinator_epoch < state.coordinator_epoch:
            why = (
                f"marker of producer id {header.producer_id} by coordinator epoch "
                f"{marker.coordinator_epoch}: known is {state.coordinator_epoch}"
            )
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, why)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Tell whether the producer in this epoch has a transaction open here."""
        state = self._states.get(producer_id)
        return (
            state is not None
            and state.epoch == epoch
            and state.current_transaction_first_offset != NO_TRANSACTION
        )

    def begin_verification(self, producer_id: int) -> Verification:
        """Note that a coordinator is asked about a producer; ``end_verification`` must follow."""
        if not self._verifications:
            self._verifications = {}
        verification = Verification(producer_id)
        self._verifications.setdefault(producer_id, []).append(verification)
        return verification

    def end_verification(self, verification: Verification) -> None:
        """Forget a question: nothing will be written on its account any more."""
        those = self._verifications.get(verification.producer_id)
        if those is not None and verification in those:
            those.remove(verification)
            if not those:
                del self._verifications[verification.producer_id]

    def void_verifications(self, producer_id: int) -> None:
        """Let no answer to earlier questions about a producer count: its transaction ends."""
        if self._verifications:
            for verification in self._verifications.pop(producer_id, ()):
                verification.is_void = True

    def update(
        self, header: BatchHeader, last_offset: int, max_timestamp: int, now_ms: int
    ) -> None:
        """Note a producer's batch that was written, or found at start. Checks nothing.

        Offset and timestamp are the stored ones: ``header`` may be from before they were given.
        """
        state = self._heard_of(header, now_ms)
        state.last_timestamp = max_timestamp
        delta = header.last_offset_delta
        batches = state.batches
        if len(batches) == BATCHES_REMEMBERED:
            del batches[0]
        batches.append(BatchMetadata(header.last_sequence, last_offset, delta, max_timestamp))
        if (
            header.attributes & TRANSACTIONAL_BIT
            and state.current_transaction_first_offset == NO_TRANSACTION
        ):
            state.current_transaction_first_offset = last_offset - delta
            self.transactions.begin(header.producer_id, last_offset - delta)

    def complete(
        self,
        header: BatchHeader,
        marker: EndTransactionMarker,
        offset: int,
        timestamp: int,
        now_ms: int,
    ) -> CompletedTransaction | None:
        """Note a marker that was written, or found at start, at ``offset``. Checks nothing.

        Returns what it ended; None when the producer had written nothing here. The transaction
        still counts as open: the caller tells ``transactions`` next.
        """
        self.void_verifications(header.producer_id)
        state = self._heard_of(header, now_ms)
        state.last_timestamp = timestamp
        state.coordinator_epoch = marker.coordinator_epoch
        first_offset = state.current_transaction_first_offset
        if first_offset == NO_TRANSACTION:
            return None
        state.current_transaction_first_offset = NO_TRANSACTION
        is_aborted = marker.control_type is ControlType.ABORT
        return CompletedTransaction(header.producer_id, first_offset, offset, is_aborted)

    def _heard_of(self, header: BatchHeader, now_ms: int) -> ProducerState:
        """Return the state of a batch's producer, new if need be, in the batch's epoch."""
        states, producer_id = self._states, header.producer_id
        state = states.pop(producer_id, None)
        if state is None:
            self._make_room(now_ms)
            state = ProducerState(header.producer_epoch, now_ms, self._generation)
        elif state.generation != self._generation:
            state = _copy_of(state, self._generation)
        states[producer_id] = state
        if state.epoch != header.producer_epoch:
            state.epoch = header.producer_epoch
            state.batches = []
        state.last_seen_ms = now_ms
        return state

    def load(self, states: Iterable[tuple[int, ProducerState]]) -> None:
        """Take over what a snapshot says, in its order."""
        open_ones: list[tuple[int, int]] = []
        for producer_id, state in states:
            self._make_room(state.last_seen_ms)
            self._states[producer_id] = state
            if state.current_transaction_first_offset != NO_TRANSACTION:
                open_ones.append((state.current_transaction_first_offset, producer_id))
        for first_offset, producer_id in sorted(open_ones):
            self.transactions.begin(producer_id, first_offset)

    def forget_oldest(self, count: int) -> None:
        """Forget up to ``count`` producers, those silent for the longest.

        Not those with a transaction open.
        """
        for producer_id in list(islice(self._states, count)):
            if self._states[producer_id].current_transaction_first_offset == NO_TRANSACTION:
                del self._states[producer_id]

    def _make_room(self, now_ms: int) -> None:
        """Forget who is silent for too long, and one more if there are still too many.

        Who has a transaction open is not forgotten, and does not count: its marker will come.
        """
        states, latest = self._states, now_ms - self.expiration_ms
        while states:
            producer_id, state = next(iter(states.items()))
            too_many = len(states) - len(self.transactions) >= self._producers_max
            if state.last_seen_ms > latest and not too_many:
                return
            del states[producer_id]
            if state.current_transaction_first_offset != NO_TRANSACTION:
                state.last_seen_ms = now_ms
                states[producer_id] = state


_NO_VERIFICATIONS: dict[int, list[Verification]] = {}
"""Shared by all partitions of which nobody asks. Invariant: empty."""


def _copy_of(state: ProducerState, generation: int) -> ProducerState:
    copy = ProducerState(state.epoch, state.last_seen_ms, generation)
    copy.batches = state.batches.copy()
    copy.last_timestamp = state.last_timestamp
    copy.coordinator_epoch = state.coordinator_epoch
    copy.current_transaction_first_offset = state.current_transaction_first_offset
    return copy


def _is_open(batch: BatchMetadata, state: ProducerState) -> bool:
    """Tell whether a batch is part of the producer's open transaction."""
    first_offset = state.current_transaction_first_offset
    return first_offset != NO_TRANSACTION and batch.first_offset >= first_offset


def _is_of_the_past(header: BatchHeader, state: ProducerState) -> bool:
    """Tell whether a transaction that is over has written the batch's first sequence.

    The sequences of an epoch have no gaps: all up to that of the last batch of such a transaction
    are written.
    """
    if not header.is_transactional or header.producer_epoch != state.epoch:
        return False
    ended = [batch for batch in state.batches if not _is_open(batch, state)]
    if not ended:
        return False
    distance = (ended[-1].last_sequence - header.base_sequence) & _SEQUENCE_MASK
    return distance <= _SEQUENCE_MASK >> 1  # Else it lies behind that batch; sequences wrap.


def _check_epoch(header: BatchHeader, state: ProducerState) -> None:
    """Raise unless a batch of another epoch than the producer's begins that epoch."""
    epoch, sequence = header.producer_epoch, header.base_sequence
    if epoch < state.epoch:
        why = f"producer id {header.producer_id} epoch {epoch}: known is epoch {state.epoch}"
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, why)
    if sequence not in {0, NO_SEQUENCE} and state.epoch != NO_PRODUCER_EPOCH:
        raise _out_of_order(header, state)


def _outside(header: BatchHeader, state: ProducerState) -> KafkaError:
    why = (
        f"producer id {header.producer_id} has a transaction open since offset "
        f"{state.current_transaction_first_offset}: a batch outside of it"
    )
    return KafkaError(ErrorCode.INVALID_TXN_STATE, why)


def _out_of_order(header: BatchHeader, state: ProducerState) -> KafkaError:
    last_sequence = state.batches[-1].last_sequence if state.batches else NO_SEQUENCE
    why = (
        f"producer id {header.producer_id}: epoch {header.producer_epoch} sequence "
        f"{header.base_sequence} after epoch {state.epoch} sequence {last_sequence}"
    )
    if _is_of_the_past(header, state):
        why += ": it is one of an ended transaction"
        return KafkaError(ErrorCode.UNKNOWN_PRODUCER_ID, why)
    return KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)
