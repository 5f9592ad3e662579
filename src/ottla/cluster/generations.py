"""Whether a log directory is the one that its node has used last, or an old copy of it. Pure.

An old copy (a snapshot of the disk, a restored backup) lacks records that this node has
acknowledged, while the metadata still counts the node as in sync. So each start gives each log
directory of the node a new *generation*, a number with a random token, and so does each minute with
new records, and a clean stop. The store gets it first, beside the one before; then the directory,
durably; then the store forgets the one before. What the directory says is in the store, unless
somebody has put a copy in its place:

    store: [5]      directory: 5     the directory is the newest
    store: [6, 5]   directory: 5     so it is: the process ended before it wrote 6
    store: [6, 5]   directory: 6     so it is: the process ended before the store forgot 5
    store: [6]      directory: 5     it is an old copy
    store: none     directory: 5     the metadata was made anew, or is of a time before

Once the node serves without a directory that it does not wait for any more, the store has a stamp
of it that no directory has: if it comes back, it is an old copy (``superseded``).

Source: Kafka's broker epoch in the mark of a clean stop (KIP-966); ADR 54.
"""

from collections.abc import Sequence
from enum import Enum

from ottla.cluster.lineage import Remembered, next_stamps
from ottla.metadata.values import Stamp


class Judgement(Enum):
    """What the store says of a log directory."""

    NEWEST = "newest"
    """As far as the store can tell, also where it knows nothing."""
    OLD_COPY = "old copy"
    OLDER_METADATA = "older metadata"
    """The directory is newer than all that the store knows: the store is the old copy."""


def judge(found: Remembered | None, known: Sequence[Stamp]) -> Judgement:
    """Judge a directory by the generation that was ``found`` in it; None: it has none.

    ``known``: what the store says of this directory, the newest first.
    """
    stamp = None if found is None else found.stamp
    if not known or stamp in known:
        return Judgement.NEWEST
    newest = max(each.number for each in known)
    if stamp is None or stamp.number < newest:
        return Judgement.OLD_COPY
    return Judgement.OLDER_METADATA


def superseded(found: Remembered | None, known: Sequence[Stamp], token: str) -> tuple[Stamp, ...]:
    """Return what the store is to say of a directory so that it is an old copy from now on.

    ``found``, ``known``: as for ``judge``. ``token``: that of a stamp which no directory gets.
    """
    return next_stamps(found, known, token)[:1]
