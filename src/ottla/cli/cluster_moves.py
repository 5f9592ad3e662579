"""``ottla cluster balance`` and ``drain``: print which replicas should move, and move them.

Of any Kafka cluster. ``moving_plan`` decides. Internal topics move, too.
"""

import asyncio
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.cli import output as out
from ottla.cli.failure import Exit, Failure, explain
from ottla.cli.moving_plan import Move, NoPlace, Where, balanced, drained
from ottla.cli.output import Row, note, write_rows
from ottla.cli.run import run
from ottla.client.asyncio.admin import Admin
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.moves import Moves, Reassignment
from ottla.client.wire.view import ClusterView
from ottla.ids import TopicPartition

COLUMNS = ("topic", "partition", "replicas", "to", "moves")
AT_ONCE = 500
"""Partitions in one request."""
LOOK_SECONDS = 0.2
"""Between two looks at what is moving."""


class Found(NamedTuple):
    """Where replicas are to be, and the moves that have not brought them there yet."""

    placed: Mapping[Where, tuple[int, ...]]
    under_way: Mapping[TopicPartition, Reassignment]
    hosts: Collection[int]
    """Nodes that have a replica, if only until a move is done."""


Plan = Callable[[Found, ClusterView], list[Move]]


def balance(options: Namespace) -> None:
    """Spread replicas and leaders over the nodes that are up."""
    _carry_out(options, lambda found, cluster: balanced(found.placed, *_nodes(cluster)), None)


def drain(options: Namespace) -> None:
    """Let nodes have no replica."""
    leaving: set[int] = set(options.nodes)

    def plan(found: Found, cluster: ClusterView) -> list[Move]:
        nodes, racks = _nodes(cluster)
        unknown = leaving - {*nodes, *found.hosts}
        if unknown:
            raise Failure(f"there is no node {min(unknown)}", code=Exit.NOT_FOUND)
        try:
            return drained(found.placed, leaving, nodes, racks)
        except NoPlace as error:
            topic, partition = error.where
            several = "nodes" if len(leaving) > 1 else "node"
            what = f"{several} {_numbers(sorted(leaving))} cannot be drained"
            count = len(found.placed[error.where])
            others = _numbers(node for node in nodes if node not in leaving)
            why = f"{topic} {partition} has {count} replicas; other nodes that are up: {others}"
            fix = "start another node, or let the topic have fewer replicas"
            raise Failure(what, why=why, fix=fix) from error

    _carry_out(options, plan, leaving)


async def look(cluster: Cluster, moving: Moves) -> Found:
    """Return where replicas will be once the moves under way are done.

    Metadata tells the replicas that come and those that go as well. Whether it was written before
    or after a move's end is not known of a move that ends meanwhile: then all is asked again.
    """
    under_way = await moving.reassignments()
    while True:
        before = under_way
        placed: dict[Where, tuple[int, ...]] = {
            TopicPartition(topic.name, each.partition): each.replicas
            for topic in await Admin(cluster).list_topics()
            for each in topic.partitions.values()
        }
        under_way = await moving.reassignments()
        ended = before.keys() - under_way.keys()
        if all(placed.get(where) != before[where].replicas for where in ended):
            break
    hosts = {node for replicas in placed.values() for node in replicas}
    for where, each in under_way.items():
        hosts.update(each.replicas)
        if where in placed:
            placed[where] = tuple(node for node in each.replicas if node not in each.removing)
    return Found(placed, under_way, hosts)


def _nodes(view: ClusterView) -> tuple[list[int], Mapping[int, str | None]]:
    return sorted(view.brokers), view.racks


def _carry_out(options: Namespace, plan: Plan, leaving: Collection[int] | None) -> None:
    """Print the plan, and do it if asked to.

    ``leaving``: wait also for earlier moves that take replicas from these nodes; None: for all.
    """

    async def command(cluster: Cluster) -> None:
        moving = Moves(cluster)
        found = await look(cluster, moving)
        moves = plan(found, cluster.view)
        rows = [_row(move) for move in moves]
        write_rows(rows, COLUMNS, out.chosen(options.output), header=not options.no_header)
        wanted = {TopicPartition(*move.where) for move in moves}
        earlier = [
            where
            for where, each in found.under_way.items()
            if (leaving is None or {*leaving} & {*each.removing}) and where not in wanted
        ]
        data = sum(len({*move.after} - {*move.before}) for move in moves)
        counted = f"{len(moves)} partitions, {data} replicas to copy"
        if not moves:
            counted = "nothing has to move"
        if earlier:
            counted += f"; {len(earlier)} partitions are under way already"
        if not options.execute or not (moves or earlier):
            note(f"{counted}: --execute does it" if moves else counted)
            return
        await _begin(moving, moves)
        if not options.no_wait:
            await _wait(moving, [*wanted, *earlier])
            note(f"{counted}: done")
        else:
            note(f"{counted}: begun" if moves else counted)

    run(options, command)


async def _begin(moving: Moves, moves: list[Move]) -> None:
    for begin in range(0, len(moves), AT_ONCE):
        some = moves[begin : begin + AT_ONCE]
        targets = {TopicPartition(*move.where): move.after for move in some}
        outcomes = await moving.reassign(targets, may_change_factor=False)
        for where, error in outcomes.items():
            if error is not None:
                raise Failure(f"{where} does not move", why=explain(error).what)


async def _wait(moving: Moves, wanted: list[TopicPartition]) -> None:
    left = await moving.reassignments(wanted)
    while left:
        await asyncio.sleep(LOOK_SECONDS)
        left = await moving.reassignments(left)
    await moving.elect(wanted)


def _numbers(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, nodes)) or "none"


def _row(move: Move) -> Row:
    topic, partition = move.where
    return {
        "topic": topic,
        "partition": partition,
        "replicas": list(move.before),
        "to": list(move.after),
        "moves": len({*move.after} - {*move.before}),
    }
