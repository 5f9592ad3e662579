"""Which replicas have to move so that nodes have equally many, or some have none. Pure.

A plan moves as few replicas as it can, and names each partition once. It prefers nodes in racks
where the partition has no other replica. The same cluster gives the same plan.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

Where = tuple[str, int]
"""A topic and a partition of it."""
Placed = dict[Where, tuple[int, ...]]
"""The replicas of each partition; the first is the preferred leader."""


class Move(NamedTuple):
    """A partition whose replicas should be others, or in another order."""

    where: Where
    before: tuple[int, ...]
    after: tuple[int, ...]


class NoPlace(Exception):
    """A partition has as many replicas as there are other nodes, or more."""

    def __init__(self, where: Where) -> None:
        super().__init__(f"{where[0]} {where[1]}")
        self.where = where


def balanced(
    placed: Mapping[Where, tuple[int, ...]],
    nodes: Collection[int],
    racks: Mapping[int, str | None],
) -> list[Move]:
    """Return the moves after which nodes have, and lead, equally many partitions, if they can.

    Partitions with a replica on a node that is not among ``nodes`` stay as they are, and count.
    """
    after = dict(placed)
    free = [where for where in sorted(after) if nodes and {*after[where]} <= {*nodes}]
    _spread(after, free, nodes, racks)
    _spread_leaders(after, free)
    return _moves(placed, after)


def drained(
    placed: Mapping[Where, tuple[int, ...]],
    leaving: Collection[int],
    nodes: Collection[int],
    racks: Mapping[int, str | None],
) -> list[Move]:
    """Return the moves after which no node of ``leaving`` has a replica. Raises NoPlace.

    Each goes to the one of the other ``nodes`` that has fewest by then.
    """
    after = dict(placed)
    others = [node for node in nodes if node not in leaving]
    count = Counter(one for replicas in after.values() for one in replicas)
    for where in sorted(after):
        for source in after[where]:
            if source not in leaving:
                continue
            targets = _targets(after[where], leaving, others, racks)
            if not targets:
                raise NoPlace(where)
            target = min(targets, key=lambda each: (count[each], each))
            after[where] = _replaced(after[where], source, target)
            count[target] += 1
            count[source] -= 1
    _keep_leaders_spread(placed, after)
    return _moves(placed, after)


def _spread(
    after: Placed,
    free: Iterable[Where],
    nodes: Collection[int],
    racks: Mapping[int, str | None],
) -> None:
    count = Counter(one for replicas in after.values() for one in replicas)
    hosted: dict[int, list[Where]] = {node: [] for node in nodes}
    for where in free:
        for node in after[where]:
            hosted[node].append(where)
    while True:
        found = _next_move(after, hosted, count, nodes, racks)
        if found is None:
            return
        where, source, target = found
        after[where] = _replaced(after[where], source, target)
        hosted[source].remove(where)
        hosted[target].append(where)
        count[source] -= 1
        count[target] += 1


def _next_move(
    after: Placed,
    hosted: Mapping[int, list[Where]],
    count: Mapping[int, int],
    nodes: Collection[int],
    racks: Mapping[int, str | None],
) -> tuple[Where, int, int] | None:
    """Return a partition, the node that it leaves, and the one that has at least two fewer."""
    by_count = sorted(nodes, key=lambda node: (count[node], node))
    for source in reversed(by_count):
        for target in by_count:
            if count[source] - count[target] < 2:
                break
            for where in hosted[source]:
                if target in _targets(after[where], (source,), nodes, racks):
                    return where, source, target
    return None


def _targets(
    replicas: tuple[int, ...],
    leaving: Collection[int],
    nodes: Iterable[int],
    racks: Mapping[int, str | None],
) -> list[int]:
    """Return where a replica may go: to racks that have none that stays, if there are such."""
    others = [node for node in nodes if node not in replicas]
    used = {racks.get(node) for node in replicas if node not in leaving} - {None}
    apart = [node for node in others if racks.get(node) not in used]
    return apart or others


def _spread_leaders(after: Placed, free: Collection[Where]) -> None:
    """Put other replicas first until nodes lead equally many, as far as single swaps lead there."""
    leads = Counter(replicas[0] for replicas in after.values() if replicas)
    has_changed = True
    while has_changed:
        has_changed = False
        for where in free:
            replicas = after[where]
            best = min(replicas, key=lambda node: (leads[node], replicas.index(node)))
            if leads[replicas[0]] - leads[best] >= 2:
                leads[replicas[0]] -= 1
                leads[best] += 1
                after[where] = (best, *(node for node in replicas if node != best))
                has_changed = True


def _keep_leaders_spread(placed: Mapping[Where, tuple[int, ...]], after: Placed) -> None:
    """Spread the leaders of those that moved: all of them would be led where they went."""
    moved = [where for where in sorted(after) if after[where] != placed[where]]
    _spread_leaders(after, moved)


def _replaced(replicas: tuple[int, ...], source: int, target: int) -> tuple[int, ...]:
    return tuple(target if node == source else node for node in replicas)


def _moves(placed: Mapping[Where, tuple[int, ...]], after: Placed) -> list[Move]:
    return [
        Move(where, placed[where], after[where])
        for where in sorted(placed)
        if after[where] != placed[where]
    ]
