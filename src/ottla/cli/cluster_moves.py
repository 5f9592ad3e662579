"""``ottla cluster balance`` and ``drain``: print which replicas should move, and move them.

Of any Kafka cluster. ``moving_plan`` decides. Internal topics move, too.
"""

import asyncio
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping

from ottla.cli import output as out
from ottla.cli.failure import Exit, Failure, explain
from ottla.cli.moving_plan import Move, NoPlace, Where, balanced, drained
from ottla.cli.output import Row, note, write_rows
from ottla.cli.run import run
from ottla.client.asyncio.admin import Admin
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.moves import Moves
from ottla.ids import TopicPartition

COLUMNS = ("topic", "partition", "replicas", "to", "moves")
AT_ONCE = 500
"""Partitions in one request."""
LOOK_SECONDS = 0.2
"""Between two looks at what is moving."""

Plan = Callable[
    [Mapping[Where, tuple[int, ...]], Collection[int], Mapping[int, str | None]], list[Move]
]


def balance(options: Namespace) -> None:
    """Spread replicas and leaders over the nodes that are up."""
    _carry_out(options, balanced)


def drain(options: Namespace) -> None:
    """Let a node have no replica."""
    node: int = options.node

    def plan(
        placed: Mapping[Where, tuple[int, ...]],
        nodes: Collection[int],
        racks: Mapping[int, str | None],
    ) -> list[Move]:
        if node not in nodes and all(node not in replicas for replicas in placed.values()):
            raise Failure(f"there is no node {node}", code=Exit.NOT_FOUND)
        try:
            return drained(placed, node, nodes, racks)
        except NoPlace as error:
            topic, partition = error.where
            what = f"node {node} cannot be drained"
            why = f"{topic} {partition} has a replica on every other node that is up"
            fix = "start another node, or let the topic have fewer replicas"
            raise Failure(what, why=why, fix=fix) from error

    _carry_out(options, plan)


def _carry_out(options: Namespace, plan: Plan) -> None:
    async def command(cluster: Cluster) -> None:
        topics = await Admin(cluster).list_topics()
        placed = {
            (topic.name, each.partition): each.replicas
            for topic in topics
            for each in topic.partitions.values()
        }
        view = cluster.view
        moves = plan(placed, sorted(view.brokers), view.racks)
        rows = [_row(move) for move in moves]
        write_rows(rows, COLUMNS, out.chosen(options.output), header=not options.no_header)
        data = sum(len({*move.after} - {*move.before}) for move in moves)
        counted = f"{len(moves)} partitions, {data} replicas to copy"
        if not moves:
            note("nothing has to move")
        elif not options.execute:
            note(f"{counted}: --execute does it")
        else:
            await _execute(Moves(cluster), moves, wait=not options.no_wait)
            note(f"{counted}: {'begun' if options.no_wait else 'done'}")

    run(options, command)


async def _execute(moving: Moves, moves: list[Move], *, wait: bool) -> None:
    for begin in range(0, len(moves), AT_ONCE):
        some = moves[begin : begin + AT_ONCE]
        targets = {TopicPartition(*move.where): move.after for move in some}
        for where, error in (await moving.reassign(targets)).items():
            if error is not None:
                raise Failure(f"{where} does not move", why=explain(error).what)
    if not wait:
        return
    wanted = [TopicPartition(*move.where) for move in moves]
    left = await moving.reassignments(wanted)
    while left:
        await asyncio.sleep(LOOK_SECONDS)
        left = await moving.reassignments(left)
    await moving.elect(wanted)


def _row(move: Move) -> Row:
    topic, partition = move.where
    return {
        "topic": topic,
        "partition": partition,
        "replicas": list(move.before),
        "to": list(move.after),
        "moves": len({*move.after} - {*move.before}),
    }
