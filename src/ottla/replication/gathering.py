"""Whether followers are told of new records at once, or a moment later of more of them.

Producers that are answered together send their next records together, too, and each answer to a
follower costs a round: a message each way and a sync there. So a leader tells its followers when as
many appends wait for their commit as did the last time, and not later than its own sync of the
first of them ends, which nobody is answered before. Where one producer writes nothing ever waits.
Knows no session and no timer.
"""

from ottla.ids import TopicPartition
from ottla.replication.partition import Partition


class Reading:
    """One answer to a follower while its partitions are looked at, one after the other."""

    __slots__ = ("left_bytes", "may_gather", "put_off", "with_data")

    def __init__(self, left_bytes: int, *, may_gather: bool) -> None:
        self.left_bytes = left_bytes
        self.with_data = 0
        """Partitions of which there are records in it."""
        self.may_gather = may_gather
        """Use: whether it may still leave later: there is no news in it."""
        self.put_off: list[TopicPartition] = []
        """Partitions of which it has no records because more of them are expected."""


def gathers(partition: Partition, more: int = 0) -> bool:
    """Tell whether followers are told of the newest records later: others are expected soon.

    ``more``: how many appends are made that do not wait yet.
    """
    commits = partition.commits
    return partition.is_flushing and len(commits) + more < commits.expected


def follower_told(partition: Partition) -> None:
    """Take note that a follower is told of all that has been appended."""
    commits = partition.commits
    commits.expected = len(commits)
