"""What a controller does with a partition, by the registrations that there are."""

import pytest

from ottla.ids import LeaderEpoch, NodeId
from ottla.metadata.values import NO_LEADER, PartitionState
from ottla.replication.elector import ElectionRules, next_state

ALL = {NodeId(node): 10 + node for node in (1, 2, 3)}
WRITTEN = 20
"""The revision of the partition's key: newer than all registrations."""


def state(*, leader=1, isr=(1, 2, 3), elr=(), epoch=5):
    nodes = tuple(map(NodeId, (1, 2, 3)))
    return PartitionState(nodes, isr, NodeId(leader), LeaderEpoch(epoch), 7, elr=elr)


def look(before, live=ALL, *, mod_rev=WRITTEN, gone=None, minimum=1, unclean=False):
    missing = {1, 2, 3} - set(live) if gone is None else gone
    return next_state(
        before,
        mod_rev,
        live=live,
        is_gone=missing.__contains__,
        rules=ElectionRules(minimum, unclean),
    )


def without(*nodes):
    return {node: epoch for node, epoch in ALL.items() if node not in nodes}


def test_nothing_is_done_while_all_is_well():
    before = state()
    assert look(before) is before


def test_the_only_replica_is_left_alone():
    before = PartitionState((NodeId(1),), (NodeId(1),), NodeId(1), LeaderEpoch(0), 0)
    assert look(before, {}) is before


def test_another_one_of_the_isr_leads_when_the_leader_is_gone():
    after = look(state(), without(1))
    assert (after.leader, after.leader_epoch, after.isr, after.elr) == (2, 6, (2, 3), ())
    assert after.partition_epoch == 8


def test_a_follower_that_is_gone_leaves_the_isr_and_the_leader_leads_on():
    after = look(state(), without(3))
    assert (after.leader, after.leader_epoch, after.isr) == (1, 5, (1, 2))


def test_who_leaves_a_small_isr_may_still_lead():
    after = look(state(isr=(1, 2)), without(2), minimum=2)
    assert (after.isr, after.elr) == ((1,), (2,))
    nobody = look(after, without(1, 2), minimum=2)
    assert (nobody.leader, nobody.isr, set(nobody.elr)) == (NO_LEADER, (), {1, 2})
    assert look(nobody, without(1), minimum=2).leader == 2


def test_who_was_never_seen_is_not_called_gone():
    before = state(leader=1)
    assert look(before, without(2, 3), gone=()) is before


def test_a_newer_process_of_the_leader_is_granted_a_new_epoch():
    registered_again = {**ALL, NodeId(1): WRITTEN + 1}
    after = look(state(), registered_again)
    assert (after.leader, after.leader_epoch, after.isr) == (1, 6, (1, 2, 3))
    assert look(after, registered_again, mod_rev=WRITTEN + 2) is after


def test_a_fence_of_another_node_does_not_pass_for_a_grant():
    after = look(state(), {NodeId(1): WRITTEN + 1, NodeId(2): 12})
    assert (after.leader, after.leader_epoch, after.isr) == (1, 6, (1, 2))


@pytest.mark.parametrize("unclean", [False, True])
def test_a_replica_that_may_lack_records_leads_only_if_that_is_allowed(unclean):
    after = look(state(isr=(1,)), without(1), unclean=unclean)
    assert after.leader == (2 if unclean else NO_LEADER)
    assert after.unclean is unclean


def test_nobody_leads_uncleanly_while_one_that_has_all_may_come():
    before = state(leader=NO_LEADER, isr=(), elr=(1,))
    assert look(before, without(1), gone=(), unclean=True) is before
