"""Work on directories of partitions that is to be done, in the order in which it was said.

Owns how much of it is done at a time. Knows no disk: ``replication.hosting`` has it done.
"""

from collections import deque
from typing import NamedTuple

from ottla.ids import TopicId, TopicPartition
from ottla.metadata.values import PartitionState
from ottla.pending import Pending
from ottla.replication.partition import Partition

MADE_PER_STEP = 64
"""Logs made at a time: some ten milliseconds of the disk, and some of the loop to take them."""
REMOVED_PER_STEP = 128
"""Logs closed on the loop, and their directories renamed, at a time."""


class Step(NamedTuple):
    """Work on one partition's directory that is to be done."""

    where: TopicPartition
    topic_id: TopicId
    state: PartitionState | None
    """None: it goes."""
    is_new: bool
    partition: Partition | None = None
    """Of one that goes: what was hosted. None: it was not, or has no directory of its own."""


def slice_of(queue: deque[Step | Pending[None]]) -> list[Step]:
    """Take steps of one kind from the front."""
    steps: list[Step] = []
    while queue and isinstance(queue[0], Step):
        step = queue[0]
        limit = REMOVED_PER_STEP if step.state is None else MADE_PER_STEP
        if steps and (len(steps) >= limit or (step.state is None) != (steps[0].state is None)):
            break
        steps.append(step)
        queue.popleft()
    return steps
