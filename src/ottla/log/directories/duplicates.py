"""Partitions that two log directories hold, and which of the two directories is the right one.

A start sets them apart: nobody can tell by the directories alone. Who knows the topics can. Two
directories of one name come to be when the first one's log directory was offline while its topic
was deleted and made anew. So a directory of a topic that is known to be deleted loses its name, as
does one that was never finished: without a topic id or a byte of a log in it. Then the other one is
opened. Anything else stays as it is, for a person to decide. Between log.manager and
cluster.adoption. Source: reliability rule 21.
"""

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.env.disk import Disk
from ottla.env.rng import Rng
from ottla.ids import TopicId, TopicPartition
from ottla.log.directories.directory import DuplicatePartition
from ottla.log.files.checkpoints import read_partition_metadata
from ottla.log.files.faults import is_shortage, sync_directory
from ottla.log.files.layout import (
    PARTITION_METADATA,
    deleted_directory,
    parse_segment_file,
    partition_directory,
)

if TYPE_CHECKING:
    from ottla.log.directories.manager import LogManager

logger = logging.getLogger(__name__)


def settle_duplicates(manager: "LogManager", deleted: Collection[TopicId | None], rng: Rng) -> None:
    """Let the directories of topics that were ``deleted`` make way. Blocks; before hosting.

    What a disk refuses stays offline until the next start, with the mark of the deletion. Never
    for a reason that passes: of two directories the one that could be opened would be served.
    Raises LogDirectoryUnusable when the process is short of something.
    """
    for where, fault in list(manager.offline.items()):
        if isinstance(fault, DuplicatePartition):
            try:
                _settle(manager, where, fault, deleted, rng)
            except OSError as error:
                if is_shortage(error):
                    raise manager.directories[fault.log_dirs[0]].short(error) from error
                logger.error("%s: %s", where, error)  # noqa: TRY400 - the disk's


def _settle(
    manager: "LogManager",
    where: TopicPartition,
    fault: DuplicatePartition,
    deleted: Collection[TopicId | None],
    rng: Rng,
) -> None:
    disk, name = manager.disk, partition_directory(where)
    kept: list[str] = []
    dead: list[str] = []
    online = [log_dir for log_dir in fault.log_dirs if manager.directories[log_dir].is_online]
    for log_dir in online:
        (dead if _is_dead(disk, f"{log_dir}/{name}", deleted) else kept).append(log_dir)
    is_certain = dead or len(online) < len(fault.log_dirs)
    if not is_certain or len(kept) > 1:
        return
    for log_dir in dead:
        target = f"{log_dir}/{deleted_directory(where, rng.random_bytes(16))}"
        disk.rename(f"{log_dir}/{name}", target)
        sync_directory(disk, log_dir)
        manager.remove_later(target)
    manager.open_again(where, *kept)


def _is_dead(disk: Disk, directory: str, deleted: Collection[TopicId | None]) -> bool:
    topic_id = read_partition_metadata(disk, f"{directory}/{PARTITION_METADATA}")
    if topic_id is not None:
        return topic_id in deleted
    return not any(
        disk.size_of(f"{directory}/{name}")
        for name in disk.list_directory(directory)
        if name == PARTITION_METADATA or parse_segment_file(name) is not None
    )
