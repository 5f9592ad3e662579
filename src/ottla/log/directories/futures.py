"""What a start makes of copies that were under way when the process ended.

A copy takes its log's place in two steps: the log's directory is renamed to ``-delete``, then the
copy's ``-future`` directory to the partition's name; both bear the same unique number. So a copy
beside such a pair, with no directory of the partition, was complete: it is put in place. Any other
is dropped, as long as the log it was made of is there. Of a copy that stands alone only who knows
the topics can tell whether its topic was deleted. Called by log.opening. Source: reliability rules
3 and 14; Kafka's future replicas (KIP-113).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.ids import TopicPartition
from ottla.log.files.faults import sync_directory
from ottla.log.files.layout import (
    is_deleted_directory,
    parse_future_directory,
    partition_directory,
    unique_part,
)

NamesByDirectory = Mapping[str, Sequence[str]]


class Settled(NamedTuple):
    """What was made of the copies."""

    names: dict[str, list[str]]
    """What is in the log directories then."""
    dropped: list[str]
    """Paths of copies that are to be removed."""
    alone: dict[str, TopicPartition]
    """Copies, by path, whose log is not there: a deleted topic's, or it is somewhere else."""


def settle_futures(disk: Disk, found: NamesByDirectory) -> Settled:
    """Finish or drop what was under way in log directories with these names in them.

    Blocks. Raises OSError.
    """
    names = {log_dir: list(inside) for log_dir, inside in found.items()}
    present = {name for inside in names.values() for name in inside}
    replaced = {unique_part(name) for name in present if is_deleted_directory(name)}
    dropped: list[str] = []
    alone: dict[str, TopicPartition] = {}
    for log_dir, inside in names.items():
        for name in list(inside):
            where = parse_future_directory(name)
            if where is None:
                continue
            target = partition_directory(where)
            if target in present:
                dropped.append(f"{log_dir}/{name}")
            elif unique_part(name) in replaced:
                disk.rename(f"{log_dir}/{name}", f"{log_dir}/{target}")
                sync_directory(disk, log_dir)
                inside[inside.index(name)] = target
                present.add(target)
            else:
                alone[f"{log_dir}/{name}"] = where
    return Settled(names, dropped, alone)
