"""Which cluster data is of: its id in the metadata, and where the metadata has to be.

Knows no log. Used by a node that keeps the metadata itself, and by a supervisor of several.
"""

from contextlib import suppress

from ottla.env.disk import Disk
from ottla.env.rng import Rng
from ottla.ids import TopicId, topic_id_text
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.metadata.keys import Keys
from ottla.metadata.store import ABSENT, Guard, GuardFailed, MetadataStore, Put
from ottla.metadata.values import MetaValue, decode_meta, encode_meta
from ottla.node.giving_up import METADATA_FILE

STORE_CLUSTER = "local"
"""The name of the one cluster in the embedded store's keys."""
NODES_DIRECTORY = "nodes"
"""Where the directories of further nodes of the host are, below each log directory: ``nodes/2``. No
partition has this name."""


async def agree_on_cluster(store: MetadataStore, keys: Keys, cluster_id: str) -> str:
    """Return the id of the store's cluster: a store that has none takes over ``cluster_id``."""
    meta = Put(keys.meta, encode_meta(MetaValue(cluster_id)))
    try:
        await store.commit([Guard(keys.meta, mod_rev=ABSENT)], [meta])
    except GuardFailed as error:
        if error.found is not None:
            return decode_meta(error.found.value).cluster_id
    return cluster_id


def look_for_metadata_elsewhere(disk: Disk, log_dirs: tuple[str, ...]) -> None:
    """Refuse to begin without the metadata when another log directory has it.

    Topics would be taken in again, without their configs: retention takes what is to stay.
    """
    first, *others = log_dirs
    if not others or disk.exists(f"{first}/{METADATA_FILE}"):
        return
    for other in others:
        with suppress(OSError):
            if disk.exists(f"{other}/{METADATA_FILE}"):
                why = f"the cluster's metadata is not here, but in {other}"
                raise LogDirectoryUnusable(first, why, f"name {other} first in log.dirs")


def new_cluster_id(rng: Rng) -> str:
    """Return a random id in the form that Kafka's tools make."""
    return topic_id_text(TopicId(rng.random_bytes(16)))
