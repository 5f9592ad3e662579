"""Whether followers are told of new records at once, or a moment later of more of them.

Producers that are answered together send their next records together, too, and each answer to a
follower costs a round: a message each way and a sync there. So a leader tells its followers when as
many appends wait for their commit as did the last time, and not later than its own sync of the
first of them ends, which nobody is answered before. Where one producer writes nothing ever waits.
Knows no session and no timer.
"""

from ottla.replication.partition import Partition


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
