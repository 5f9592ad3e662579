"""Replicas are spread over nodes and racks, topic by topic and over all topics."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.placement import spread

RACKS = {1: "a", 2: "b", 3: "a", 4: "b", 5: "c"}


def place(count, factor=1, nodes=(1, 2, 3, 4), *, racks=None, leads=None, first=0):
    return spread(range(first, first + count), factor, nodes, racks=racks or {}, leads=leads or {})


def test_topics_of_one_partition_do_not_all_lead_on_the_first_node():
    leads = Counter()
    for _ in range(20):
        ((leader,),) = place(1, leads=leads)
        leads[leader] += 1
    assert leads == {1: 5, 2: 5, 3: 5, 4: 5}


def test_a_topic_is_spread_by_itself_whoever_leads_the_others():
    assert Counter(one[0] for one in place(8, leads={1: 100})) == {1: 2, 2: 2, 3: 2, 4: 2}


def test_the_followers_of_one_leader_are_others_each_time():
    followers = [tuple(one[1:]) for one in place(12, 2) if one[0] == 1]
    assert sorted(followers) == [(2,), (3,), (4,)]


def test_nodes_of_racks_take_turns():
    assert [one[0] for one in place(5, nodes=RACKS, racks=RACKS)] == [1, 2, 5, 3, 4]


def test_no_rack_has_two_replicas_while_another_has_none():
    for replicas in place(30, 3, RACKS, racks=RACKS):
        assert {RACKS[node] for node in replicas} == {"a", "b", "c"}
    for replicas in place(30, 4, RACKS, racks=RACKS):
        assert {RACKS[node] for node in replicas[:3]} == {"a", "b", "c"}


def test_one_node_holds_everything():
    assert place(3, nodes=(7,)) == [[7]] * 3


@given(
    nodes=st.dictionaries(st.integers(0, 50), st.sampled_from(["a", "b", "c", None]), min_size=1),
    data=st.data(),
    count=st.integers(1, 40),
    first=st.integers(0, 100),
)
def test_replicas_differ_and_loads_are_even(nodes, data, count, first):
    factor = data.draw(st.integers(1, len(nodes)))
    placed = place(count, factor, nodes, racks=nodes, first=first)
    assert len(placed) == count
    for replicas in placed:
        assert len({*replicas}) == len(replicas) == factor
        assert nodes.keys() >= {*replicas}
        racks = [nodes[node] or node for node in replicas]
        all_racks = {rack or node for node, rack in nodes.items()}
        assert len({*racks}) == min(factor, len(all_racks))
    led = Counter(one[0] for one in placed)
    assert max(led.values()) - min(led[node] for node in nodes) <= 1
