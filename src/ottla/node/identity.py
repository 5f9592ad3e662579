"""Which cluster data is of: its id in the metadata, and where the metadata has to be.

Knows no log. Used by a node that keeps the metadata itself, and by a supervisor of several.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from os.path import abspath, realpath

from ottla.cluster.unsettled import Unsettled, mark, read_unsettled
from ottla.config.broker import LOG_DIRS_GIVEN_UP
from ottla.env.disk import Disk
from ottla.env.rng import Rng
from ottla.ids import NodeId, TopicId, topic_id_text
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.log.files.layout import META_PROPERTIES, parse_partition_directory
from ottla.metadata.keys import Keys
from ottla.metadata.store import ABSENT, Guard, GuardFailed, MetadataStore, Put
from ottla.metadata.values import MetaValue, decode_meta, encode_meta
from ottla.node.giving_up import METADATA_FILE

STORE_CLUSTER = "local"
"""The name of the one cluster in the embedded store's keys."""
NODES_DIRECTORY = "nodes"
"""Where the directories of further nodes of the host are, below each log directory: ``nodes/2``. No
partition has this name."""


LOST, OLD, UNSETTLED = "lost", "an old copy", "lost, or older than the data"
"""What metadata is by which nobody serves, for people: that which is new, that which is older than
a log directory, and that of which an earlier start has found one of the two."""


async def is_settled(store: MetadataStore, keys: Keys) -> bool:
    """Tell whether the store may be right: not while it is new, or older than the data."""
    if await store.get(keys.meta) is None:
        return False
    return await read_unsettled(store, keys) is not Unsettled.METADATA


async def agree_on_cluster(
    store: MetadataStore, keys: Keys, cluster_id: str, *, of_several: bool = False
) -> str:
    """Return the id of the store's cluster: a store that has none takes over ``cluster_id``.

    ``of_several``: of several nodes; a new store is unsettled until all have said what they have.
    """
    ops = [Put(keys.meta, encode_meta(MetaValue(cluster_id)))]
    if of_several:
        ops.append(mark(keys, Unsettled.METADATA))
    try:
        await store.commit([Guard(keys.meta, mod_rev=ABSENT)], ops)
    except GuardFailed as error:
        if error.found is not None:
            return decode_meta(error.found.value).cluster_id
    return cluster_id


def look_for_metadata_elsewhere(disk: Disk, log_dirs: tuple[str, ...]) -> None:
    """Refuse to begin without the metadata when another log directory has it.

    Topics would be taken in again, without their configs, users and ACLs.
    """
    first, *others = log_dirs
    if not others or disk.exists(f"{first}/{METADATA_FILE}"):
        return
    for other in others:
        with suppress(OSError):
            if disk.exists(f"{other}/{METADATA_FILE}"):
                why = f"the cluster's metadata is not here, but in {other}"
                raise LogDirectoryUnusable(first, why, f"name {other} first in log.dirs")


def refuse_one_twice(log_dirs: Sequence[str]) -> None:
    """Refuse one directory by two paths, as Kafka does: it would be in use by this very node.

    ``log_dirs``: as they were given. Blocks. Raises LogDirectoryUnusable.
    """
    known: dict[str, str] = {}
    for path in log_dirs:
        first = known.setdefault(realpath(path), path)
        if first != path:
            why = f"it is the same directory as {first}"
            raise LogDirectoryUnusable(path, why, "name each directory once in log.dirs")


def look_for_other_nodes(
    disk: Disk, log_dirs: tuple[str, ...], count: int, *, amiss: str = LOST
) -> None:
    """Refuse to begin without the newest metadata when nodes above ``count`` have partitions.

    Nobody would serve those, and new records would be taken beside them. ``amiss``: what the
    metadata is, for people. Blocks. Raises LogDirectoryUnusable, OSError.
    """
    found = sorted({node for log_dir in log_dirs for node in _with_partitions(disk, log_dir)})
    others = [f"{NODES_DIRECTORY}/{node}" for node in found if node > count]
    if others:
        where = ", ".join(others)
        why = (
            f"the metadata is {amiss}, and there are partitions in {where}: their copies may be"
            " newer"
        )
        fix = f"ottla serve --nodes {found[-1]}; or move {where} away, to do without that"
        raise LogDirectoryUnusable(log_dirs[0], why, fix)


def refuse_new_directories(
    disk: Disk, directories: Sequence[str], given_up: Collection[str], *, amiss: str = LOST
) -> None:
    """Refuse to begin without the newest metadata when some directories have data, others are new.

    Those are not mounted, perhaps, and may have the newest records. ``directories``: of all nodes;
    what is broken there its node tells. ``given_up``: paths of those that may be new. ``amiss``: as
    for ``look_for_other_nodes``. Blocks. Raises LogDirectoryUnusable, OSError.
    """
    new = [
        path
        for path in directories
        if not disk.exists(f"{path}/{META_PROPERTIES}")
        and (disk.is_directory(path) or not disk.exists(path))
    ]
    if len(new) == len(directories):
        return
    allowed = set(map(abspath, given_up))
    for path in new:
        if path not in allowed:
            why = (
                f"the metadata is {amiss}, and this directory is new: it may have had newer records"
            )
            fix = (
                "mount its disk, or put it back; if it is lost for good, or of a new node, start"
                f" once with -D {LOG_DIRS_GIVEN_UP.key}={','.join(new)}"
            )
            raise LogDirectoryUnusable(path, why, fix)


def have_partitions(disk: Disk, log_dirs: Sequence[str]) -> bool:
    """Tell whether a node of this host has a partition in these directories. Blocks.

    One that cannot be read may have some: that counts.
    """
    try:
        return any(
            has_partitions(disk, log_dir) or any(_with_partitions(disk, log_dir))
            for log_dir in log_dirs
        )
    except OSError:
        return True


def has_partitions(disk: Disk, directory: str) -> bool:
    """Tell whether there are directories of partitions in ``directory``. Blocks; raises OSError."""
    found = disk.list_directory(directory)
    return any(parse_partition_directory(name) is not None for name in found)


def _with_partitions(disk: Disk, log_dir: str) -> Iterator[int]:
    """Yield the further nodes that have directories of partitions in ``log_dir``."""
    for path, node in further_directories(disk, log_dir).items():
        if has_partitions(disk, path):
            yield node


def further_directories(disk: Disk, log_dir: str) -> dict[str, NodeId]:
    """Return the directories of further nodes in ``log_dir``, and whose they are. Blocks."""
    above = f"{log_dir}/{NODES_DIRECTORY}"
    names = disk.list_directory(above) if disk.exists(above) else []
    return {
        f"{above}/{name}": NodeId(int(name))
        for name in names
        if name.isascii() and name.isdigit() and disk.is_directory(f"{above}/{name}")
    }


def new_cluster_id(rng: Rng) -> str:
    """Return a random id in the form that Kafka's tools make."""
    return topic_id_text(TopicId(rng.random_bytes(16)))
