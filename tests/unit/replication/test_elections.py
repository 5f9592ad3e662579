"""Who leads, and who may: ISR and ELR after deaths, returns and lost disks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.ids import LeaderEpoch, NodeId
from ottla.metadata.values import NO_LEADER, PartitionState
from ottla.replication.elections import (
    begin_reassignment,
    cancel_reassignment,
    change_isr,
    effective_min_isr,
    elect,
    elect_preferred,
    elect_unclean,
    elect_unmade,
    fence,
    fenced_epoch_of,
    finish_reassignment,
    grant_anew,
    is_granted,
    withdraw,
)

A, B, C = map(NodeId, (1, 2, 3))


def state(isr=(A, B, C), leader=A, elr=(), replicas=(A, B, C), epoch=5):
    return PartitionState(replicas, isr, leader, LeaderEpoch(epoch), 10, elr=elr)


def test_a_dead_follower_leaves_the_isr_and_the_leader_stays():
    after = fence(state(), B, {A, C}, 2)
    assert after == state(isr=(A, C))._replace(partition_epoch=11)


def test_the_next_in_sync_replica_takes_over_in_a_new_epoch():
    after = fence(state(isr=(C, A)), A, {B, C}, 1)
    assert (after.leader, after.leader_epoch, after.isr) == (C, 6, (C,))
    assert after.elr == ()  # one is enough


def test_who_dies_when_too_few_are_left_stays_eligible():
    after = fence(state(isr=(A, B)), A, {B}, 2)
    assert (after.leader, after.isr, after.elr) == (B, (B,), (A,))


def test_the_last_one_that_dies_leaves_no_leader_and_may_lead_again():
    after = fence(state(isr=(B,), leader=B, elr=(A,)), B, {C}, 2)
    assert (after.leader, after.leader_epoch, after.isr, after.elr) == (NO_LEADER, 6, (), (A, B))
    back = elect(after, {B, C}, 2)
    assert (back.leader, back.leader_epoch, back.isr, back.elr) == (B, 7, (B,), (A,))


def test_a_replica_out_of_isr_and_elr_never_leads_cleanly():
    lonely = state(isr=(), leader=NO_LEADER, elr=(A,))
    assert elect(lonely, {B, C}, 2) is lonely


def test_an_election_that_changes_nothing_is_the_same_state():
    present = state(isr=(B, A), leader=B)
    assert elect(present, {A, B, C}, 2) is present
    assert fence(present, C, {A, B}, 2) is present
    assert withdraw(present, C) is present


def test_an_unclean_election_comes_only_when_no_candidate_lives():
    lonely = state(isr=(A,), leader=NO_LEADER)
    assert elect_unclean(lonely, {A, B}) is lonely
    assert elect_unclean(lonely, ()) is lonely
    after = elect_unclean(lonely, {C, B})
    assert (after.leader, after.isr, after.elr, after.unclean) == (B, (B,), (), True)
    assert after.leader_epoch == 6
    assert not change_isr(after, (B, C), 2).unclean


def test_the_preferred_replica_leads_if_it_is_in_sync_and_live():
    led_by_b = state(isr=(A, B), leader=B)
    after = elect_preferred(led_by_b, {A, B})
    assert (after.leader, after.leader_epoch, after.isr) == (A, 6, (A, B))
    assert elect_preferred(led_by_b, {B}) is led_by_b
    assert elect_preferred(state(isr=(B,), leader=B), {A, B}).leader == B
    assert elect_preferred(after, {A, B}) is after


def test_who_lost_its_log_leads_no_more_and_is_not_eligible():
    after = withdraw(state(isr=(A, B)), A)
    assert (after.leader, after.leader_epoch, after.isr) == (NO_LEADER, 6, (B,))
    assert withdraw(state(isr=(A,), elr=(B,)), B).elr == ()


def unmade(*nodes, of=(A, B, C)):
    """The state of a new topic whose nodes ended before some of them had made their logs."""
    after = state(isr=of, leader=of[0], replicas=of, epoch=0)
    for node in nodes:
        after = withdraw(after, node, has_made=False)
    return after


def test_a_partition_that_no_replica_ever_made_begins_when_one_is_live():
    lost = unmade(A, B, C)
    assert (lost.leader, lost.isr, lost.elr) == (NO_LEADER, (), ())
    assert elect(lost, {A, B, C}, 2) is lost
    assert elect_unmade(lost, ()) is lost
    after = elect_unmade(lost, {C, B})
    assert (after.leader, after.isr, after.elr, after.unclean) == (B, (B,), (), False)
    assert after.leader_epoch == lost.leader_epoch + 1
    assert change_isr(after, (A, B, C), 2).unmade == ()


def test_a_partition_that_no_replica_ever_made_begins_though_a_node_is_added():
    """It was without a leader for ever: the node that is added never makes a log by itself."""
    moving = begin_reassignment(unmade(A, of=(A, B)), (C, A))
    lost = withdraw(withdraw(moving, B, has_made=False), C, has_made=False)
    after = elect_unmade(lost, {B, C})
    assert (after.leader, after.isr, after.unclean) == (C, (C,), False)
    had = begin_reassignment(unmade(A, of=(A, B)), (C, A))
    had = withdraw(change_isr(elect(had, {B}, 1), (B,), 1), B)
    assert elect_unmade(had, {A, B, C}) is had, "B led it"
    moved_anew = begin_reassignment(lost, (C,))
    assert elect_unmade(moved_anew, {C}).leader == C


@pytest.mark.parametrize(
    "lost",
    [
        unmade(A, B),
        withdraw(unmade(A, B), C),
        withdraw(elect_unmade(unmade(A, B, C), {A}), A),
        withdraw(elect_unclean(unmade(A, B, C), {A}), A),
        withdraw(elect_unclean(withdraw(unmade(A, B), C), {A}), A, has_made=False),
        state(isr=(), leader=NO_LEADER, elr=(A,))._replace(unmade=(A, B, C)),
        state(isr=(), leader=NO_LEADER, replicas=()),
        begin_reassignment(unmade(A, of=(A, B)), (A, C)),
    ],
    ids=("two", "lost", "lost later", "unclean", "unclean again", "eligible", "none", "moved"),
)
def test_a_partition_that_some_replica_had_does_not_begin_by_itself(lost):
    assert elect_unmade(lost, {A, B, C}) is lost


def test_a_new_process_leads_only_in_an_epoch_granted_to_it():
    before = state()
    fenced = fenced_epoch_of(before, A)
    assert not is_granted(before, A, fenced)
    assert is_granted(grant_anew(before), A, fenced)
    assert not is_granted(grant_anew(before), B, fenced_epoch_of(before, B))


def test_the_only_replica_goes_on_in_its_epoch():
    alone = state(isr=(A,), replicas=(A,))
    assert is_granted(alone, A, fenced_epoch_of(alone, A))


def test_an_isr_that_grows_large_enough_empties_the_elr():
    small = state(isr=(A,), elr=(B, C))
    assert change_isr(small, (A, C), 3).elr == (B,)
    assert change_isr(small, (A, C), 2).elr == ()
    assert change_isr(state(), (A,), 2).elr == (B, C)


def test_no_commit_needs_more_replicas_than_there_are():
    assert effective_min_isr(state(), 2) == 2
    assert effective_min_isr(state(replicas=(A, B)), 3) == 2


@pytest.mark.parametrize("min_isr", [1, 2, 3])
@given(happenings=st.lists(st.tuples(st.sampled_from("du"), st.sampled_from((A, B, C)))))
def test_a_leader_is_live_and_in_sync_and_epochs_rise(min_isr, happenings):
    live = {A, B, C}
    present = state()
    for what, node in happenings:
        before = present
        if what == "d" and node in live:
            live.remove(node)
            present = fence(present, node, live, min_isr)
        elif what == "u":
            live.add(node)
            present = elect(present, live, min_isr)
        assert present.leader == NO_LEADER or present.leader in live.intersection(present.isr)
        assert not {*present.isr} & {*present.elr}
        assert (present.leader_epoch > before.leader_epoch) == (present.leader != before.leader)
        assert (present.partition_epoch > before.partition_epoch) == (present != before)
        assert present.isr or present.elr
        if present.leader == NO_LEADER:
            assert not live.intersection((*present.isr, *present.elr))


# Reassignment.

D = NodeId(4)
LIVE = {A, B, C, D}


def test_those_that_go_stay_behind_until_the_others_are_in_sync():
    begun = begin_reassignment(state(), (D, B))
    assert begun.replicas == (D, B, A, C)
    assert (begun.adding, begun.removing) == ((D,), (A, C))
    assert (begun.leader, begun.leader_epoch, set(begun.isr)) == (A, 5, {A, B, C})
    assert finish_reassignment(begun, LIVE, 1) is begun, "D is not in sync"
    joined = change_isr(begun, (A, B, C, D), 1)
    after = finish_reassignment(joined, LIVE, 1)
    assert (after.replicas, after.isr, after.leader) == ((D, B), (D, B), D)
    assert (after.leader_epoch, after.adding, after.removing) == (6, (), ())
    assert finish_reassignment(after, LIVE, 1) is after


def test_a_leader_that_stays_leads_on_in_a_new_epoch():
    begun = begin_reassignment(state(), (B, A))
    after = finish_reassignment(begun, LIVE, 2)
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((B, A), (B, A), A, 6)


def test_a_reassignment_waits_for_enough_in_sync_and_for_a_live_leader():
    begun = begin_reassignment(state(isr=(A, B)), (B, C))
    assert finish_reassignment(begun, LIVE, 2) is begun
    assert finish_reassignment(begun, {A, C}, 1) is begun
    assert finish_reassignment(begun, {A, B}, 1).leader == B


def test_another_order_alone_takes_effect_at_once():
    after = begin_reassignment(state(), (C, A, B))
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == (
        (C, A, B),
        (C, A, B),
        A,
        5,
    )
    assert (after.adding, after.removing) == ((), ())


def test_the_only_replica_leads_again_when_a_reassignment_is_cancelled_while_it_is_away():
    begun = begin_reassignment(state(isr=(A,), replicas=(A,)), (A, B))
    nobody = fence(begun, A, {B}, 1)
    assert nobody.leader == NO_LEADER
    after = cancel_reassignment(nobody, {B}, 1)
    assert (after.replicas, after.leader, after.isr, after.elr) == ((A,), A, (A,), ())
    assert after.leader_epoch == nobody.leader_epoch + 1


def test_a_cancelled_reassignment_goes_back_in_a_new_epoch():
    begun = begin_reassignment(state(), (D, B))
    after = cancel_reassignment(begun, LIVE, 1)
    assert (after.replicas, after.adding, after.removing) == ((B, A, C), (), ())
    assert (after.leader, after.leader_epoch) == (A, 6)
    led = change_isr(begun, (A, B, D), 1)._replace(leader=D)
    after = cancel_reassignment(led, LIVE, 1)
    assert (after.leader, after.leader_epoch, after.isr) == (B, 6, (B, A))


def test_another_reassignment_waits_for_those_that_the_one_before_was_to_add():
    """Else the replicas in sync would go, and leave one that has nothing yet."""
    first = begin_reassignment(state(isr=(A, B), replicas=(A, B)), (C, D))
    second = begin_reassignment(first, (A, C))
    assert (second.replicas, second.removing) == ((A, C, D, B), (D, B))
    assert finish_reassignment(second, LIVE, 1) is second
    after = finish_reassignment(change_isr(second, (A, B, C), 1), LIVE, 1)
    assert (after.replicas, after.isr, after.adding, after.left) == ((A, C), (A, C), (), (B, D))
    cancelled = cancel_reassignment(second, LIVE, 1)
    assert (cancelled.replicas, cancelled.adding, cancelled.left) == ((A, B), (), (C, D))
    back = begin_reassignment(first, (A, B))
    assert finish_reassignment(back, LIVE, 1).replicas == (A, B)


def test_it_cannot_go_back_to_replicas_that_lack_what_is_committed():
    alone = state(isr=(A,), replicas=(A,))
    begun = begin_reassignment(alone, (D,))
    led = begun._replace(isr=(D,), leader=D)
    assert cancel_reassignment(led, LIVE, 1) is None
    eligible = led._replace(elr=(A,))
    assert cancel_reassignment(eligible, LIVE, 2).leader == A


def test_who_is_no_replica_any_more_is_remembered_until_it_is_one_again():
    begun = begin_reassignment(state(), (B, D))
    after = finish_reassignment(change_isr(begun, (A, B, C, D), 1), LIVE, 1)
    assert after.left == (A, C)
    again = begin_reassignment(after, (B, A))
    assert again.left == (C,)
    cancelled = cancel_reassignment(again, LIVE, 1)
    assert (cancelled.replicas, cancelled.left) == ((B, D), (A, C))
