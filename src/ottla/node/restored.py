"""Whether the metadata still tells who has the newest records, or something was put back.

Asked once, before the first node starts: the nodes decide together then, from all copies
(``Settling``). An old copy is no reason while somebody else is in sync who has all log directories
as they were: its node leaves the ISRs by itself (``node.generations``). Reads the generations and
identities of all nodes' directories, and writes nothing. Source: ADR 54.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from ottla.cluster.generations import Judgement, judge
from ottla.cluster.lineage import read_lineage
from ottla.cluster.unsettled import Unsettled
from ottla.env.disk import Disk
from ottla.errors import CorruptFile
from ottla.ids import NodeId
from ottla.log.files.checkpoints import read_meta_properties
from ottla.log.files.layout import GENERATION, META_PROPERTIES
from ottla.metadata.keys import Keys
from ottla.metadata.store import MetadataStore
from ottla.metadata.values import decode_generations, decode_known_broker, decode_partition
from ottla.node.identity import OLD, further_directories, look_for_other_nodes

Directories = Mapping[str, NodeId]
"""Paths of log directories, and whose they are."""
Ids = Mapping[str, str | None]
"""By path the id of a log directory; None: it has none that can be read."""


class Doubt(NamedTuple):
    """That the metadata does not tell who has the newest records."""

    unsettled: Unsettled
    why: str
    """For people."""


async def doubt_of(
    store: MetadataStore, keys: Keys, disk: Disk, directories: Directories
) -> Doubt | None:
    """Return why the metadata does not tell who has the newest records; None: it does.

    ``directories``: of all nodes. Blocks, for little. Raises what the store raises.
    """
    ids = {path: _identity(disk, path) for path in directories}
    judged = await _judged(store, keys, disk, directories, ids)
    if newer := judged[Judgement.OLDER_METADATA]:
        why = f"the metadata was restored from an old copy: {_named(newer)} is newer"
        return Doubt(Unsettled.METADATA, why)
    old = judged[Judgement.OLD_COPY]
    if not old:
        return None
    changed = await _with_other_directories(store, keys, directories, ids)
    if await _are_alone(store, keys, {*old.values(), *changed}):
        why = f"{_named(old)} is an old copy, and nobody who has more is in sync"
        return Doubt(Unsettled.COPIES, why)
    return None


def _identity(disk: Disk, path: str) -> str | None:
    """Return a log directory's id; None: it has none that can be read."""
    try:
        meta = read_meta_properties(disk, f"{path}/{META_PROPERTIES}")
    except (OSError, CorruptFile):
        return None  # The node tells, when it starts.
    return None if meta is None else meta.directory_id


async def _judged(
    store: MetadataStore, keys: Keys, disk: Disk, directories: Directories, ids: Ids
) -> dict[Judgement, dict[str, NodeId]]:
    """Return the directories by what the store says of them; those that it knows."""
    judged: dict[Judgement, dict[str, NodeId]] = defaultdict(dict)
    entries = {node: await store.get(keys.generations(node)) for node in {*directories.values()}}
    known = {
        node: decode_generations(entry.value)
        for node, entry in entries.items()
        if entry is not None
    }
    for path, directory_id in ids.items():
        node = directories[path]
        if directory_id is None:
            continue
        try:
            found = read_lineage(disk, f"{path}/{GENERATION}")
        except OSError:
            continue  # As above.
        if node in known:
            judged[judge(found, known[node].get(directory_id, ()))][path] = node
        elif found is not None:  # The store is of a time before this node had any.
            judged[Judgement.OLDER_METADATA][path] = node
    return judged


async def _with_other_directories(
    store: MetadataStore, keys: Keys, directories: Directories, ids: Ids
) -> set[NodeId]:
    """Return the nodes whose log directories are not those of their last start, or unreadable."""
    found: dict[NodeId, set[str | None]] = defaultdict(set)
    for path, node in directories.items():
        found[node].add(ids[path])
    changed: set[NodeId] = set()
    for node, own in found.items():
        entry = await store.get(keys.known_broker(node))
        if entry is not None and own != {*decode_known_broker(entry.value).directories}:
            changed.add(node)
    return changed


async def _are_alone(store: MetadataStore, keys: Keys, lacking: set[NodeId]) -> bool:
    """Tell whether of some partition all who count as having all may lack records."""
    entries, _ = await store.scan(keys.partitions)
    return any(decode_partition(entry.value).is_in_doubt(lacking) for entry in entries)


def _named(paths: Directories) -> str:
    first, *more = paths
    return f"{first} (and {len(more)} more)" if more else first


async def refuse_to_be_alone(
    store: MetadataStore, keys: Keys, disk: Disk, log_dirs: tuple[str, ...]
) -> None:
    """Refuse to serve the data of several nodes as one when the metadata is older than it.

    Partitions of other nodes may be newer than it knows. Blocks, for little. Raises
    LogDirectoryUnusable, OSError, and what the store raises.
    """
    directories = {path: NodeId(1) for path in log_dirs}
    for log_dir in log_dirs:
        directories |= further_directories(disk, log_dir)
    doubt = await doubt_of(store, keys, disk, directories)
    if doubt is not None and doubt.unsettled is Unsettled.METADATA:
        look_for_other_nodes(disk, log_dirs, 1, amiss=OLD)
