"""A lane by itself: the order and the numbers of what leaves, whatever comes back."""

import pytest

from ottla.client.wire.lanes import EPOCH_MAX, Lane, OutgoingBatch, Verdict
from ottla.client.wire.sending import ProducerIdentity
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import ProducerId, TopicPartition
from ottla.records.batch import SEQUENCES, read_header
from ottla.records.builder import build_batch
from ottla.records.record import Record

REFUSED = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "why")
NUMBERED = ProducerIdentity(ProducerId(7), 0)


def batch(count):
    data = build_batch([Record(timestamp=1, value=b"v")] * count)
    return OutgoingBatch(data, len(data), count, deadline=100.0)


def lane_of(*counts, identity=NUMBERED):
    lane = Lane(TopicPartition("t", 0), identity)
    for count in counts:
        lane.add(batch(count))
    return lane


def sequences(batches):
    return [read_header(each.data).base_sequence for each in batches]


def test_numbers_count_records_and_wrap():
    lane = lane_of(3, 2)
    assert sequences(lane.waiting) == [0, 3]
    lane.next_sequence = SEQUENCES - 1
    lane.add(batch(2))
    lane.add(batch(1))
    assert sequences(lane.waiting)[2:] == [SEQUENCES - 1, 1]


def test_a_first_batch_that_is_refused_is_not_passed_by_the_second():
    """A leader takes any number from an unknown producer, and never one below it after that."""
    lane = lane_of(1, 1, 1)
    first = lane.take()
    assert not lane.may_send(now=0.0)
    lane.put_back(first, REFUSED)
    lane.pause(0.0)
    assert lane.may_send(now=0.0)
    assert lane.take() is first
    lane.succeed(first, 0)
    lane.take()
    assert lane.may_send(now=0.0)
    lane.put_back(lane.in_flight[0], REFUSED, next_epoch=True)
    lane.pause(0.0)
    lane.take()
    assert not lane.may_send(now=0.0)


def test_nothing_leaves_while_something_that_came_back_waits_for_the_rest():
    lane = lane_of(1, 1, 1, 1)
    first, second = lane.take(), lane.take()
    lane.put_back(first, REFUSED)
    assert not lane.may_send(now=0.0)
    assert not lane.is_back
    lane.put_back(second, REFUSED)
    assert lane.is_back
    lane.pause(5.0)
    assert not lane.may_send(now=4.9)
    assert lane.may_send(now=5.0)


def test_what_came_back_leaves_first_and_in_order():
    lane = lane_of(1, 1, 1, 1)
    taken = [lane.take() for _ in range(3)]
    lane.put_back(taken[2], REFUSED)
    lane.put_back(taken[0], REFUSED)
    lane.put_back(taken[1], REFUSED)
    lane.pause(0.0)
    assert sequences(lane.take() for _ in range(4)) == [0, 1, 2, 3]


def test_the_order_holds_where_numbers_wrap():
    lane = lane_of()
    lane.next_sequence = lane.expected_sequence = SEQUENCES - 2
    for _ in range(4):
        lane.add(batch(1))
    taken = [lane.take() for _ in range(4)]
    for each in reversed(taken):
        lane.put_back(each, REFUSED)
    lane.pause(0.0)
    assert sequences(lane.waiting) == [SEQUENCES - 2, SEQUENCES - 1, 0, 1]


def test_one_that_others_have_passed_still_leaves_first():
    lane = lane_of(2, 2, 2)
    first, second, third = lane.take(), lane.take(), lane.take()
    lane.put_back(first, REFUSED)  # appended, and yet refused
    lane.succeed(second, 2)
    lane.put_back(third, REFUSED)
    lane.pause(0.0)
    assert sequences(lane.waiting) == [0, 4]


def test_parts_take_the_numbers_of_the_whole():
    lane = lane_of(1, 5, 2)
    lane.succeed(lane.take(), 0)
    whole, last = lane.take(), lane.take()
    lane.put_back_split(whole, REFUSED, [batch(2), batch(3)])
    lane.put_back(last, REFUSED)
    lane.pause(0.0)
    assert sequences(lane.waiting) == [1, 3, 6]
    lane.add(batch(1))
    assert sequences(lane.waiting)[-1] == 8


def test_the_next_epoch_counts_from_0():
    lane = lane_of(2, 3, 1)
    lane.succeed(lane.take(), 0)
    lane.put_back(lane.take(), REFUSED, next_epoch=True)
    lane.pause(0.0)
    assert sequences(lane.waiting) == [0, 3]
    assert {read_header(each.data).producer_epoch for each in lane.waiting} == {1}


def test_there_is_no_epoch_after_the_last():
    lane = lane_of(1, identity=ProducerIdentity(ProducerId(7), EPOCH_MAX))
    lane.put_back(lane.take(), REFUSED, next_epoch=True)
    with pytest.raises(KafkaError, match="no epoch left"):
        lane.pause(0.0)


@pytest.mark.parametrize(
    ("error", "which", "transactional", "verdict"),
    [
        (ErrorCode.NONE, 0, False, Verdict.WRITTEN),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 0, False, Verdict.WRITTEN),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, False, Verdict.NEXT_EPOCH),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, False, Verdict.AGAIN),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, True, Verdict.LOST),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, True, Verdict.AGAIN),
        (ErrorCode.UNKNOWN_PRODUCER_ID, 0, False, Verdict.NEXT_EPOCH),
        (ErrorCode.UNKNOWN_PRODUCER_ID, 0, True, Verdict.LOST),
        (ErrorCode.MESSAGE_TOO_LARGE, 0, False, Verdict.SPLIT),
        (ErrorCode.MESSAGE_TOO_LARGE, 2, False, Verdict.LOST),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, False, Verdict.AGAIN),
        (ErrorCode.UNKNOWN_TOPIC_ID, 0, False, Verdict.AGAIN),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 0, True, Verdict.LOST),
        (ErrorCode.TRANSACTION_ABORTABLE, 0, True, Verdict.LOST),
        (ErrorCode.INVALID_RECORD, 0, False, Verdict.LOST),
    ],
)
def test_what_an_answer_means(error, which, transactional, verdict):
    identity = NUMBERED._replace(transactional_id="id" if transactional else None)
    lane = lane_of(2, 2, 1, identity=identity)
    taken = [lane.take() for _ in range(3)]
    assert lane.judge(taken[which], error) is verdict
