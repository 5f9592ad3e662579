"""What a partition answers to an idempotent producer's next batch: rule by rule."""

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.log.producers.states import ProducerStates
from ottla.log.producers.transactions import ALL_STABLE, CompletedTransaction
from ottla.records.batch import BatchHeader
from ottla.records.control import ControlType, EndTransactionMarker

DAY = 24 * 60 * 60 * 1000
NOW = 1_700_000_000_000
LAST_SEQUENCE = 2**31 - 1


def header(producer_id, epoch, sequence, count=1, *, attributes=0):
    return BatchHeader(
        0, 100, -1, 2, 0, attributes, count - 1, NOW, NOW, producer_id, epoch, sequence, count
    )


class Partition:
    """Appends headers as the log does; offsets count up."""

    def __init__(self, **options):
        self.states = ProducerStates(DAY, **options)
        self.end = 0
        self.now = NOW

    def append(self, *fields, **options):
        """Return (first offset, is a duplicate)."""
        batch = header(*fields, **options)
        original = self.states.check(batch, self.now)
        if original is not None:
            return original.first_offset, True
        first = self.end
        self.end += batch.last_offset_delta + 1
        self.states.update(batch, self.end - 1, batch.max_timestamp, self.now)
        return first, False

    def complete(self, batch, *, aborts=True, coordinator_epoch=0, version=0):
        """Append a marker; return what it ended."""
        kind = ControlType.ABORT if aborts else ControlType.COMMIT
        marker = EndTransactionMarker(kind, coordinator_epoch)
        self.states.check_marker(batch, marker, version)
        completed = self.states.complete(batch, marker, self.end, NOW, self.now)
        self.end += 1
        if completed is not None:
            self.states.transactions.complete(completed)
        return completed

    def refusal(self, *fields, **options):
        before = self.states.get(fields[0]).batches.copy()
        with pytest.raises(KafkaError) as caught:
            self.append(*fields, **options)
        assert self.states.get(fields[0]).batches == before
        return caught.value.code


@pytest.fixture
def partition():
    return Partition()


def test_each_of_the_last_five_batches_is_a_duplicate_with_its_first_offset(partition):
    for sequence in range(0, 30, 3):
        assert partition.append(9, 0, sequence, 3) == (sequence, False)
    for sequence in range(15, 30, 3):
        assert partition.append(9, 0, sequence, 3) == (sequence, True)
    assert partition.append(9, 0, 30, 3) == (30, False)


def test_an_older_batch_than_the_last_five_is_out_of_order(partition):
    for sequence in range(6):
        partition.append(9, 0, sequence)
    assert partition.refusal(9, 0, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(("sequence", "count"), [(0, 2), (1, 2), (0, 4), (2, 1)])
def test_another_range_of_known_sequences_is_no_duplicate(partition, sequence, count):
    partition.append(9, 0, 0, 3)
    refused = partition.refusal(9, 0, sequence, count)
    assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("sequence", [2, 7, LAST_SEQUENCE])
def test_a_gap_is_out_of_order(partition, sequence):
    partition.append(9, 0, 0)
    assert partition.refusal(9, 0, sequence) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_begins_anywhere(partition):
    assert partition.append(9, 3, 500, 2) == (0, False)
    assert partition.append(9, 3, 502) == (2, False)


def test_an_older_epoch_is_refused_even_in_sequence(partition):
    partition.append(9, 1, 0)
    assert partition.refusal(9, 0, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.refusal(9, 0, 0) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_begins_with_sequence_0_and_knows_no_duplicates_of_the_old_one(partition):
    partition.append(9, 0, 0)
    assert partition.refusal(9, 1, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(9, 1, 0) == (1, False)
    assert partition.append(9, 1, 0) == (1, True)


def test_without_an_epoch_any_sequence_goes_and_the_next_epoch_begins_anywhere(partition):
    assert partition.append(9, -1, 4) == (0, False)
    assert partition.append(9, -1, 4) == (0, True)
    assert partition.append(9, -1, 2) == (1, False)
    assert partition.append(9, 0, 77) == (2, False)


def test_sequences_wrap_to_0(partition):
    assert partition.append(9, 0, LAST_SEQUENCE) == (0, False)
    assert partition.append(9, 0, 0) == (1, False)
    assert partition.append(8, 0, LAST_SEQUENCE - 1, 5) == (2, False)
    assert partition.states.get(8).batches[-1].last_sequence == 2
    assert partition.states.get(8).batches[-1].first_sequence == LAST_SEQUENCE - 1
    assert partition.append(8, 0, LAST_SEQUENCE - 1, 5) == (2, True)
    assert partition.append(8, 0, 3) == (7, False)


def test_producers_do_not_know_each_other(partition):
    assert partition.append(1, 0, 0) == (0, False)
    assert partition.append(2, 0, 0) == (1, False)
    assert partition.append(1, 0, 0) == (0, True)


def test_a_producer_is_forgotten_a_day_after_its_last_batch_not_before(partition):
    partition.append(9, 0, 0)
    partition.now += DAY - 1
    assert partition.append(9, 0, 0) == (0, True)
    partition.append(9, 0, 1)
    partition.now += DAY - 1
    assert partition.append(9, 0, 2) == (2, False)
    partition.now += DAY
    assert partition.append(9, 0, 2) == (3, False)


def test_the_silent_are_dropped_when_somebody_new_comes(partition):
    partition.append(1, 0, 0)
    partition.now += DAY // 2
    partition.append(2, 0, 0)
    partition.now += DAY // 2
    partition.append(3, 0, 0)
    assert [producer_id for producer_id, _ in partition.states] == [2, 3]


def test_beyond_the_bound_the_one_silent_for_the_longest_goes():
    partition = Partition(producers_max=3)
    for producer_id in (1, 2, 3):
        partition.append(producer_id, 0, 0)
    partition.append(1, 0, 1)
    partition.append(4, 0, 0)
    assert [producer_id for producer_id, _ in partition.states] == [3, 1, 4]
    assert len(partition.states) == 3


def test_a_transaction_is_open_from_its_first_batch_to_its_marker(partition):
    transactional, marker = 0x10, 0x30
    partition.append(5, 0, 0, 3, attributes=transactional)
    partition.append(5, 0, 3, attributes=transactional)
    state = partition.states.get(5)
    assert state.current_transaction_first_offset == 0
    ended = partition.complete(header(5, 1, -1, attributes=marker))
    assert ended == CompletedTransaction(5, 0, 4, is_aborted=True)
    assert state.current_transaction_first_offset == -1
    assert (state.epoch, state.batches) == (1, [])
    assert partition.refusal(5, 1, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(5, 1, 0)[1] is False


def marker(producer_id, epoch):
    return header(producer_id, epoch, -1, attributes=0x30)


def test_a_batch_outside_of_the_open_transaction_is_refused_whoever_writes_it(partition):
    partition.append(5, 0, 0, attributes=0x10)
    assert partition.refusal(5, 0, 1) is ErrorCode.INVALID_TXN_STATE
    assert partition.refusal(5, 0, -1) is ErrorCode.INVALID_TXN_STATE
    assert partition.refusal(5, 1, 0) is ErrorCode.INVALID_TXN_STATE
    assert partition.append(5, 0, 1, attributes=0x10) == (1, False)
    partition.complete(marker(5, 0))
    assert partition.append(5, 0, 2) == (3, False)


def test_a_duplicate_is_answered_whatever_its_bits(partition):
    partition.append(5, 0, 0, attributes=0x10)
    assert partition.append(5, 0, 0) == (0, True)


@pytest.mark.parametrize("aborts", [True, False])
def test_sequences_of_an_ended_transaction_are_not_acknowledged_for_other_records(
    partition, aborts
):
    """librdkafka gives them to the next transaction when it aborted with batches on their way.

    Of OUT_OF_ORDER_SEQUENCE_NUMBER it would die.
    """
    transactional = {"attributes": 0x10}
    partition.append(5, 0, 0, 3, **transactional)
    assert partition.append(5, 0, 0, 3, **transactional) == (0, True)
    partition.complete(marker(5, 0), aborts=aborts)
    refused = ErrorCode.UNKNOWN_PRODUCER_ID
    assert partition.refusal(5, 0, 0, 3, **transactional) is refused
    partition.append(5, 0, 3, **transactional)
    assert partition.refusal(5, 0, 0, 3, **transactional) is refused
    assert partition.append(5, 0, 3, **transactional) == (4, True)


def test_sequences_of_an_ended_transaction_are_known_whatever_the_next_batch_holds(partition):
    transactional = {"attributes": 0x10}
    for sequence in range(0, 80, 10):
        partition.append(5, 0, sequence, 10, **transactional)
    partition.complete(marker(5, 0))
    for sequence, count in ((70, 1), (75, 2), (79, 7), (0, 10), (3, 100)):
        refused = partition.refusal(5, 0, sequence, count, **transactional)
        assert refused is ErrorCode.UNKNOWN_PRODUCER_ID
    assert partition.refusal(5, 0, 81, **transactional) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refusal(5, 0, 75) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.append(5, 0, 80, 10, **transactional)
    assert partition.refusal(5, 0, 75, **transactional) is ErrorCode.UNKNOWN_PRODUCER_ID
    for sequence in (81, 85, 91):
        refused = partition.refusal(5, 0, sequence, **transactional)
        assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_of_an_ended_transaction_are_known_where_they_wrap(partition):
    transactional = {"attributes": 0x10}
    partition.append(5, 0, LAST_SEQUENCE - 1, 4, **transactional)
    partition.complete(marker(5, 0))
    for sequence in (LAST_SEQUENCE - 1, LAST_SEQUENCE, 0, 1):
        refused = partition.refusal(5, 0, sequence, **transactional)
        assert refused is ErrorCode.UNKNOWN_PRODUCER_ID
    assert partition.refusal(5, 0, 3, **transactional) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(5, 0, 2, **transactional) == (5, False)


@pytest.mark.parametrize(
    ("version", "is_open", "epoch", "code"),
    [
        (1, True, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, True, 2, None),
        (1, True, 3, None),
        (1, False, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, False, 2, None),
        (2, True, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, True, 2, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, True, 3, None),
        (2, False, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, False, 2, None),
        (2, False, 3, None),
    ],
)
def test_which_epochs_a_marker_may_have(partition, version, is_open, epoch, code):
    partition.append(5, 2, 0, attributes=0x10 if is_open else 0)
    if code is None:
        assert (partition.complete(marker(5, epoch), version=version) is not None) == is_open
        assert partition.states.get(5).epoch == epoch
    else:
        with pytest.raises(KafkaError) as caught:
            partition.complete(marker(5, epoch), version=version)
        assert caught.value.code is code
        assert partition.states.get(5).epoch == 2


def test_a_marker_of_an_older_coordinator_is_fenced_an_equal_one_is_not(partition):
    partition.append(5, 0, 0, attributes=0x10)
    partition.complete(marker(5, 0), coordinator_epoch=7)
    assert partition.states.get(5).coordinator_epoch == 7
    partition.complete(marker(5, 0), coordinator_epoch=7)
    with pytest.raises(KafkaError) as caught:
        partition.complete(marker(5, 0), coordinator_epoch=6)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_of_a_producer_that_wrote_nothing_ends_nothing_but_is_remembered(partition):
    assert partition.complete(marker(5, 3), version=2) is None
    assert partition.states.get(5).epoch == 3
    assert partition.refusal(5, 3, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(5, 3, 0, attributes=0x10) == (1, False)


def test_who_has_a_transaction_open_is_not_forgotten_however_long_it_is_silent(partition):
    partition.append(5, 0, 0, attributes=0x10)
    partition.append(6, 0, 0)
    partition.now += 10 * DAY
    partition.append(7, 0, 0)
    assert partition.states.get(6) is None
    assert partition.states.get(5) is not None
    assert partition.refusal(5, 0, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.complete(marker(5, 0))
    partition.now += 10 * DAY
    partition.append(8, 0, 0)
    assert partition.states.get(5) is None


def test_open_transactions_do_not_count_among_those_that_are_too_many():
    partition = Partition(producers_max=2)
    for producer_id in range(4):
        partition.append(producer_id, 0, 0, attributes=0x10)
    for producer_id in range(10, 14):
        partition.append(producer_id, 0, 0)
    known = {producer_id for producer_id, _ in partition.states}
    assert known == {0, 1, 2, 3, 12, 13}


def test_the_first_unstable_offset_is_the_oldest_that_is_open_or_not_committed(partition):
    transactions = partition.states.transactions
    assert transactions.first_unstable_offset == ALL_STABLE
    for producer_id in (1, 2, 3):
        partition.append(producer_id, 0, 0, 2, attributes=0x10)
    assert transactions.first_unstable_offset == 0
    partition.complete(marker(1, 0))  # at 6
    transactions.commit_to(6)
    assert transactions.first_unstable_offset == 0, "its marker is not committed"
    transactions.commit_to(7)
    assert transactions.first_unstable_offset == 2
    partition.complete(marker(3, 0))  # at 7
    partition.append(1, 0, 2, attributes=0x10)  # at 8
    partition.complete(marker(2, 0))  # at 9
    transactions.commit_to(9)
    assert transactions.first_unstable_offset == 2
    transactions.commit_to(10)
    assert transactions.first_unstable_offset == 8
    partition.complete(marker(1, 0), aborts=False)
    transactions.commit_to(11)
    assert transactions.first_unstable_offset == ALL_STABLE
