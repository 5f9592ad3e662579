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


class CountedRacks(dict):
    asked = 0

    def get(self, key, default=None):
        self.asked += 1
        return super().get(key, default)


def test_each_partition_is_looked_at_once_for_two_nodes_not_once_for_each_move():
    """10,000 partitions of two replicas on nine nodes in two racks took two minutes."""
    asked = []
    for count in (300, 1200):
        racks = CountedRacks({node: "ab"[node % 2] for node in range(1, 10)})
        before = placed(*((1 + each % 3, 4 + each % 3) for each in range(count)))
        assert len(balanced(before, range(1, 10), racks)) > count // 2
        asked.append(racks.asked)
    assert asked[1] < 8 * asked[0], "four times as many partitions"


def searched_at_length(before, nodes, racks):
    """The replicas after each move was looked for among all partitions."""
    after = {where: list(replicas) for where, replicas in before.items()}
    came = {node: [where for where in sorted(after) if node in after[where]] for node in nodes}

    def may_go(where, source, target):
        used = {racks[node] for node in after[where] if node != source} - {None}
        others = [node for node in nodes if node not in after[where]]
        return target in ([node for node in others if racks[node] not in used] or others)

    while True:
        order = sorted(nodes, key=lambda node: (len(came[node]), node))
        for source, target in ((a, b) for a in reversed(order) for b in order):
            fits = [where for where in came[source] if may_go(where, source, target)]
            if fits and len(came[source]) - len(came[target]) >= 2:
                break
        else:
            return {where: set(replicas) for where, replicas in after.items()}
        replicas = after[fits[0]]
        replicas[replicas.index(source)] = target
        came[source].remove(fits[0])
        came[target].append(fits[0])


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


@given(clusters())
def test_the_quick_search_finds_what_a_search_at_length_finds(cluster):
    before, nodes, racks = cluster
    after = before | {move.where: move.after for move in balanced(before, nodes, racks)}
    assert {where: {*each} for where, each in after.items()} == searched_at_length(*cluster)
