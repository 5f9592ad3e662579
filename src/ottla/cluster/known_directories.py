"""Remembers which log directories this node has ever had, and finds out which are missing.

The metadata tells which partitions exist, but not in which log directory each of them is. A node
that starts without one of its directories (it was left out of ``log.dirs``, or its disk is not
mounted and there is an empty directory instead) would create the partitions in it again, empty, and
acknowledge records into them. When the directory came back, there would be two copies. Therefore
the ids of all directories are in the store before a partition is created in any of them. While one
is missing, partitions that are not found are offline, as with a broken disk. If a directory is lost
for good, the operator says so by ``ottla.log.dirs.given.up``.

Stands between ``log.directories`` and the metadata store. Runs once, at a start, before adoption.
Source: Kafka's directory ids (KIP-858), by which its controller knows where each replica is.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

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


class Looked(NamedTuple):
    """What became of the directories that this node has ever had."""

    missing: list[str]
    """One message for each that is not here."""
    are_as_before: bool
    """They are those of the last start, all of them, and none is given up: what is not in them was
    never made, or somebody has removed it by hand."""


class _Here(NamedTuple):
    """The directories that this node is started with."""

    present: dict[str, str]
    """By id, where each is."""
    named_anew: set[str]
    """Paths of those that got their id at this start."""
    offline: set[str]
    """Paths of those whose id cannot be read."""


def _here(directories: Iterable[LogDirectory]) -> _Here:
    here = _Here({}, set(), set())
    for directory in directories:
        if directory.directory_id:
            here.present[directory.directory_id] = directory.path
            if directory.is_named_anew:
                here.named_anew.add(directory.path)
        elif not directory.is_online:
            here.offline.add(directory.path)
    return here


def _joined(known: Mapping[str, str], here: _Here, given_up: Collection[str]) -> KnownBrokerValue:
    """Return what the store is to know, of what it knows and what is here."""
    kept = {
        one: path
        for one, path in known.items()
        if one not in given_up and path not in here.named_anew
    }
    return KnownBrokerValue(kept | here.present)


async def look_for_known(
    store: MetadataStore,
    keys: Keys,
    node_id: NodeId,
    directories: Iterable[LogDirectory],
    given_up: Collection[str],
) -> Looked:
    """Return which of the directories that the store knows are missing.

    ``given_up``: ids that are forgotten, unless their directories are present. The id of an offline
    directory cannot be read, so a known directory with its path is not missing. A directory that
    has lost only its meta.properties replaces the one that was known by its path. Raises what the
    store raises.
    """
    here = _here(directories)
    entry = await store.get(keys.known_broker(node_id))
    before = {} if entry is None else decode_known_broker(entry.value).directories
    missing = {
        one: path
        for one, path in _joined(before, here, given_up).directories.items()
        if one not in here.present and path not in here.offline
    }
    for one, path in missing.items():
        logger.error(_MISSING, path, one)
    return Looked(
        [f"not in log.dirs: {path}" for path in missing.values()],
        are_as_before=before == here.present and not here.named_anew and not here.offline,
    )


async def store_known(
    store: MetadataStore,
    keys: Keys,
    node_id: NodeId,
    directories: Iterable[LogDirectory],
    given_up: Collection[str],
) -> None:
    """Store the ids of this node's ``directories``; ``given_up``: as for ``look_for_known``.

    While the store is unsettled, not before it is settled: a start that is cut short would not find
    again that a directory is new, and lacks what its node counts as in sync for. Raises what the
    store raises.
    """
    here = _here(directories)

    def joined(value: bytes | None) -> bytes:
        known = {} if value is None else decode_known_broker(value).directories
        return encode_known_broker(_joined(known, here, given_up))

    await update(store, keys.known_broker(node_id), joined)
