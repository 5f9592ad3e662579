"""What a leader makes of its followers' fetches: commits, who is in sync, proposals."""

import pytest

from ottla.ids import LeaderEpoch, NodeId
from ottla.metadata.values import PartitionState
from ottla.replication.replica_state import (
    committed,
    follower_fetched,
    hear,
    lagging,
    maximal_isr,
    may_clear_elr,
    may_join,
    propose_clear,
    propose_expand,
    propose_shrink,
    was_refused,
)

A, B, C = map(NodeId, (1, 2, 3))
END = 100
LAG_MAX_MS = 10_000


def state(isr=(A, B, C), elr=(), epoch=5, partition_epoch=10):
    return PartitionState((A, B, C), isr, A, LeaderEpoch(epoch), partition_epoch, elr=elr)


def view(isr=(A, B, C), elr=(), start=50):
    return hear(None, state(isr, elr), start)


def fetched(before, node, end_offset, *, broker_epoch=7, now_ms=0, log_end_offset=END):
    return follower_fetched(
        before,
        node,
        end_offset,
        broker_epoch=broker_epoch,
        log_end_offset=log_end_offset,
        now_ms=now_ms,
    )


def test_committed_is_what_every_in_sync_replica_has_synced():
    leads = fetched(fetched(view(), B, 80), C, 70)
    assert committed(leads, 90, 0, 2) == 70
    assert committed(leads, 60, 0, 2) == 60


def test_nothing_is_committed_before_every_follower_has_fetched():
    assert committed(fetched(view(), B, 80), 90, 40, 2) == 40


def test_the_high_watermark_never_falls():
    leads = fetched(fetched(view(), B, 80), C, 70)
    assert committed(leads, 90, 75, 2) == 75


@pytest.mark.parametrize("min_isr", [1, 2])
def test_nothing_is_committed_while_others_are_eligible(min_isr):
    leads = fetched(view(isr=(A, B), elr=(C,)), B, 80)
    assert committed(leads, 90, 40, min_isr) == 40


def test_nothing_is_committed_by_too_small_an_isr():
    assert committed(view(isr=(A,)), 90, 40, 2) == 40
    assert committed(view(isr=(A,)), 90, 40, 1) == 90


def test_a_proposed_member_counts_before_it_is_confirmed():
    leads = fetched(fetched(view(isr=(A, B)), B, 80), C, 60)
    leads = propose_expand(leads, C, 2)
    assert maximal_isr(leads) == {A, B, C}
    assert committed(leads, 90, 0, 2) == 60


def test_a_leaving_member_counts_until_it_is_confirmed():
    leads = fetched(fetched(view(), B, 80), C, 60)
    leads = propose_shrink(leads, (C,), 2)
    assert committed(leads, 90, 0, 2) == 60
    told = hear(leads, leads.proposal.state, END)
    assert told.proposal is None
    assert committed(told, 90, 0, 2) == 80


def test_a_new_leader_epoch_voids_what_followers_said():
    leads = fetched(fetched(view(), B, 80), C, 70)
    later = hear(leads, state(epoch=7, partition_epoch=12), 110)
    assert later.remotes == ()
    assert later.epoch_start_offset == 110
    assert committed(later, 110, 40, 2) == 40


def test_a_newer_state_of_the_epoch_keeps_it_and_an_older_one_changes_nothing():
    leads = propose_shrink(fetched(view(), B, 80), (C,), 2)
    newer = hear(leads, state(partition_epoch=11), 110)
    assert newer.remotes == leads.remotes
    assert newer.epoch_start_offset == 50
    assert newer.proposal is None
    assert hear(newer, state(partition_epoch=10), 110) is newer
    assert hear(newer, state(epoch=4, partition_epoch=9), 110) is newer


def test_who_joins_has_all_that_is_committed_and_this_epochs_start():
    leads = view(isr=(A, B))
    assert not may_join(leads, C, 0)
    assert not may_join(fetched(leads, C, 49), C, 0)
    assert may_join(fetched(leads, C, 50), C, 0)
    assert not may_join(fetched(leads, C, 50), C, 51)
    assert not may_join(fetched(leads, B, 90), B, 0)


def test_a_follower_joins_as_the_registration_that_fetched():
    leads = propose_expand(fetched(view(isr=(A, B)), C, 60, broker_epoch=9), C, 2)
    assert (leads.proposal.joining, leads.proposal.broker_epoch) == (C, 9)
    assert leads.proposal.state == state(partition_epoch=11)


def test_a_former_registration_changes_nothing():
    leads = fetched(view(), C, 60, broker_epoch=9)
    assert fetched(leads, C, 80, broker_epoch=8) is leads
    assert fetched(leads, C, 20, broker_epoch=10).remote(C).end_offset == 20


def test_a_node_without_a_replica_changes_nothing():
    leads = view()
    assert fetched(leads, NodeId(9), 80) is leads


def test_a_proposal_is_gone_only_when_it_can_not_come_true():
    leads = propose_shrink(view(), (C,), 2)
    assert was_refused(leads, leads.proposal, is_key_changed=True) is leads
    assert was_refused(leads, leads.proposal, is_key_changed=False).proposal is None
    other = propose_shrink(view(), (B,), 2)
    assert was_refused(leads, other.proposal, is_key_changed=False) is leads


def test_one_proposal_at_a_time():
    leads = propose_shrink(view(), (C,), 2)
    with pytest.raises(AssertionError):
        propose_shrink(leads, (B,), 2)


def test_the_elr_is_cleared_when_a_lowered_minimum_is_reached():
    leads = view(isr=(A,), elr=(B, C))
    assert not may_clear_elr(leads, 2)
    assert may_clear_elr(leads, 1)
    assert propose_clear(leads, 1).proposal.state.elr == ()
    assert not may_clear_elr(view(), 1)


def late(leads, now_ms, end=END):
    return lagging(leads, log_end_offset=end, now_ms=now_ms, began_at_ms=0, lag_max_ms=LAG_MAX_MS)


def test_who_has_all_never_lags():
    leads = fetched(fetched(view(), B, END), C, END)
    assert late(leads, 10 * LAG_MAX_MS) == ()


def test_who_never_fetched_lags_from_the_leaderships_begin_on():
    leads = fetched(view(), B, END)
    assert late(leads, LAG_MAX_MS) == ()
    assert late(leads, LAG_MAX_MS + 1) == (C,)


def test_who_had_all_of_its_last_fetch_keeps_up_while_the_log_grows():
    leads = fetched(view(isr=(A, B)), B, 40, log_end_offset=100, now_ms=1_000)
    # It has now what the log had at 1,000, though not what it has now.
    leads = fetched(leads, B, 100, log_end_offset=200, now_ms=9_000)
    assert leads.remote(B).caught_up_at_ms == 1_000
    assert late(leads, 11_000, end=200) == ()
    assert late(leads, 11_001, end=200) == (B,)


def test_who_only_fetches_and_never_catches_up_lags():
    leads = view(isr=(A, B))
    for second in range(12):
        leads = fetched(leads, B, 10, log_end_offset=100 + second, now_ms=second * 1_000)
    assert late(leads, 11_000, end=200) == (B,)
