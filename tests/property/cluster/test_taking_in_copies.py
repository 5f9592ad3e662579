"""The newest copies are served, whoever starts first and however often starts are cut short."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster import taking_in as module
from ottla.cluster.copies import Copy
from ottla.cluster.taking_in import TakingIn
from ottla.cluster.unsettled import Unsettled, mark
from ottla.env.clock import ManualClock
from ottla.env.rng import SeededRng
from ottla.ids import NodeId, TopicId
from ottla.metadata.keys import Keys
from ottla.metadata.values import decode_partition, decode_topic
from tests.failing_store import CutOff, FailingStore

KEYS = Keys("test")


def partitions(*ids):
    """``ids``: of topics of one name."""
    topic_ids = st.sampled_from([*(TopicId(each * 16) for each in ids), None])
    copies = st.builds(
        Copy,
        topic_ids,
        st.integers(-1, 3),
        st.integers(0, 4),
        st.just("/d"),
        st.integers(0, 4),
    ).filter(lambda copy: copy.log_start_offset <= copy.log_end_offset)
    return st.dictionaries(st.integers(0, 3), copies, min_size=1)


FOUND = st.dictionaries(
    st.sampled_from([NodeId(1), NodeId(2), NodeId(3)]),
    st.fixed_dictionaries({}, optional={"t": partitions(b"i", b"i", b"o"), "u": partitions(b"u")}),
)


async def started(found, cuts):
    """Return the topics and the states after starts that were cut short, and one that was not."""
    store = FailingStore(ManualClock())
    await store.commit([], [mark(KEYS, Unsettled.METADATA)])
    for left in [*cuts, None]:
        store.left = left
        try:
            await TakingIn(store, KEYS, SeededRng(1), lambda _: None).all(found)
        except CutOff:
            assert await store.get(KEYS.unsettled) is not None, "none serves"
    assert await store.get(KEYS.unsettled) is None
    topics, _ = await store.scan(KEYS.topics)
    states, _ = await store.scan(KEYS.partitions)
    await store.close()
    return (
        {one.key: decode_topic(one.value) for one in topics},
        {one.key: decode_partition(one.value) for one in states},
    )


@given(
    found=FOUND,
    cuts=st.lists(st.integers(0, 5), max_size=3),
    at_once=st.integers(1, 3),
    data=st.data(),
)
def test_the_newest_copies_are_served_however_often_starts_are_cut_short(
    found, cuts, at_once, data
):
    before, module.AT_ONCE = module.AT_ONCE, at_once
    try:
        topics, states = asyncio.run(started(found, []))
        order = data.draw(st.permutations(list(found)))
        again = asyncio.run(started({node: found[node] for node in order}, cuts))
    finally:
        module.AT_ONCE = before
    assert again[0].keys() == topics.keys()
    for name in {name for own in found.values() for name in own}:
        topic = topics[KEYS.topic(name)]
        for index in range(topic.partition_count):
            copies = {
                node: own[name][index]
                for node, own in found.items()
                if name in own
                and index in own[name]
                and own[name][index].topic_id in (None, topic.topic_id)
            }
            state = states.get(KEYS.partition(topic.topic_id, index))
            assert (state is None) == (not copies)
            if state is not None:
                start = max(copy.log_start_offset for copy in copies.values())
                alive = {
                    node: copy.rank
                    for node, copy in copies.items()
                    if copy.log_start_offset == start or copy.log_end_offset > start
                }
                best = alive[state.leader]
                assert all(rank <= best for rank in alive.values())
                assert set(state.replicas) == set(copies)
                as_good = {node for node, rank in alive.items() if rank == best}
                assert (state.isr[0], set(state.isr)) == (state.leader, as_good)
                assert all(copy.latest_epoch < state.leader_epoch for copy in copies.values())
    assert sorted(again[1].values()) == sorted(states.values())
