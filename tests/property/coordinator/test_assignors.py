"""The assignors' promises: every partition has one owner, shares are even, little moves."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinator.group.consumer.assignors import Subscriber, assign_range, assign_uniform
from ottla.ids import TopicId

TOPICS = [TopicId(bytes([number]) * 16) for number in range(4)]


@st.composite
def groups(draw, *, same):
    counts = {topic: draw(st.integers(1, 7)) for topic in TOPICS}
    some = st.sets(st.sampled_from(TOPICS), min_size=1).map(lambda one: tuple(sorted(one)))
    everybody = draw(some)
    members = draw(st.integers(1, 6))
    topics = [everybody if same else draw(some) for _ in range(members)]
    instances = [draw(st.sampled_from((None, f"i{number}"))) for number in range(members)]
    return counts, [
        Subscriber(f"m{number}", instances[number], topics[number], {}) for number in range(members)
    ]


def owners(targets):
    held = {}
    for member_id, target in targets.items():
        for topic, numbers in target.items():
            for number in numbers:
                assert (topic, number) not in held, "owned twice"
                held[topic, number] = member_id
    return held


def check(counts, subscribers, targets):
    """Everything that somebody reads is owned once, by one who reads it."""
    held = owners(targets)
    read = {topic for one in subscribers for topic in one.topics}
    assert set(held) == {(topic, number) for topic in read for number in range(counts[topic])}
    reads = {one.member_id: one.topics for one in subscribers}
    assert all(topic in reads[member_id] for (topic, _), member_id in held.items())
    return held


def sizes(subscribers, held):
    return [list(held.values()).count(one.member_id) for one in subscribers]


def after(subscribers, targets):
    return [one._replace(target=targets[one.member_id]) for one in subscribers]


@given(groups(same=True))
def test_uniform_shares_evenly(group):
    counts, subscribers = group
    held = check(counts, subscribers, assign_uniform(subscribers, counts))
    found = sizes(subscribers, held)
    assert max(found) - min(found) <= 1


@given(groups(same=True), st.integers(0, 5), st.booleans())
@settings(max_examples=200)
def test_uniform_moves_no_more_than_it_must(group, which, leaves):
    counts, subscribers = group
    targets = assign_uniform(subscribers, counts)
    before = owners(targets)
    kept = after(subscribers, targets)
    if leaves and len(kept) > 1:
        gone = kept.pop(which % len(kept))
        held = check(counts, kept, assign_uniform(kept, counts))
        moved = [one for one, owner in held.items() if before[one] not in (owner, gone.member_id)]
        assert not moved, "only what the leaver had finds a new owner"
    else:
        kept.append(kept[0]._replace(member_id="new", instance_id=None, target={}))
        held = check(counts, kept, assign_uniform(kept, counts))
        moved = [one for one, owner in held.items() if before[one] != owner]
        assert all(held[one] == "new" for one in moved)


@given(groups(same=False))
def test_uniform_with_different_topics_cannot_be_improved_by_a_move(group):
    counts, subscribers = group
    held = check(counts, subscribers, assign_uniform(subscribers, counts))
    load = dict(zip([one.member_id for one in subscribers], sizes(subscribers, held), strict=True))
    for (topic, _), owner in held.items():
        for one in subscribers:
            if topic in one.topics:
                assert load[owner] - load[one.member_id] <= 1


@given(groups(same=False))
def test_uniform_is_settled_after_one_round(group):
    counts, subscribers = group
    targets = assign_uniform(subscribers, counts)
    assert assign_uniform(after(subscribers, targets), counts) == targets


@given(groups(same=False))
def test_range_cuts_stretches(group):
    counts, subscribers = group
    targets = assign_range(subscribers, counts)
    check(counts, subscribers, targets)
    for target in targets.values():
        for numbers in target.values():
            assert sorted(numbers) == list(range(min(numbers), max(numbers) + 1))


def test_range_goes_by_instance_then_member():
    topic = TOPICS[0]
    subscribers = [
        Subscriber("b", None, (topic,), {}),
        Subscriber("a", "z", (topic,), {}),
        Subscriber("c", "y", (topic,), {}),
    ]
    targets = assign_range(subscribers, {topic: 7})
    assert {one: sorted(target[topic]) for one, target in targets.items()} == {
        "c": [0, 1, 2],
        "a": [3, 4],
        "b": [5, 6],
    }


def test_nobody_gets_nothing():
    for assign in (assign_uniform, assign_range):
        assert assign([], {}) == {}
