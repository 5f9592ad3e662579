"""When a leader of several replicas takes records that nobody else has to have."""

from types import SimpleNamespace

import pytest

from ottla.env.clock import ManualClock
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.log.append import own
from ottla.metadata.values import PartitionState
from ottla.pending import Pending
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from ottla.replication.replica_state import LeaderView, Proposal
from ottla.replication.standing import (
    CONFIRMED_SECONDS,
    PREPARED_SECONDS,
    RECENT_SECONDS,
    Standing,
)

TTL_SECONDS = 9.0


def doubts(*, is_sure):
    """Pairs of ``may_take`` and ``confirm``: what was heard lately, and what is certain now."""
    if is_sure:
        return ((lambda _: True, None), (lambda _: True, lambda _: answered()))
    return ((lambda _: True, lambda _: Pending()), (lambda _: False, None))


def answered():
    answer = Pending()
    answer.resolve(True)
    return answer


class Leader:
    """Node 1, which leads in epoch 3; nodes 2 and 3 may be elected, 4 may not."""

    def __init__(self):
        self.clock = ManualClock()
        self.until = self.clock.monotonic() + TTL_SECONDS
        self.standing = Standing(self.clock, lambda: self.until)
        state = PartitionState((1, 2, 3, 4), (1, 2), 1, 3, 0, elr=(3,))
        self.partition = SimpleNamespace(
            topic_partition=TopicPartition("t", 0), state=state, leader_epoch=3, view=None
        )

    def takes(self):
        return self.standing.may_take(self.partition)

    def fetched(self, *nodes):
        for node in nodes:
            self.standing.fetched(self.partition, node)

    def lead_in(self, epoch):
        self.partition.leader_epoch = epoch
        self.partition.state = self.partition.state._replace(leader_epoch=epoch)


@pytest.fixture
def leader():
    return Leader()


def test_who_is_registered_for_certain_takes_everything(leader):
    assert leader.takes()
    leader.clock.advance(TTL_SECONDS)
    assert leader.takes()
    leader.clock.advance(0.001)
    assert not leader.takes()
    leader.until += TTL_SECONDS
    assert leader.takes()


def test_while_all_who_may_be_elected_follow_it_goes_on_without_an_end(leader):
    leader.clock.advance(TTL_SECONDS - PREPARED_SECONDS)
    for _ in range(100):
        leader.clock.advance(1.0)
        leader.fetched(2, 3)
        is_soon = leader.clock.monotonic() < leader.until + 2
        assert leader.takes() or is_soon, "a second fetch shows that they followed after the end"
    assert leader.takes()
    leader.clock.advance(RECENT_SECONDS)
    assert not leader.takes()


def test_a_fetch_from_before_a_standstill_proves_nothing(leader):
    """It lay in the socket while another node was elected."""
    leader.clock.advance(TTL_SECONDS - 1)
    leader.fetched(2, 3)
    leader.clock.advance(0.5)
    leader.fetched(2, 3)
    leader.clock.advance(3600)
    leader.fetched(2, 3)
    assert not leader.takes()
    leader.clock.advance(0.001)
    leader.fetched(2, 3)
    assert leader.takes(), "these were sent after the answers to the last ones"


def test_signs_from_before_the_end_of_the_registration_do_not_count(leader):
    """A short standstill: lately is not since."""
    leader.clock.advance(TTL_SECONDS - 0.2)
    for _ in range(3):
        leader.clock.advance(0.05)
        leader.fetched(2, 3)
    leader.clock.advance(RECENT_SECONDS / 2)
    assert not leader.takes()


@pytest.mark.parametrize("nodes", [(2,), (3,), (4,), (2, 4), ()])
def test_everybody_who_may_be_elected_has_to_follow(leader, nodes):
    leader.clock.advance(TTL_SECONDS + 1)
    for _ in range(3):
        leader.clock.advance(0.1)
        leader.fetched(*nodes)
    assert not leader.takes()


def test_who_may_have_joined_the_isr_may_be_elected_too(leader):
    """The store went away before it said whether it did: another node leads, unheard of here."""
    alone = leader.partition.state._replace(isr=(1,), elr=())
    leader.partition.state = alone
    leader.clock.advance(TTL_SECONDS + 1)
    assert leader.takes(), "nobody else may be elected"
    assert leader.standing.confirm(leader.partition).value, "nobody has to be waited for"
    proposal = Proposal(alone._replace(isr=(1, 2)), joining=2)
    leader.partition.view = LeaderView(alone, 0, proposal=proposal)
    assert not leader.takes()
    confirmed = leader.standing.confirm(leader.partition)
    assert not confirmed.is_done
    for _ in range(2):
        leader.clock.advance(0.1)
        leader.fetched(2)
    assert leader.takes()
    assert confirmed.value


def test_a_sign_of_another_leader_epoch_does_not_count(leader):
    leader.clock.advance(TTL_SECONDS + 1)
    for _ in range(2):
        leader.clock.advance(0.1)
        leader.fetched(2, 3)
    assert leader.takes()
    leader.lead_in(4)
    assert not leader.takes()
    leader.fetched(2, 3)
    assert not leader.takes()
    leader.fetched(2, 3)
    assert leader.takes()


def test_signs_are_forgotten_when_all_is_well(leader):
    leader.clock.advance(TTL_SECONDS + 1)
    leader.fetched(2, 3)
    leader.until = leader.clock.monotonic() + TTL_SECONDS
    leader.fetched(2)
    assert not leader.standing._signs


def test_only_acks_all_is_taken_in_doubt(node, words):
    partition = node.partition()
    partition.append(memoryview(words.batch()), acks=1)
    partition.may_take = lambda one: one is not partition
    for acks in (0, 1):
        with pytest.raises(KafkaError, match="another node may lead by now") as refused:
            partition.append(memoryview(words.batch()), acks=acks)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.append(memoryview(words.batch()), acks=-1)


def test_a_gap_in_a_sequence_is_not_told_in_doubt(node, words):
    """The next leader may have the batches between: who is told of a gap gives its records up."""
    partition = node.partition()
    partition.append(
        memoryview(words.batch(producer_id=7, producer_epoch=0, base_sequence=0)), acks=-1
    )
    beyond = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 9}
    for is_sure, code in (
        (True, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        for partition.may_take, partition.confirm in doubts(is_sure=is_sure):
            with pytest.raises(KafkaError) as refused:
                partition.append(memoryview(words.batch(**beyond)), acks=-1)
            assert refused.value.code is code


def test_a_sequence_of_the_past_is_not_told_of_in_doubt(node, words):
    """The next leader may have more of the producer's batches, and the end of its epoch."""
    partition = node.partition()
    one = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    partition.append(memoryview(words.batch(**one)), acks=-1)
    marker = build_end_transaction_marker(
        EndTransactionMarker(ControlType.ABORT, 0),
        producer_id=7,
        producer_epoch=0,
        timestamp_ms=1_700_000_000_000,
    )
    partition.append(own(memoryview(marker)), acks=-1)
    for is_sure, code in (
        (True, ErrorCode.UNKNOWN_PRODUCER_ID),
        (False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        for partition.may_take, partition.confirm in doubts(is_sure=is_sure):
            with pytest.raises(KafkaError) as refused:
                partition.append(memoryview(words.batch(**one)), acks=-1)
            assert refused.value.code is code


def test_an_offset_beyond_the_end_is_not_told_in_doubt(node):
    """The next leader may have it: its reader would begin at another offset."""
    partition = node.partition()
    for is_sure, code in (
        (True, ErrorCode.OFFSET_OUT_OF_RANGE),
        (False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        for partition.may_take, partition.confirm in doubts(is_sure=is_sure):
            (fetched,) = node.fetch((0, 9), max_wait_ms=0)
            assert fetched.code is code
            with pytest.raises(KafkaError) as refused:
                partition.delete_records(9)
            assert refused.value.code is code


def test_an_offset_below_the_start_is_told_while_all_follow(node, words):
    """Without the registry nothing else would be told for hours."""
    partition = node.partition()
    partition.append(memoryview(words.batch()), acks=-1)
    node.executor.run_all()
    partition.delete_records(1)
    for partition.may_take, partition.confirm in doubts(is_sure=False):
        (fetched,) = node.fetch((0, 0), max_wait_ms=0)
        is_replaced = not partition.may_take(partition)
        expected = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER)[is_replaced]
        assert fetched.code is expected


def test_what_is_certain_is_confirmed_at_once(leader):
    assert leader.standing.confirm(leader.partition).value


def test_a_question_is_answered_once_all_have_followed_since(leader):
    leader.clock.advance(TTL_SECONDS + 1)
    for _ in range(2):
        leader.clock.advance(0.1)
        leader.fetched(2, 3)
    assert leader.takes(), "as far as it has heard"
    leader.clock.advance(0.1)
    asked = leader.standing.confirm(leader.partition)
    leader.clock.advance(0.1)
    leader.fetched(2, 3)
    assert not asked.is_done, "these may have been sent before it was asked"
    leader.clock.advance(0.1)
    leader.fetched(2)
    assert not asked.is_done
    leader.fetched(3)
    assert asked.value


def test_one_that_is_not_followed_is_not_confirmed(leader):
    leader.clock.advance(TTL_SECONDS + 1)
    asked = [leader.standing.confirm(leader.partition) for _ in range(2)]
    leader.fetched(2, 3)
    leader.clock.advance(CONFIRMED_SECONDS - 0.1)
    leader.fetched(2)
    assert not any(each.is_done for each in asked)
    leader.clock.advance(0.1)
    assert [each.value for each in asked] == [False, False]


def test_one_that_was_granted_the_partition_anew_has_to_be_asked_again(leader):
    leader.clock.advance(TTL_SECONDS + 1)
    asked = leader.standing.confirm(leader.partition)
    leader.lead_in(4)
    leader.fetched(2)
    assert asked.value is False


def test_a_registration_that_is_certain_again_confirms_it(leader):
    leader.clock.advance(TTL_SECONDS + 1)
    asked = leader.standing.confirm(leader.partition)
    leader.until = leader.clock.monotonic() + TTL_SECONDS
    leader.fetched(2)
    assert asked.value


def test_nothing_waits_behind_a_stop_or_for_nobody(leader):
    leader.clock.advance(TTL_SECONDS + 1)
    left = leader.standing.confirm(leader.partition)
    left.cancel()
    assert left.is_done
    asked = leader.standing.confirm(leader.partition)
    leader.standing.stop()
    assert asked.value is False
    leader.clock.advance(CONFIRMED_SECONDS)
    leader.fetched(2, 3)


def test_a_question_may_end_while_others_are_answered(leader):
    """Its connection cannot be written to any more."""
    leader.clock.advance(TTL_SECONDS + 1)
    first, second = (leader.standing.confirm(leader.partition) for _ in range(2))
    first.on_done(lambda _: second.cancel())
    leader.until = leader.clock.monotonic() + TTL_SECONDS
    leader.fetched(2)
    assert first.value
    assert second.is_done
