"""The value of a transactional id, its states, and which state may follow which. Pure.

    Empty, CompleteCommit, CompleteAbort   a producer has the id, nothing is open
    Ongoing                                partitions have been added
    PrepareCommit, PrepareAbort            decided and durable: the markers are being written
    Dead                                   being forgotten; nothing is written in this state
    PrepareEpochFence                      never used: here a fence is one write

Source: KIP-98, KIP-360, KIP-890; Kafka's TransactionState.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from ottla.ids import TopicPartition
from ottla.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NO_TIME = -1
EPOCH_MAX = 32767
LAST_CLIENT_EPOCH = EPOCH_MAX - 1
"""The last epoch that a producer gets: one more is left, which fences the producer."""


class TransactionState(Enum):
    """The names are those in Kafka's answers."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


STATE_NUMBERS: Mapping[TransactionState, int] = {
    state: number for number, state in enumerate(TransactionState)
}
STATES: Mapping[int, TransactionState] = {number: state for state, number in STATE_NUMBERS.items()}
IDLE = frozenset(
    (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
)
PREPARED = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
FOLLOWS: Mapping[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: IDLE,
    TransactionState.ONGOING: IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset((TransactionState.ONGOING,)),
    TransactionState.PREPARE_ABORT: IDLE | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset((TransactionState.PREPARE_COMMIT,)),
    TransactionState.COMPLETE_ABORT: frozenset((TransactionState.PREPARE_ABORT,)),
    TransactionState.DEAD: IDLE,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset(),
}
"""For each state, the states that it may follow. Version 2 aborts an idle id to raise its epoch."""


class Transaction(NamedTuple):
    """The durable state of a transactional id; a change makes a new value."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    """The partitions that need a marker at the end."""
    start_ms: int
    """When the first partition of the (last) transaction was added; -1: none was."""
    last_update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id for the next transaction, if this one uses up the epochs; else -1."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The producer's epoch before it was raised. Memory only: -1 after a restart."""
    client_version: int = 0
    """The transaction version of its last step."""

    @property
    def is_exhausted(self) -> bool:
        """Tell whether the producer id has no epoch left for a client."""
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    @property
    def is_commit(self) -> bool:
        """Tell whether the transaction is decided, and commits."""
        return self.state is TransactionState.PREPARE_COMMIT

    def may_become(self, state: TransactionState) -> bool:
        """Tell whether ``state`` may follow."""
        return self.state in FOLLOWS[state]
