"""Translates etcd's revisions and keys to the store's revisions and entries, and back. Pure.

An empty etcd is at revision 1, an empty store at 0; both count each commit that changes something.
So the store's revision is etcd's less one. 0 of a key that is absent is 0 in both.
"""

from ottla.metadata.etcd.wire import Event, KeyValue
from ottla.metadata.store import ABSENT, Change, Entry

_FIRST = 1
"""etcd's revision when nothing was ever written."""


def ours(revision: int) -> int:
    """Return the store's revision for one of etcd's."""
    return revision - _FIRST


def etcds(revision: int) -> int:
    """Return etcd's revision for one of the store's that is not that of an absent key."""
    return revision + _FIRST


def etcds_of_key(revision: int) -> int:
    """Return etcd's revision of a key; ABSENT stays what it is."""
    return ABSENT if revision == ABSENT else etcds(revision)


def entry_of(kv: KeyValue) -> Entry:
    """Return a key as the store has it."""
    return Entry(
        kv.key.decode("ascii", errors="replace"),
        kv.value,
        ours(kv.create_revision),
        ours(kv.mod_revision),
        kv.lease,
    )


def change_of(event: Event) -> Change:
    """Return a change as the store has it."""
    entry = entry_of(event.kv)
    return Change(entry.key, None if event.is_deletion else entry)
