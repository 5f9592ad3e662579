"""Which of several copies of a partition is served."""

import pytest

from ottla.cluster.copies import Copy, by_partition, choose_topic_id, decide, epoch_above
from ottla.ids import NodeId, TopicId

ID, OTHER_ID = TopicId(b"i" * 16), TopicId(b"o" * 16)
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def copy(epoch=0, end=10, topic_id=ID, start=0):
    return Copy(topic_id, epoch, end, "/d/t-0", start)


@pytest.mark.parametrize(
    ("one", "two", "leader"),
    [
        (copy(3, 60), copy(3, 540), TWO),
        (copy(3, 540), copy(3, 60), ONE),
        (copy(4, 60), copy(3, 540), ONE),
        (copy(-1, 0), copy(0, 0), TWO),
        (copy(3, 60), copy(3, 60, start=40), TWO),
        (copy(3, 60), copy(-1, 60, start=60), TWO),
        (copy(3, 60), copy(-1, 90, start=90), TWO),
        (copy(3, 95), copy(-1, 90, start=90), ONE),
        (copy(4, 60, start=20), copy(3, 90, start=70), TWO),
    ],
)
def test_the_highest_epoch_leads_and_of_that_the_longest_log(one, two, leader):
    state = decide(0, {ONE: one, TWO: two})
    assert (state.leader, state.isr) == (leader, (leader,))
    assert sorted(state.replicas) == [ONE, TWO]
    assert state.replicas[0] == leader, "it is the preferred leader, too"
    assert state.leader_epoch == max(one.latest_epoch, two.latest_epoch) + 1


def test_partitions_take_turns_with_copies_that_are_as_good_as_each_other():
    found = {THREE: copy(), ONE: copy(), TWO: copy()}
    states = [decide(index, found) for index in range(4)]
    assert [state.replicas for state in states] == [
        (ONE, TWO, THREE),
        (TWO, THREE, ONE),
        (THREE, ONE, TWO),
        (ONE, TWO, THREE),
    ]


def test_an_empty_log_gets_the_first_epoch():
    assert epoch_above({ONE: copy(-1, 0)}) == 0
    assert decide(7, {TWO: copy(-1, 0)}).replicas == (TWO,)


def test_the_topic_with_most_copies_is_served_then_the_one_with_most_records():
    old, new = copy(9, 900, OTHER_ID), copy(0, 1)
    assert choose_topic_id([{ONE: new, TWO: old, THREE: new}]) == ID
    assert choose_topic_id([{ONE: new, TWO: old}]) == OTHER_ID
    assert choose_topic_id([{ONE: copy(topic_id=None), TWO: new}]) == ID
    assert choose_topic_id([{ONE: copy(topic_id=None)}]) is None


def test_what_nodes_have_is_put_together_by_partition():
    found = by_partition({TWO: {"t": {0: copy(2)}}, ONE: {"t": {0: copy(1), 3: copy()}, "a": {}}})
    assert found == {"t": {0: {ONE: copy(1), TWO: copy(2)}, 3: {ONE: copy()}}}
