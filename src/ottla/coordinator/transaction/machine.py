"""Decides what an event does to a transactional id: ``step``. Pure.

An event meets the present value of the id (None: no producer has it) and has one outcome: an answer
at once; a new value to be written, which is in force, and answered, when it is durable; or the need
of a fresh producer id, with which the event happens again. While a write is on its way the id is
``pending``: other events get CONCURRENT_TRANSACTIONS, and their clients come back.

    InitProducerId      idle: the next epoch (a fresh id when there is none left)   -> Empty
                        Ongoing: fences the producer, that is, aborts               -> PrepareAbort
    AddPartitions       idle, Ongoing                                               -> Ongoing
    EndTransaction      Ongoing; an abort in version 2 also idle      -> PrepareCommit, PrepareAbort
    TimedOut            Ongoing                                                     -> PrepareAbort
    MarkersWritten      PrepareCommit, PrepareAbort             -> CompleteCommit, CompleteAbort
    Expired             idle                                                        -> forgotten

Source: KIP-98, KIP-360, KIP-447, KIP-890; the answers of a live Kafka 4.3.
"""

from typing import NamedTuple

from ottla.coordinator.transaction.transaction import (
    EPOCH_MAX,
    IDLE,
    LAST_CLIENT_EPOCH,
    NO_TIME,
    PREPARED,
    Transaction,
    TransactionState,
)
from ottla.coordinator.transaction.version import BUMPS_EPOCH_SINCE, SERVER_VERSION
from ottla.errors import ErrorCode, InvariantBroken
from ottla.ids import TopicPartition
from ottla.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

# Events.


class InitProducerId(NamedTuple):
    """A producer begins, or goes on after an error with the id and epoch that it had (else -1)."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    fresh_producer_id: int = NO_PRODUCER_ID
    """The producer id to use when a fresh one is needed; -1: there is none yet."""


class AddPartitions(NamedTuple):
    """A producer will write to partitions."""

    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    client_version: int


class EndTransaction(NamedTuple):
    """A producer commits or aborts."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    client_version: int
    fresh_producer_id: int = NO_PRODUCER_ID
    """As in ``InitProducerId``."""


class TimedOut(NamedTuple):
    """The transaction of this producer and epoch is open for longer than its timeout."""

    producer_id: int
    producer_epoch: int


class MarkersWritten(NamedTuple):
    """Every partition has its marker, and the markers are durable."""


class Expired(NamedTuple):
    """No producer has used the id for a long time."""


Event = InitProducerId | AddPartitions | EndTransaction | TimedOut | MarkersWritten | Expired

# Outcomes.


class Answer(NamedTuple):
    """The answer to the client."""

    code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class Write(NamedTuple):
    """Write ``transaction``; when it is durable, it is in force and ``answer`` is given."""

    transaction: Transaction
    answer: Answer


class Forget(NamedTuple):
    """Write the tombstone of the id."""


class NeedProducerId(NamedTuple):
    """Let the event happen again, with a fresh producer id."""


Outcome = Answer | Write | Forget | NeedProducerId

DONE = Answer(ErrorCode.NONE)
CONCURRENT = Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
FENCED = Answer(ErrorCode.PRODUCER_FENCED)
UNKNOWN = Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
IMPOSSIBLE = Answer(ErrorCode.INVALID_TXN_STATE)


def step(known: Transaction | None, event: Event, now_ms: int, *, pending: bool = False) -> Outcome:
    """Let ``event`` happen to an id. ``pending``: a write of it is on its way."""
    if isinstance(event, InitProducerId):
        outcome = _init(known, event, now_ms, pending=pending)
    elif known is None:
        outcome = UNKNOWN
    elif isinstance(event, AddPartitions):
        outcome = _add(known, event, now_ms, pending=pending)
    elif isinstance(event, EndTransaction):
        outcome = _end(known, event, now_ms, pending=pending)
    elif pending:
        outcome = CONCURRENT
    elif isinstance(event, TimedOut):
        is_it = (known.producer_id, known.producer_epoch) == event
        is_open = known.state is TransactionState.ONGOING
        outcome = _fence(known, now_ms) if is_it and is_open else FENCED
    elif isinstance(event, MarkersWritten):
        outcome = _complete(known, now_ms)
    else:
        outcome = Forget() if known.state in IDLE else IMPOSSIBLE
    if isinstance(outcome, Write) and known is not None:
        state = outcome.transaction.state
        if not known.may_become(state):
            raise InvariantBroken(f"{known.state} may not become {state}")
    return outcome


def verify(
    known: Transaction | None, producer_id: int, producer_epoch: int, where: TopicPartition
) -> ErrorCode:
    """Tell whether the producer may write to a partition: NONE, or why not.

    TRANSACTION_ABORTABLE: the partition was not added.
    """
    if known is None or known.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if known.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if where in known.partitions:
        return ErrorCode.NONE
    return ErrorCode.TRANSACTION_ABORTABLE


def _init(
    known: Transaction | None, event: InitProducerId, now_ms: int, *, pending: bool
) -> Outcome:
    if pending:
        return CONCURRENT
    if known is None:
        if event.fresh_producer_id == NO_PRODUCER_ID:
            return NeedProducerId()
        fresh = Transaction(
            transactional_id=event.transactional_id,
            producer_id=event.fresh_producer_id,
            producer_epoch=0,
            timeout_ms=event.timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=NO_TIME,
            last_update_ms=now_ms,
            previous_producer_id=event.fresh_producer_id,
        )
        return _begun(fresh)
    goes_on = event.producer_id != NO_PRODUCER_ID
    if goes_on and not _is_of(known, event):
        return FENCED
    if known.state in PREPARED:
        return CONCURRENT
    if known.state is TransactionState.ONGOING:
        fence = _fence(known, now_ms)
        # The client comes back: it never gets the epoch that fences.
        return Write(fence.transaction, CONCURRENT)
    return _next_epoch(known, event, now_ms, goes_on=goes_on)


def _is_of(known: Transaction, event: InitProducerId) -> bool:
    """Tell whether a producer may go on with this id: it has the present one, or the last one."""
    return event.producer_id == known.producer_id or (
        event.producer_id == known.previous_producer_id
        and event.producer_epoch >= LAST_CLIENT_EPOCH
    )


def _next_epoch(
    known: Transaction, event: InitProducerId, now_ms: int, *, goes_on: bool
) -> Outcome:
    begun = known._replace(
        previous_producer_id=known.producer_id,
        timeout_ms=event.timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        start_ms=NO_TIME,
        last_update_ms=now_ms,
    )
    has_current = event.producer_epoch == known.producer_epoch
    has_last = event.producer_epoch == known.last_producer_epoch != NO_PRODUCER_EPOCH
    if known.is_exhausted and (not goes_on or has_current or has_last):
        if event.fresh_producer_id == NO_PRODUCER_ID:
            return NeedProducerId()
        last_epoch = known.producer_epoch if goes_on else NO_PRODUCER_EPOCH
        return _begun(
            begun._replace(
                producer_id=event.fresh_producer_id,
                producer_epoch=0,
                last_producer_epoch=last_epoch,
            )
        )
    if not goes_on or has_current:
        epoch = known.producer_epoch
        return _begun(
            begun._replace(
                producer_epoch=epoch + 1,
                last_producer_epoch=epoch if goes_on else NO_PRODUCER_EPOCH,
            )
        )
    if has_last:
        return _begun(begun)  # The producer asked before, and did not get the answer.
    return FENCED


def _begun(transaction: Transaction) -> Write:
    answer = Answer(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)
    return Write(transaction, answer)


def _add(known: Transaction, event: AddPartitions, now_ms: int, *, pending: bool) -> Outcome:
    if known.producer_id != event.producer_id:
        return UNKNOWN
    if known.producer_epoch != event.producer_epoch:
        return FENCED
    if pending or known.state in PREPARED:
        return CONCURRENT
    is_open = known.state is TransactionState.ONGOING
    if is_open and event.partitions <= known.partitions:
        return DONE
    added = known._replace(
        previous_producer_id=known.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        state=TransactionState.ONGOING,
        partitions=known.partitions | event.partitions,
        start_ms=known.start_ms if is_open else now_ms,
        last_update_ms=now_ms,
        client_version=event.client_version,
    )
    return Write(added, DONE)


def _end(known: Transaction, event: EndTransaction, now_ms: int, *, pending: bool) -> Outcome:
    if event.client_version >= BUMPS_EPOCH_SINCE:
        return _end_bumping(known, event, now_ms, pending=pending)
    if known.producer_id != event.producer_id:
        return UNKNOWN
    if known.producer_epoch != event.producer_epoch:
        return FENCED
    if pending or known.state in PREPARED:
        return CONCURRENT
    if known.state is TransactionState.ONGOING:
        prepared = known._replace(
            previous_producer_id=known.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            state=_prepared(event),
            last_update_ms=now_ms,
            client_version=0,
        )
        return Write(prepared, DONE)
    return DONE if known.state is _completed(event) else IMPOSSIBLE


def _end_bumping(
    known: Transaction, event: EndTransaction, now_ms: int, *, pending: bool
) -> Outcome:
    """End a transaction of version 2, whose epoch tells repeated requests from new ones.

    While an end is under way nobody is fenced: a client that has its answer may begin another
    transaction, and abort it, before the markers of the last one are written.
    """
    state = known.state
    is_of_former_id = _is_of_former_id(known, event)
    if known.producer_id != event.producer_id and not is_of_former_id:
        return UNKNOWN
    if pending or state in PREPARED:
        return CONCURRENT
    is_current = event.producer_epoch == known.producer_epoch and not is_of_former_id
    is_repeated = state in _ENDED and (
        is_of_former_id or event.producer_epoch + 1 == known.producer_epoch
    )
    if not (is_current or is_repeated):
        return FENCED
    if is_repeated:
        is_done = state is _completed(event)
        done = Answer(ErrorCode.NONE, known.producer_id, known.producer_epoch)
        return done if is_done else IMPOSSIBLE
    if state is not TransactionState.ONGOING and event.is_commit:
        return IMPOSSIBLE
    if known.is_exhausted and event.fresh_producer_id == NO_PRODUCER_ID:
        return NeedProducerId()
    return _prepare_bumping(known, event, now_ms)


_ENDED = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def _is_of_former_id(known: Transaction, event: EndTransaction) -> bool:
    """Tell whether the event repeats the end that used up its producer id's epochs."""
    return (
        event.producer_id == known.previous_producer_id != known.producer_id
        and event.producer_epoch == LAST_CLIENT_EPOCH
        and known.producer_epoch == 0
    )


def _prepare_bumping(known: Transaction, event: EndTransaction, now_ms: int) -> Write:
    is_open = known.state is TransactionState.ONGOING
    fresh = event.fresh_producer_id if known.is_exhausted else NO_PRODUCER_ID
    prepared = known._replace(
        producer_epoch=min(known.producer_epoch + 1, EPOCH_MAX),
        last_producer_epoch=known.producer_epoch,
        previous_producer_id=known.producer_id,
        next_producer_id=fresh,
        state=_prepared(event),
        start_ms=known.start_ms if is_open else now_ms,
        last_update_ms=now_ms,
        client_version=event.client_version,
    )
    if fresh != NO_PRODUCER_ID:
        return Write(prepared, Answer(ErrorCode.NONE, fresh, 0))
    return Write(prepared, Answer(ErrorCode.NONE, prepared.producer_id, prepared.producer_epoch))


def _fence(known: Transaction, now_ms: int) -> Write:
    """Abort for the coordinator: the epoch above the producer's fences the producer."""
    return Write(
        known._replace(
            producer_epoch=min(known.producer_epoch + 1, EPOCH_MAX),
            last_producer_epoch=known.producer_epoch,
            previous_producer_id=known.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            state=TransactionState.PREPARE_ABORT,
            last_update_ms=now_ms,
            client_version=SERVER_VERSION,
        ),
        DONE,
    )


def _complete(known: Transaction, now_ms: int) -> Outcome:
    if known.state not in PREPARED:
        return IMPOSSIBLE
    is_rotated = known.next_producer_id != NO_PRODUCER_ID
    return Write(
        known._replace(
            producer_id=known.next_producer_id if is_rotated else known.producer_id,
            producer_epoch=0 if is_rotated else known.producer_epoch,
            previous_producer_id=known.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            state=(
                TransactionState.COMPLETE_COMMIT
                if known.is_commit
                else TransactionState.COMPLETE_ABORT
            ),
            partitions=frozenset(),
            last_update_ms=now_ms,
        ),
        DONE,
    )


def _prepared(event: EndTransaction) -> TransactionState:
    if event.is_commit:
        return TransactionState.PREPARE_COMMIT
    return TransactionState.PREPARE_ABORT


def _completed(event: EndTransaction) -> TransactionState:
    if event.is_commit:
        return TransactionState.COMPLETE_COMMIT
    return TransactionState.COMPLETE_ABORT
