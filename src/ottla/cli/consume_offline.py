"""Partitions that nobody leads: a reader of the others does not wait for them."""

import asyncio
from collections.abc import Sequence

from ottla.cli.failure import Failure
from ottla.cli.output import note
from ottla.client.asyncio.cluster import Cluster
from ottla.ids import TopicPartition

PATIENCE_SECONDS = 2.0
"""An election, or a topic that was made just now, is over sooner."""
PAUSE_SECONDS = 0.1
NAMES_SHOWN = 8


async def without_offline(
    cluster: Cluster, partitions: Sequence[TopicPartition]
) -> tuple[list[TopicPartition], Failure | None]:
    """Return the partitions that are led, and what is to be said of the others at the end.

    Raises that at once when no partition is led.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_SECONDS
    while True:
        topics = cluster.view.topics
        led = {
            TopicPartition(name, each.partition)
            for name in {one.topic for one in partitions}
            if name in topics
            for each in topics[name].partitions.values()
            if each.leader >= 0
        }
        offline = [each for each in partitions if each not in led]
        if not offline:
            return list(partitions), None
        if loop.time() >= deadline:
            break
        await asyncio.sleep(PAUSE_SECONDS)
        await cluster.refresh({one.topic for one in partitions})
    failure = _failure(offline)
    if len(offline) == len(partitions):
        raise failure
    note(f"note: {failure.what}; the others are read")
    return [each for each in partitions if each in led], failure


def _failure(offline: Sequence[TopicPartition]) -> Failure:
    names = ", ".join(map(str, offline[:NAMES_SHOWN]))
    if len(offline) > NAMES_SHOWN:
        names += f" and {len(offline) - NAMES_SHOWN} more"
    are = "is" if len(offline) == 1 else "are"
    return Failure(
        f"{names} {are} offline",
        why="no broker leads it: the one that has it, or its disk, is away",
        fix="ottla cluster health",
    )
