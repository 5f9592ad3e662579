"""Which replicas have to move so that nodes have equally many, or some have none. Pure.

A plan moves as few replicas as it can, and names each partition once. It prefers nodes in racks
where the partition has no other replica. The same cluster gives the same plan.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from heapq import heappop, heappush
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
    hosted = _Hosted(after, free, nodes, racks)
    while True:
        found = _next_move(hosted, count, nodes)
        if found is None:
            return
        where, source, target = found
        hosted.move(where, source, target)
        count[source] -= 1
        count[target] += 1


def _next_move(
    hosted: "_Hosted", count: Mapping[int, int], nodes: Collection[int]
) -> tuple[Where, int, int] | None:
    """Return a partition, the node that it leaves, and the one that has at least two fewer."""
    by_count = sorted(nodes, key=lambda node: (count[node], node))
    for source in reversed(by_count):
        for target in by_count:
            if count[source] - count[target] < 2:
                break
            where = hosted.first(source, target)
            if where is not None:
                return where, source, target
    return None


class _Hosted:
    """The partitions of each node, in the order in which they came to it; finds who may go where.

    A partition is looked at once for each two nodes, not once for each move: whether it may go from
    one to the other changes only when a replica of it moves.
    """

    def __init__(
        self,
        after: Placed,
        free: Iterable[Where],
        nodes: Collection[int],
        racks: Mapping[int, str | None],
    ) -> None:
        self._after = after
        self._nodes = nodes
        self._racks = racks
        self._came: dict[int, list[Where]] = {node: [] for node in nodes}
        """By node: whoever came; stays when it leaves."""
        self._place: dict[tuple[int, Where], int] = {}
        """Where in ``_came`` of a node a partition is that is there now."""
        self._looked: dict[int, dict[int, int]] = {node: {} for node in nodes}
        """By source and target: up to which of those who came nobody may go."""
        self._again: dict[tuple[int, int], list[int]] = {}
        """By source and target: a heap of those before it that have moved since."""
        self._has_apart: dict[tuple[tuple[int, ...], int], bool] = {}
        for where in free:
            for node in after[where]:
                self._enter(where, node)

    def first(self, source: int, target: int) -> Where | None:
        """Return the partition that came first of those that may go from one to the other."""
        again = self._again.get((source, target), [])
        while again:
            where = self._if_may_go(again[0], source, target)
            if where is not None:
                return where
            heappop(again)
        looked = self._looked[source]
        for place in range(looked.get(target, 0), len(self._came[source])):
            looked[target] = place
            where = self._if_may_go(place, source, target)
            if where is not None:
                return where
        looked[target] = len(self._came[source])
        return None

    def move(self, where: Where, source: int, target: int) -> None:
        """Put ``target`` in the place of ``source``."""
        replicas = self._after[where] = _replaced(self._after[where], source, target)
        del self._place[source, where]
        self._enter(where, target)
        for node in replicas:
            place = self._place[node, where]
            for other, looked in self._looked[node].items():
                if place < looked:
                    heappush(self._again.setdefault((node, other), []), place)

    def _enter(self, where: Where, node: int) -> None:
        self._place[node, where] = len(self._came[node])
        self._came[node].append(where)

    def _if_may_go(self, place: int, source: int, target: int) -> Where | None:
        where = self._came[source][place]
        if self._place.get((source, where)) != place:
            return None
        return where if self._may_go(self._after[where], source, target) else None

    def _may_go(self, replicas: tuple[int, ...], source: int, target: int) -> bool:
        """Tell whether ``_targets`` has ``target``, without a list of all."""
        if target in replicas:
            return False
        rack = self._racks.get(target)
        if rack is None or all(
            self._racks.get(node) != rack for node in replicas if node != source
        ):
            return True
        key = (replicas, source)
        if key not in self._has_apart:
            targets = _targets(replicas, (source,), self._nodes, self._racks)
            self._has_apart[key] = target not in targets
        return not self._has_apart[key]


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
