"""Partition directories that are set aside: nobody opens them, or removes them but people.

A directory that nobody may serve, and that may be missed, loses its name to one that ends in
``-stray``. Whoever decides that knows the topics; see cluster.old_copies. Runs at a start, before
partitions are hosted. Part of the log manager's room. Source: Kafka's stray logs (KAFKA-14616).
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.ids import TopicPartition
from ottla.log.files.faults import is_out_of_space, is_shortage, sync_directory
from ottla.log.files.layout import partition_directory, stray_directory

if TYPE_CHECKING:
    from ottla.log.directories.manager import LogManager


class Stray(NamedTuple):
    """The directory of ``where`` in one log directory."""

    where: TopicPartition
    log_dir: str


def let_go(manager: "LogManager", where: TopicPartition, log_dir: str) -> None:
    """Have the log of ``where`` in ``log_dir`` no more, open or offline; its files stay."""
    log = manager.logs.pop(where, None)
    if log is not None:
        log.abandon()
        manager.directories[log_dir].log_count -= 1
        manager.high_watermarks.pop(where, None)
    elif where in manager.offline:
        manager.offline.end(where)


def set_aside(manager: "LogManager", strays: Iterable[Stray]) -> list[str]:
    """Rename directories whose logs were let go, durably; return what they are called then.

    Blocks. A log directory whose disk refuses that is offline until the next start, which does it
    again. Raises LogDirectoryUnusable when the process is short of something.
    """
    names: dict[str, list[TopicPartition]] = defaultdict(list)
    for where, log_dir in strays:
        names[log_dir].append(where)
    renamed: list[str] = []
    for log_dir, partitions in names.items():
        try:
            for where in partitions:
                renamed.append(_rename(manager, where, log_dir))  # noqa: PERF401 - it may end amid
            sync_directory(manager.disk, log_dir)
        except OSError as error:
            if is_shortage(error):
                raise manager.directories[log_dir].short(error) from error
            manager.fail_directory(log_dir, error)
    return renamed


def _rename(manager: "LogManager", where: TopicPartition, log_dir: str) -> str:
    source = f"{log_dir}/{partition_directory(where)}"
    target = f"{log_dir}/{stray_directory(where, manager.unique())}"
    try:
        manager.disk.rename(source, target)
    except OSError as error:
        if not is_out_of_space(error) or not manager.directories[log_dir].free_reserve():
            raise
        manager.disk.rename(source, target)
    return target
