"""The pure machine answers each event in each state as Kafka's own table says."""

import itertools

import pytest

from ottla.coordinator.transaction import machine
from ottla.coordinator.transaction.machine import (
    AddPartitions,
    Answer,
    EndTransaction,
    Expired,
    Forget,
    InitProducerId,
    MarkersWritten,
    NeedProducerId,
    TimedOut,
    Write,
    step,
    verify,
)
from ottla.coordinator.transaction.transaction import (
    FOLLOWS,
    IDLE,
    PREPARED,
    Transaction,
    TransactionState,
)
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition

S = TransactionState
E = ErrorCode
PID, EPOCH, NOW = 7, 5, 1_000_000
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LIVING = [state for state in S if state not in (S.DEAD, S.PREPARE_EPOCH_FENCE)]


def known(state, epoch=EPOCH, **fields):
    has_partitions = state in PREPARED or state is S.ONGOING
    given = {
        "transactional_id": "x",
        "producer_id": PID,
        "producer_epoch": epoch,
        "timeout_ms": 60_000,
        "state": state,
        "partitions": frozenset([P0]) if has_partitions else frozenset(),
        "start_ms": NOW - 1000,
        "last_update_ms": NOW - 500,
        "previous_producer_id": PID,
    } | fields
    return Transaction(**given)


def init(producer_id=-1, epoch=-1, fresh=-1):
    return InitProducerId("x", 30_000, producer_id, epoch, fresh)


def told(outcome):
    """The code, and the state that is written before it is told."""
    if isinstance(outcome, Write):
        return outcome.answer.code, outcome.transaction.state
    return outcome.code, None


def test_a_new_id_needs_a_producer_id_and_begins_at_epoch_0():
    assert step(None, init(), NOW) == NeedProducerId()
    write = step(None, init(fresh=9), NOW)
    assert write.answer == Answer(E.NONE, 9, 0)
    made = write.transaction
    assert (made.state, made.previous_producer_id, made.start_ms) == (S.EMPTY, 9, -1)


@pytest.mark.parametrize("state", sorted(IDLE, key=str))
def test_an_idle_id_gets_its_next_epoch(state):
    write = step(known(state), init(), NOW)
    assert write.answer == Answer(E.NONE, PID, EPOCH + 1)
    assert write.transaction.timeout_ms == 30_000
    assert write.transaction.last_producer_epoch == -1


def test_a_producer_that_goes_on_gets_one_epoch_however_often_it_asks():
    write = step(known(S.EMPTY), init(PID, EPOCH), NOW)
    assert write.answer == Answer(E.NONE, PID, EPOCH + 1)
    again = step(write.transaction, init(PID, EPOCH), NOW)
    assert again.answer == write.answer
    assert told(step(write.transaction, init(PID, EPOCH - 1), NOW)) == (E.PRODUCER_FENCED, None)
    assert told(step(write.transaction, init(PID + 1, 0), NOW)) == (E.PRODUCER_FENCED, None)


def test_an_open_transaction_is_fenced_and_the_epoch_that_fences_is_never_handed_out():
    write = step(known(S.ONGOING), init(), NOW)
    assert told(write) == (E.CONCURRENT_TRANSACTIONS, S.PREPARE_ABORT)
    fenced = write.transaction
    assert (fenced.producer_epoch, fenced.client_version) == (EPOCH + 1, 2)
    ended = step(fenced, MarkersWritten(), NOW).transaction
    assert step(ended, init(), NOW).answer == Answer(E.NONE, PID, EPOCH + 2)
    assert step(ended, init(PID, EPOCH), NOW).answer == Answer(E.NONE, PID, EPOCH + 1)


@pytest.mark.parametrize("state", sorted(PREPARED, key=str))
def test_whoever_comes_while_a_transaction_ends_comes_back(state):
    """Whatever it is: Kafka fences nobody by an end of version 2 then, asked on the wire."""
    ends = [
        EndTransaction(PID, epoch, is_commit, version)
        for is_commit in (True, False)
        for epoch, version in ((EPOCH, 0), (EPOCH - 1, 2), (EPOCH, 2), (EPOCH + 1, 2))
    ]
    for event in (init(), AddPartitions(PID, EPOCH, frozenset([P1]), 0), *ends):
        assert told(step(known(state), event, NOW)) == (E.CONCURRENT_TRANSACTIONS, None)


@pytest.mark.parametrize("state", LIVING)
def test_nothing_overtakes_a_write(state):
    events = [
        init(),
        AddPartitions(PID, EPOCH, frozenset([P0]), 0),
        TimedOut(PID, EPOCH),
        MarkersWritten(),
        Expired(),
    ]
    for event in events:
        assert told(step(known(state), event, NOW, pending=True)) == (
            E.CONCURRENT_TRANSACTIONS,
            None,
        )


def test_partitions_are_added_once_and_the_first_begins_the_transaction():
    begun = step(known(S.COMPLETE_ABORT), AddPartitions(PID, EPOCH, frozenset([P0]), 2), NOW)
    assert told(begun) == (E.NONE, S.ONGOING)
    assert (begun.transaction.start_ms, begun.transaction.client_version) == (NOW, 2)
    more = step(begun.transaction, AddPartitions(PID, EPOCH, frozenset([P1]), 2), NOW + 5)
    assert more.transaction.partitions == {P0, P1}
    assert more.transaction.start_ms == NOW
    same = AddPartitions(PID, EPOCH, frozenset([P0, P1]), 2)
    assert step(more.transaction, same, NOW) == machine.DONE


def test_others_add_nothing():
    event = AddPartitions(PID, EPOCH, frozenset([P0]), 0)
    assert step(None, event, NOW) == machine.UNKNOWN
    assert step(known(S.EMPTY), event._replace(producer_id=8), NOW) == machine.UNKNOWN
    for epoch in (EPOCH - 1, EPOCH + 1):
        assert step(known(S.EMPTY), event._replace(producer_epoch=epoch), NOW) == machine.FENCED


ITS, PF = E.INVALID_TXN_STATE, E.PRODUCER_FENCED
SETTLED = [state for state in LIVING if state not in PREPARED]
V1 = {
    (S.EMPTY, True): (ITS, None),
    (S.EMPTY, False): (ITS, None),
    (S.ONGOING, True): (E.NONE, S.PREPARE_COMMIT),
    (S.ONGOING, False): (E.NONE, S.PREPARE_ABORT),
    (S.COMPLETE_COMMIT, True): (E.NONE, None),
    (S.COMPLETE_COMMIT, False): (ITS, None),
    (S.COMPLETE_ABORT, True): (ITS, None),
    (S.COMPLETE_ABORT, False): (E.NONE, None),
}
V2_CURRENT = {
    (S.EMPTY, True): (ITS, None),
    (S.EMPTY, False): (E.NONE, S.PREPARE_ABORT),
    (S.ONGOING, True): (E.NONE, S.PREPARE_COMMIT),
    (S.ONGOING, False): (E.NONE, S.PREPARE_ABORT),
    (S.COMPLETE_COMMIT, True): (ITS, None),
    (S.COMPLETE_COMMIT, False): (E.NONE, S.PREPARE_ABORT),
    (S.COMPLETE_ABORT, True): (ITS, None),
    (S.COMPLETE_ABORT, False): (E.NONE, S.PREPARE_ABORT),
}
V2_REPEATED = {
    (S.COMPLETE_COMMIT, True): (E.NONE, None),
    (S.COMPLETE_COMMIT, False): (ITS, None),
    (S.COMPLETE_ABORT, True): (ITS, None),
    (S.COMPLETE_ABORT, False): (E.NONE, None),
} | {(state, end): (PF, None) for state in (S.EMPTY, S.ONGOING) for end in (True, False)}


@pytest.mark.parametrize(("state", "commit"), list(itertools.product(SETTLED, (True, False))))
def test_how_a_transaction_ends_is_kafkas_table(state, commit):
    now = known(state)
    end = EndTransaction(PID, EPOCH, commit, 0)
    assert told(step(now, end, NOW)) == V1[state, commit]
    assert told(step(now, end._replace(client_version=2), NOW)) == V2_CURRENT[state, commit]
    repeated = EndTransaction(PID, EPOCH - 1, commit, 2)
    assert told(step(now, repeated, NOW)) == V2_REPEATED[state, commit]
    assert step(now, EndTransaction(PID, EPOCH - 1, commit, 0), NOW) == machine.FENCED
    for version in (0, 2):
        assert step(now, EndTransaction(PID, EPOCH + 1, commit, version), NOW) == machine.FENCED
        assert step(now, EndTransaction(8, EPOCH, commit, version), NOW) == machine.UNKNOWN
        assert step(None, EndTransaction(PID, EPOCH, commit, version), NOW) == machine.UNKNOWN


def test_version_2_raises_the_epoch_and_a_repeated_end_is_told_the_same():
    end = EndTransaction(PID, EPOCH, True, 2)
    write = step(known(S.ONGOING), end, NOW)
    assert write.answer == Answer(E.NONE, PID, EPOCH + 1)
    assert (write.transaction.producer_epoch, write.transaction.partitions) == (EPOCH + 1, {P0})
    done = step(write.transaction, MarkersWritten(), NOW).transaction
    assert (done.state, done.partitions, done.producer_epoch) == (
        S.COMPLETE_COMMIT,
        frozenset(),
        EPOCH + 1,
    )
    assert step(done, end, NOW) == write.answer


def test_the_last_epoch_of_a_producer_id_is_followed_by_another_id():
    end = EndTransaction(PID, 32766, True, 2)
    last = known(S.ONGOING, 32766)
    assert step(last, end, NOW) == NeedProducerId()
    write = step(last, end._replace(fresh_producer_id=9), NOW)
    assert write.answer == Answer(E.NONE, 9, 0)
    prepared = write.transaction
    assert (prepared.producer_id, prepared.producer_epoch) == (PID, 32767)
    assert prepared.next_producer_id == 9
    done = step(prepared, MarkersWritten(), NOW).transaction
    assert (done.producer_id, done.producer_epoch, done.next_producer_id) == (9, 0, -1)
    assert step(done, end, NOW) == write.answer
    assert told(step(done, end._replace(is_commit=False), NOW)) == (ITS, None)


def test_an_exhausted_id_begins_anew_also_behind_a_fence():
    assert step(known(S.EMPTY, 32766), init(), NOW) == NeedProducerId()
    assert step(known(S.EMPTY, 32766), init(fresh=9), NOW).answer == Answer(E.NONE, 9, 0)
    fenced = step(known(S.ONGOING, 32766), init(), NOW).transaction
    assert fenced.producer_epoch == 32767
    ended = step(fenced, MarkersWritten(), NOW).transaction
    assert step(ended, init(fresh=9), NOW).answer == Answer(E.NONE, 9, 0)
    assert step(ended, init(PID, 32766, fresh=9), NOW).answer == Answer(E.NONE, 9, 0)


def test_only_the_transaction_that_was_meant_times_out():
    assert told(step(known(S.ONGOING), TimedOut(PID, EPOCH), NOW)) == (E.NONE, S.PREPARE_ABORT)
    assert step(known(S.ONGOING), TimedOut(PID, EPOCH - 1), NOW) == machine.FENCED
    assert step(known(S.COMPLETE_COMMIT), TimedOut(PID, EPOCH), NOW) == machine.FENCED


def test_only_idle_ids_are_forgotten():
    for state in LIVING:
        outcome = step(known(state), Expired(), NOW)
        assert outcome == (Forget() if state in IDLE else machine.IMPOSSIBLE)


def test_who_may_write_to_a_partition():
    ongoing = known(S.ONGOING)
    assert verify(ongoing, PID, EPOCH, P0) is E.NONE
    assert verify(ongoing, PID, EPOCH, P1) is E.TRANSACTION_ABORTABLE
    assert verify(ongoing, PID, EPOCH + 1, P0) is E.PRODUCER_FENCED
    assert verify(ongoing, 8, EPOCH, P0) is E.INVALID_PRODUCER_ID_MAPPING
    assert verify(None, PID, EPOCH, P0) is E.INVALID_PRODUCER_ID_MAPPING
    assert verify(known(S.PREPARE_ABORT), PID, EPOCH, P0) is E.CONCURRENT_TRANSACTIONS
    assert verify(known(S.COMPLETE_COMMIT), PID, EPOCH, P0) is E.TRANSACTION_ABORTABLE


def test_every_change_is_one_of_the_table_and_no_epoch_falls():
    events = [
        init(),
        init(fresh=9),
        init(PID, EPOCH, 9),
        AddPartitions(PID, EPOCH, frozenset([P1]), 2),
        TimedOut(PID, EPOCH),
        MarkersWritten(),
        *(
            EndTransaction(PID, EPOCH, commit, version, 9)
            for commit in (True, False)
            for version in (0, 2)
        ),
    ]
    seen = set()
    for state, event in itertools.product(LIVING, events):
        before = known(state)
        outcome = step(before, event, NOW)
        if isinstance(outcome, Write):
            after = outcome.transaction
            assert state in FOLLOWS[after.state]
            assert (after.producer_id, after.producer_epoch) >= (PID, EPOCH)
            seen.add((state, after.state))
    assert seen == {(old, new) for new in LIVING for old in FOLLOWS[new]}
