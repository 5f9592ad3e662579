"""Plans of moves: few of them, and every node has equally many, or one has none."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.moving_plan import Move, NoPlace, balanced, drained

NO_RACKS = {}


def placed(*replicas):
    return {("t", number): each for number, each in enumerate(replicas)}


def test_a_new_node_gets_its_share_and_no_more_moves():
    before = placed((1,), (1,), (2,), (2,))
    moves = balanced(before, [1, 2, 3, 4], NO_RACKS)
    assert sorted(move.after for move in moves) == [(3,), (4,)]
    assert balanced(before | {move.where: move.after for move in moves}, [1, 2, 3, 4], {}) == []


def test_what_is_balanced_stays():
    assert balanced(placed((1, 2), (2, 3), (3, 1)), [1, 2, 3], NO_RACKS) == []


def test_leaders_are_spread_without_a_move_of_data():
    moves = balanced(placed((1, 2), (1, 2), (1, 2), (1, 2)), [1, 2], NO_RACKS)
    assert [set(move.before) == set(move.after) for move in moves] == [True, True]
    assert Counter(move.after[0] for move in moves) == {2: 2}


def test_partitions_on_a_node_that_is_away_stay():
    assert balanced(placed((9,), (9,), (1,)), [1, 2], NO_RACKS) == []
    assert balanced(placed((9,)), [], NO_RACKS) == []


def test_a_rack_of_its_own_is_preferred():
    racks = {1: "a", 2: "b", 3: "a", 4: "b"}
    (move,) = drained(placed((1, 2)), [1], [1, 2, 3, 4], racks)
    assert move == Move(("t", 0), (1, 2), (3, 2))


def test_a_drained_node_has_nothing_and_the_others_share_it():
    before = placed((1,), (1,), (1,), (1,), (2,))
    after = before | {move.where: move.after for move in drained(before, [1], [1, 2, 3], {})}
    assert Counter(each for replicas in after.values() for each in replicas) == {2: 3, 3: 2}


def test_a_node_cannot_be_drained_when_all_others_have_a_replica():
    with pytest.raises(NoPlace) as error:
        drained(placed((1, 2), (2, 1)), [1], [1, 2], NO_RACKS)
    assert error.value.where == ("t", 0)


def test_nodes_that_are_drained_together_get_nothing_from_one_another():
    """Drained one after the other, the second one's went to the first, the emptiest of all."""
    before = placed((1,), (2,), (3,), (4,), (3, 4), (4, 1))
    moves = drained(before, [3, 4], [1, 2, 3, 4], NO_RACKS)
    after = before | {move.where: move.after for move in moves}
    counts = Counter(each for replicas in after.values() for each in replicas)
    assert counts == {1: 4, 2: 4}
    with pytest.raises(NoPlace):
        drained(before, [2, 3, 4], [1, 2, 3, 4], NO_RACKS)


def test_the_rack_of_another_node_that_leaves_is_free():
    racks = {1: "a", 2: "b", 3: "a", 4: "b", 5: "c"}
    (move,) = drained(placed((1, 2), (5,), (5,), (5,)), [1, 2], [1, 2, 3, 4, 5], racks)
    assert move.after == (3, 4)


@st.composite
def clusters(draw):
    nodes = list(range(1, draw(st.integers(2, 6)) + 1))
    racks = {node: draw(st.sampled_from([None, "a", "b"])) for node in nodes}
    replicas = st.lists(st.sampled_from(nodes), min_size=1, unique=True).map(tuple)
    return placed(*draw(st.lists(replicas, max_size=30))), nodes, racks


@given(clusters(), st.sets(st.integers(1, 2), min_size=1))
def test_plans_keep_what_has_to_be_kept(cluster, leaving):
    before, nodes, racks = cluster
    moves = balanced(before, nodes, racks)
    after = before | {move.where: move.after for move in moves}
    assert len({move.where for move in moves}) == len(moves)
    for where, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == len(before[where])
        assert set(replicas) <= set(nodes)
    spread = Counter(dict.fromkeys(nodes, 0))
    old = Counter(dict.fromkeys(nodes, 0))
    for where in before:
        spread.update(after[where])
        old.update(before[where])
    assert max(spread.values()) - min(spread.values()) <= max(old.values()) - min(old.values())
    if all(rack is None for rack in racks.values()):
        assert max(spread.values()) - min(spread.values()) <= 1
    try:
        out = drained(before, leaving, nodes, racks)
    except NoPlace:
        others = len(nodes) - len(leaving)
        assert any(len(replicas) > others and leaving & {*replicas} for replicas in before.values())
        return
    left = before | {move.where: move.after for move in out}
    assert all(not leaving & {*replicas} for replicas in left.values())
    assert all({*move.before} & leaving for move in out), "the others stay"
    assert all(len(set(left[where])) == len(before[where]) for where in before)
