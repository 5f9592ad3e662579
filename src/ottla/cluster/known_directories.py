"""Which log directories this node has ever had, and which of them it is started without.

The metadata tells which partitions there are, not in which log directory each of them lies. So a
node that is started without one of its directories (left out of ``log.dirs``, a disk that was not
mounted and is an empty directory now) would make the partitions in it anew, empty, and acknowledge
records into them; with the directory back, both would be there. The ids of all directories are
therefore in the store before a partition is made in any of them, and what is not found while one
is missing is offline, as it is while a disk is broken. Who has lost a directory for good says so
by ``ottla.log.dirs.given.up``.

Between log.manager and the metadata store; once, at start, before adoption. Source: Kafka's
directory ids (KIP-858), by which its controller knows where each replica is.
"""

import logging
from collections.abc import Collection, Iterable

from ottla.ids import NodeId
from ottla.log.directories.directory import LogDirectory
from ottla.metadata.keys import Keys
from ottla.metadata.mirror import update
from ottla.metadata.store import MetadataStore
from ottla.metadata.values import KnownBrokerValue, decode_known_broker, encode_known_broker

logger = logging.getLogger(__name__)

_MISSING = (
    "the log directory %s (directory.id %s) is not among those this node is started with: its "
    "partitions are offline; put it back into log.dirs, or name the id in "
    "ottla.log.dirs.given.up when it is lost for good: its partitions are made anew then, empty"
)


async def look_for_known(
    store: MetadataStore,
    keys: Keys,
    node_id: NodeId,
    directories: Iterable[LogDirectory],
    given_up: Collection[str],
) -> list[str]:
    """Store the ``directories`` of this node; return a message about those that are missing.

    ``given_up``: ids that are forgotten unless they are there. A directory that is offline has
    told no id: it is not among those returned if one of its path is known. One that has lost
    its meta.properties, and nothing else, is the one that was known on its path. Raises what the
    store raises.
    """
    present: dict[str, str] = {}
    named_anew: set[str] = set()
    offline: set[str] = set()
    for directory in directories:
        if directory.directory_id:
            present[directory.directory_id] = directory.path
            if directory.is_named_anew:
                named_anew.add(directory.path)
        elif not directory.is_online:
            offline.add(directory.path)

    def joined(value: bytes | None) -> bytes:
        known = {} if value is None else decode_known_broker(value).directories
        kept = {
            one: path
            for one, path in known.items()
            if one not in given_up and path not in named_anew
        }
        return encode_known_broker(KnownBrokerValue(kept | present))

    entry = await update(store, keys.known_broker(node_id), joined)
    known = {} if entry is None else decode_known_broker(entry.value).directories
    missing = {
        one: path for one, path in known.items() if one not in present and path not in offline
    }
    for one, path in missing.items():
        logger.error(_MISSING, path, one)
    return [f"not in log.dirs: {path}" for path in missing.values()]
