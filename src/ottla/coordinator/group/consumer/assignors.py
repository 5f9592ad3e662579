"""The server's assignors of KIP-848 groups, which give partitions to members. Pure.

``uniform`` spreads all partitions evenly and moves as few as it can; ``range`` gives each member
the same stretch of every topic, so that one member reads all partitions of a number. Neither knows
racks, as in Kafka. Each is a generator that yields now and then, so that other work of the loop has
its turns.
Source: KIP-848; Kafka's UniformAssignor and RangeAssignor in effect.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from ottla.coordinator.group.consumer.member import Target
from ottla.ids import TopicId
from ottla.sliced import STRIDE, Steps, at_once


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: Sequence[TopicId]
    """The existing topics that the member reads, sorted."""
    target: Target
    """The member's target until now."""


Counts = Mapping[TopicId, int]
"""The partitions of each topic that a member reads."""
Assignor = Callable[[Sequence[Subscriber], Counts], Steps[dict[str, Target]]]
_Loads = dict[str, dict[TopicId, set[int]]]


def assign_uniform(subscribers: Sequence[Subscriber], counts: Counts) -> dict[str, Target]:
    """Do as ``uniform``, in one go."""
    return at_once(uniform(subscribers, counts))


def assign_range(subscribers: Sequence[Subscriber], counts: Counts) -> dict[str, Target]:
    """Do as ``in_ranges``, in one go."""
    return at_once(in_ranges(subscribers, counts))


def uniform(subscribers: Sequence[Subscriber], counts: Counts) -> Steps[dict[str, Target]]:
    """Spread evenly: numbers of partitions differ by at most one if all read the same topics."""
    if not subscribers:
        return {}
    if all(one.topics == subscribers[0].topics for one in subscribers):
        loads = yield from _uniform_same(subscribers, counts)
    else:
        loads = yield from _uniform_mixed(subscribers, counts)
    targets: dict[str, Target] = {}
    for member_id, topics in loads.items():
        targets[member_id] = {
            topic_id: frozenset(numbers) for topic_id, numbers in topics.items() if numbers
        }
        if not len(targets) % STRIDE:
            yield None
    return targets


def _uniform_same(subscribers: Sequence[Subscriber], counts: Counts) -> Steps[_Loads]:
    """Spread when all read the same topics: members keep their share, the rest goes round."""
    topics = subscribers[0].topics
    share, extra = divmod(sum(counts[topic_id] for topic_id in topics), len(subscribers))
    taken: set[tuple[TopicId, int]] = set()
    loads: _Loads = {}
    room: dict[str, int] = {}
    held = yield from _kept_by_all(subscribers, counts, taken)
    # Members with more than a share keep one more than those with less: fewer move.
    most = sorted(subscribers, key=lambda one: -len(held[one.member_id]))
    for rank, one in enumerate(most):
        if not rank % STRIDE:
            yield None
        quota = share + (rank < extra)
        mine = held[one.member_id]
        for partition in mine[quota:]:
            taken.discard(partition)
        load: dict[TopicId, set[int]] = {}
        for topic_id, number in mine[:quota]:
            load.setdefault(topic_id, set()).add(number)
        loads[one.member_id] = load
        room[one.member_id] = quota - min(len(mine), quota)
    free = (
        (topic_id, number)
        for topic_id in topics
        for number in range(counts[topic_id])
        if (topic_id, number) not in taken
    )
    for ordinal, one in enumerate(subscribers):
        if not ordinal % STRIDE:
            yield None
        for _ in range(room[one.member_id]):
            topic_id, number = next(free)
            loads[one.member_id].setdefault(topic_id, set()).add(number)
    return loads


def _kept_by_all(
    subscribers: Sequence[Subscriber], counts: Counts, taken: set[tuple[TopicId, int]]
) -> Steps[dict[str, list[tuple[TopicId, int]]]]:
    held: dict[str, list[tuple[TopicId, int]]] = {}
    for one in subscribers:
        held[one.member_id] = _kept(one, counts, taken)
        if not len(held) % STRIDE:
            yield None
    return held


def _kept(
    one: Subscriber, counts: Counts, taken: set[tuple[TopicId, int]]
) -> list[tuple[TopicId, int]]:
    """Return the part of its old target that a member may keep, and note it as taken."""
    kept = []
    for topic_id in one.topics:
        for number in sorted(one.target.get(topic_id, ())):
            if number < counts[topic_id] and (topic_id, number) not in taken:
                taken.add((topic_id, number))
                kept.append((topic_id, number))
    return kept


def _uniform_mixed(subscribers: Sequence[Subscriber], counts: Counts) -> Steps[_Loads]:
    """Spread when members read different topics: give to the smallest, then even out."""
    readers: dict[TopicId, list[str]] = {}
    for ordinal, one in enumerate(subscribers):
        if not ordinal % STRIDE:
            yield None
        for topic_id in one.topics:
            readers.setdefault(topic_id, []).append(one.member_id)
    taken: set[tuple[TopicId, int]] = set()
    loads: _Loads = {one.member_id: {} for one in subscribers}
    sizes = dict.fromkeys(loads, 0)
    held = yield from _kept_by_all(subscribers, counts, taken)
    for member_id, kept in held.items():
        for topic_id, number in kept:
            loads[member_id].setdefault(topic_id, set()).add(number)
            sizes[member_id] += 1
    # Topics with few readers first: their partitions have the least choice.
    by_choice = sorted(readers, key=lambda topic_id: (len(readers[topic_id]), topic_id))
    for topic_id in by_choice:
        yield None
        free = [one for one in range(counts[topic_id]) if (topic_id, one) not in taken]
        _give_out(topic_id, free, readers[topic_id], loads, sizes)
    moved = True
    while moved:  # Each move makes the sum of the squares of the sizes smaller.
        moved = False
        for topic_id in by_choice:
            yield None
            moved |= yield from even_out(topic_id, readers[topic_id], loads, sizes)
    return loads


def _give_out(
    topic_id: TopicId,
    free: Sequence[int],
    readers: Sequence[str],
    loads: _Loads,
    sizes: dict[str, int],
) -> None:
    """Give each partition of a topic to the member with the fewest; of equals, to the first."""
    by_size = [(sizes[member_id], rank) for rank, member_id in enumerate(readers)]
    heapify(by_size)
    for number in free:
        size, rank = by_size[0]
        least = readers[rank]
        loads[least].setdefault(topic_id, set()).add(number)
        sizes[least] = size + 1
        heapreplace(by_size, (size + 1, rank))


def even_out(
    topic_id: TopicId, readers: Sequence[str], loads: _Loads, sizes: dict[str, int]
) -> Steps[bool]:
    """Move partitions of a topic from the member with most to that with fewest.

    While they differ by two. Tells whether any was moved. Of equals, the first gives, and the first
    gets.
    """
    most = [
        (-sizes[member_id], rank)
        for rank, member_id in enumerate(readers)
        if loads[member_id].get(topic_id)
    ]
    least = [(sizes[member_id], rank) for rank, member_id in enumerate(readers)]
    heapify(most)
    heapify(least)
    moves = 0
    while True:
        # A member that gave or got has new entries in both heaps: its old entries are void.
        while most and (
            -most[0][0] != sizes[readers[most[0][1]]]
            or not loads[readers[most[0][1]]].get(topic_id)
        ):
            heappop(most)
        while least[0][0] != sizes[readers[least[0][1]]]:
            heappop(least)
        if not most or -most[0][0] - least[0][0] <= 1:
            return moves > 0
        giver, getter = most[0][1], least[0][1]
        number = max(loads[readers[giver]][topic_id])
        loads[readers[giver]][topic_id].remove(number)
        loads[readers[getter]].setdefault(topic_id, set()).add(number)
        sizes[readers[giver]] -= 1
        sizes[readers[getter]] += 1
        for rank in (giver, getter):
            heappush(most, (-sizes[readers[rank]], rank))
            heappush(least, (sizes[readers[rank]], rank))
        moves += 1
        if not moves % STRIDE:
            yield None


def in_ranges(subscribers: Sequence[Subscriber], counts: Counts) -> Steps[dict[str, Target]]:
    """Cut each topic into stretches, in the order of instance ids, then of member ids."""
    ordered = sorted(
        subscribers,
        key=lambda one: (one.instance_id is None, one.instance_id or one.member_id),
    )
    readers: dict[TopicId, int] = {}
    for one in ordered:
        for topic_id in one.topics:
            readers[topic_id] = readers.get(topic_id, 0) + 1
    given: dict[TopicId, int] = dict.fromkeys(readers, 0)
    targets: dict[str, Target] = {}
    for one in ordered:
        target: dict[TopicId, frozenset[int]] = {}
        for topic_id in one.topics:
            rank = given[topic_id]
            given[topic_id] = rank + 1
            share, extra = divmod(counts[topic_id], readers[topic_id])
            start = rank * share + min(rank, extra)
            end = start + share + (rank < extra)
            if start < end:
                target[topic_id] = frozenset(range(start, end))
        targets[one.member_id] = target
        if not len(targets) % STRIDE:
            yield None
    return targets


ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": in_ranges}
"""The assignors in order of preference: the first one is the default."""
