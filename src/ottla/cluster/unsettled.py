"""The mark in the store that nobody serves by it yet, and why.

It is there from before the first node starts until all have said what they have; then what the
nodes have decided is in the store, and the mark goes. A start that is cut short finds it again.
"""

from enum import Enum

from ottla.metadata.keys import Keys
from ottla.metadata.store import MetadataStore, Put
from ottla.metadata.values import decode_number, encode_number


class Unsettled(Enum):
    """Why the nodes are to decide who has the newest records."""

    METADATA = 1
    """The metadata is new, or older than the data: what the directories have counts."""
    COPIES = 2
    """Of some partitions only nodes that may lack records count as in sync. All else is right."""


async def read_unsettled(store: MetadataStore, keys: Keys) -> Unsettled | None:
    """Return why the store is unsettled; None: it is settled."""
    entry = await store.get(keys.unsettled)
    return None if entry is None else Unsettled(decode_number(entry.value))


def mark(keys: Keys, why: Unsettled) -> Put:
    """Return what marks the store."""
    return Put(keys.unsettled, encode_number(why.value))
