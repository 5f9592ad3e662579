"""How many idempotent producers all partitions of a node may remember together.

Each partition has a bound of its own (``log.producer_state``); a client that writes to thousands
of partitions is met by this one. Looked at now and then, between appends: who has been silent for
the longest goes first, in the partitions that know the most. A forgotten producer may go on
writing; only a resend of its last batches is no longer known as one. Source: reliability's table of
hostile clients, row 19.
"""

from collections.abc import Iterable, Sequence

from ottla.replication.partition import Partition

NODE_PRODUCERS_MAX = 1_000_000


def forget_silent_producers(
    partitions: Iterable[Partition], producers_max: int = NODE_PRODUCERS_MAX
) -> None:
    """Let the partitions remember at most ``producers_max`` producers in sum."""
    states = [partition.log.producers.states for partition in partitions]
    counts = list(map(len, states))
    if sum(counts) <= producers_max:
        return
    level = level_of(counts, producers_max)
    for known, count in zip(states, counts, strict=True):
        if count > level:
            known.forget_oldest(count - level)


def level_of(counts: Sequence[int], limit: int) -> int:
    """Return the largest level with ``sum(min(count, level)) <= limit``; the sum is above it."""
    ascending = sorted(counts)
    left = limit
    for position, count in enumerate(ascending):
        share = left // (len(ascending) - position)
        if count > share:
            return share
        left -= count
    return ascending[-1] if ascending else 0
