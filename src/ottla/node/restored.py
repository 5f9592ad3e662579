"""Whether the metadata still tells who has the newest records, or something was put back.

Asked once, before the first node starts: the nodes decide together then, from all copies
(``Settling``). An old copy that others are in sync beside is no reason: its node leaves the ISRs by
itself (``node.generations``). Reads the generations of all nodes' directories, and writes nothing.
Source: ADR 54.
"""

from collections import defaultdict
from collections.abc import Mapping

from ottla.cluster.generations import Judgement, judge
from ottla.cluster.lineage import read_lineage
from ottla.env.disk import Disk
from ottla.errors import CorruptFile
from ottla.ids import NodeId
from ottla.log.files.checkpoints import read_meta_properties
from ottla.log.files.layout import GENERATION, META_PROPERTIES
from ottla.metadata.keys import Keys
from ottla.metadata.store import MetadataStore
from ottla.metadata.values import decode_generations, decode_partition

Directories = Mapping[str, NodeId]
"""Paths of log directories, and whose they are."""


async def why_unsure(
    store: MetadataStore, keys: Keys, disk: Disk, directories: Directories
) -> str | None:
    """Return why the metadata does not tell who has the newest records; None: it does.

    ``directories``: of all nodes. Blocks, for little. Raises what the store raises.
    """
    judged = await _judged(store, keys, disk, directories)
    if newer := judged[Judgement.OLDER_METADATA]:
        return f"the metadata was restored from an old copy: {_named(newer)} is newer"
    old = judged[Judgement.OLD_COPY]
    if old and await _are_alone(store, keys, {*old.values()}):
        return f"{_named(old)} is an old copy, and who has more is not in sync"
    return None


async def _judged(
    store: MetadataStore, keys: Keys, disk: Disk, directories: Directories
) -> dict[Judgement, dict[str, NodeId]]:
    """Return the directories by what the store says of them; those that it knows."""
    judged: dict[Judgement, dict[str, NodeId]] = defaultdict(dict)
    entries = {node: await store.get(keys.generations(node)) for node in {*directories.values()}}
    known = {
        node: decode_generations(entry.value)
        for node, entry in entries.items()
        if entry is not None
    }
    for path, node in directories.items():
        if node not in known:
            continue
        try:
            meta = read_meta_properties(disk, f"{path}/{META_PROPERTIES}")
            found = read_lineage(disk, f"{path}/{GENERATION}")
        except (OSError, CorruptFile):
            continue  # The node tells, when it starts.
        if meta is not None:
            judged[judge(found, known[node].get(meta.directory_id, ()))][path] = node
    return judged


async def _are_alone(store: MetadataStore, keys: Keys, old: set[NodeId]) -> bool:
    """Tell whether of some partition only nodes with old copies count as having all."""
    entries, _ = await store.scan(keys.partitions)
    for entry in entries:
        state = decode_partition(entry.value)
        if {*state.isr, *state.elr} <= old and not {*state.replicas} <= {state.leader}:
            return True
    return False


def _named(paths: Directories) -> str:
    first, *more = paths
    return f"{first} (and {len(more)} more)" if more else first
