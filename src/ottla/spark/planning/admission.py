"""How much of what is there one micro-batch takes, and whether it is time for one.

Pure; the clock's reading is handed in. Source: Spark's Structured Streaming and Kafka guide
(``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger``, ``maxTriggerDelay``).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Limits:
    """How many offsets a micro-batch has. None: no limit."""

    most: int | None = None
    least: int | None = None


EVERYTHING = Limits()


def backlog(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Return the number of offsets from ``starts`` to ``ends``."""
    return sum(max(end - starts[each], 0) for each, end in ends.items())


def share(
    most: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return ends for ``most`` offsets in all, shared in proportion to what each partition has.

    A partition that has anything gets one offset at least, so that a small one never starves
    beside a large one; with more partitions than ``most`` the sum is above it therefore.
    """
    sizes = {each: max(end - starts[each], 0) for each, end in ends.items()}
    total = sum(sizes.values())
    if total <= most:
        return dict(ends)
    shares = {each: max(most * size // total, 1) if size else 0 for each, size in sizes.items()}
    left = most - sum(shares.values())
    by_rest = sorted(sizes, key=lambda each: (-(most * sizes[each] % total), each))
    for each in by_rest:
        if left > 0 and shares[each] < sizes[each]:
            shares[each] += 1
            left -= 1
    for each in sorted(sizes, key=lambda each: (-shares[each], each)):
        if left < 0 < shares[each]:  # the one offset of the small ones is taken from the large
            taken = min(-left, shares[each] - 1)
            shares[each] -= taken
            left += taken
    return {each: starts[each] + shares[each] if sizes[each] else ends[each] for each in ends}


class Gate:
    """Holds micro-batches back until there is enough for one, but not for ever."""

    def __init__(self, max_delay_ms: int) -> None:
        self._max_delay_seconds = max_delay_ms / 1000
        self._last: float | None = None

    def lets_through(self, offsets: int, least: int | None, now: float) -> bool:
        """Tell whether a micro-batch of so many offsets begins at ``now`` (monotonic seconds).

        The first one does, whatever there is.
        """
        is_due = self._last is None or now - self._last >= self._max_delay_seconds
        if least is not None and offsets < least and not is_due:
            return False
        self._last = now
        return True
