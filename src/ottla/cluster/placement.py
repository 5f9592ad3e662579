"""Places the replicas of new partitions on live nodes. Pure: counts come in, assignments go out.

Each topic is spread by itself, round robin, so that its load is shared whatever the other topics
do. It begins at the node that is the preferred leader of the fewest partitions, so that topics of
one partition are spread, too. With racks the nodes take turns rack by rack, and a partition has no
two replicas in one rack while another rack has none. Without chance: the same state gives the same
plan. Source: KIP-36; Kafka begins at a random node instead.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ottla.ids import NodeId

Assignment = list[NodeId]
"""The replicas of one partition; the first is the preferred leader."""


def spread(
    indexes: Sequence[int],
    factor: int,
    nodes: Iterable[NodeId],
    *,
    racks: Mapping[NodeId, str | None],
    leads: Mapping[NodeId, int],
) -> list[Assignment]:
    """Return ``factor`` different nodes for each partition index.

    ``factor`` is at most the number of nodes. ``racks``: a node that is not in it, or has None, is
    a rack of its own. ``leads``: of how many partitions a node is the preferred leader.
    """
    ring = _ring(nodes, racks)
    count = len(ring)
    rack_of = {node: _rack(node, racks) for node in ring}
    rack_count = len(set(rack_of.values()))
    start = min(range(count), key=lambda at: leads.get(ring[at], 0))
    placed = []
    for turn, index in enumerate(indexes):
        leader = (start + turn) % count
        # Who follows one leader is another node each time: its load is shared when it dies.
        shift = index // count
        others = [(leader + 1 + (shift + step) % (count - 1)) % count for step in range(count - 1)]
        replicas = [ring[leader]]
        replicas += _followers([ring[at] for at in others], replicas[0], rack_of, rack_count)
        placed.append(replicas[:factor])
    return placed


def _followers(
    nodes: list[NodeId], leader: NodeId, rack_of: Mapping[NodeId, object], rack_count: int
) -> Iterator[NodeId]:
    """Yield the other nodes, those first that have a rack which no one before has."""
    used = {rack_of[leader]}
    later = []
    for node in nodes:
        if len(used) < rack_count and rack_of[node] in used:
            later.append(node)
            continue
        used.add(rack_of[node])
        yield node
    yield from later


def _ring(nodes: Iterable[NodeId], racks: Mapping[NodeId, str | None]) -> list[NodeId]:
    """Return the nodes by id, taking turns between racks: one of each, then the next of each."""
    by_rack: dict[object, list[NodeId]] = {}
    for node in sorted(nodes):
        by_rack.setdefault(_rack(node, racks), []).append(node)
    ring = []
    for turn in range(max(map(len, by_rack.values()))):
        ring += [members[turn] for members in by_rack.values() if turn < len(members)]
    return ring


def _rack(node: NodeId, racks: Mapping[NodeId, str | None]) -> object:
    rack = racks.get(node)
    return node if rack is None else rack
