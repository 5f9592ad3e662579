"""Partitions of several replicas whose log a node has not when it starts, and whether it ever had.

Asked once, before any log is made. Knows the log manager and nothing above. ``node.replicas`` takes
the node out of their ISRs. Source: rule 10 of several nodes.
"""

from posixpath import basename
from typing import NamedTuple

from ottla.ids import TopicId, TopicPartition
from ottla.log.directories.manager import LogManager
from ottla.log.files.layout import deleted_directory


class Missing(NamedTuple):
    """One partition."""

    where: TopicPartition
    topic_id: TopicId
    was_there: bool = False
    """By a checkpoint there was a log: it is lost."""


def missing(manager: LogManager, where: TopicPartition, topic_id: TopicId) -> Missing | None:
    """Return what is missing of a partition; None: its log is there, or cannot be read now."""
    if where in manager.offline:
        return None
    log = manager.get(where)
    is_there = log is not None and log.topic_id in (None, topic_id)
    # It may be in a log directory that is away: what a refused making has left says nothing.
    if log is not None and is_there and not (log.is_bare and manager.away()):
        return None
    return Missing(where, topic_id, _was_there(manager, where))


def _was_there(manager: LogManager, where: TopicPartition) -> bool:
    """Tell whether a checkpoint tells of a log.

    Not where a directory waits for its removal: it may have been a former topic's.
    """
    name = deleted_directory(where, bytes(16)).rpartition(".")[0]
    return manager.checkpoints.tells_of([where]) and not any(
        basename(path).rpartition(".")[0] == name for path in manager.deleted
    )
