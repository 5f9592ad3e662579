r"""Whether a node's directories and the metadata store are of one history. Pure, but for the file.

A store that was restored from an old backup gives leader epochs a second time, and has replicas in
the ISR that lack what was acknowledged since. Neither epochs nor revisions show it: both go on from
the backup, and may have passed what they were. So a node that has acted on changes *stamps* both
sides: it makes a random token, commits it to a key that only it writes, together with the one
before, and then writes it durably into its directories. The store knows the stamp that a directory
has unless one of the two was restored. The order is what makes that exact:

    store: [2, 1]   directory: 1     the process ended in between: 1 is known
    store: [3, 1]   directory: 1     it tried again, not knowing whether 2 was committed
    store: [3, 1]   directory: 3     both are done

While the store is away the directory is told which revision was acted on: a store behind that is
refused. The file, each line ended by "\n":

    file = "version=1" "number=" digits "token=" 32 hex digits "acted=" digits

Source: PostgreSQL's timelines; ADR 53.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.log.files.checkpoints import read_file, replace_file
from ottla.log.files.faults import sync
from ottla.metadata.values import Stamp

logger = logging.getLogger(__name__)

_FIELDS = ("version", "number", "token", "acted")
_VERSION = "1"
TOKEN_BYTES = 16


class Remembered(NamedTuple):
    """What a node's directories say."""

    stamp: Stamp
    acted: int = 0
    """The store's revision that was acted on and could not be stamped; 0: there is none."""


class Parted(NamedTuple):
    """Directories and store are not of one history."""

    why: str
    fix: str
    """``ANEW`` in it stands for how to begin with an empty directory."""


ANEW = "{anew}"
_OLDER_STORE = (
    f"put a newer backup of etcd back; to go on with this one, start this node {ANEW}: what no"
    " other node has is lost then"
)
_OLDER_DIRECTORY = (
    f"put the newer directory back, or start this node {ANEW}: it fetches from other replicas what"
    " they have"
)


def parted(remembered: Remembered | None, known: Sequence[Stamp], revision: int) -> Parted | None:
    """Return why a node must not join; None: its directories and the store belong together.

    ``remembered`` None: the directories are new, or of a version without stamps. ``known``: what
    the store says of this node, the newest first. ``revision``: the store's.
    """
    if remembered is None:
        return None
    stamp, acted = remembered
    if stamp in known:
        if acted <= revision:
            return None
        why = f"this node has acted on revision {acted}, and the metadata is at {revision}"
        return Parted(f"{why}: it was restored from a backup", _OLDER_STORE)
    newest = max((each.number for each in known), default=0)
    if stamp.number < newest:
        why = f"its stamp {stamp.number} is older than the metadata's, {newest}"
        return Parted(f"{why}: the directory is an old copy", _OLDER_DIRECTORY)
    why = f"the metadata does not know what this node has acted on: its stamp {stamp.number}"
    why = f"{why} is missing, and the newest one is {newest or 'none'}"
    return Parted(f"{why}: the metadata was restored from a backup", _OLDER_STORE)


def next_stamps(
    remembered: Remembered | None, known: Sequence[Stamp], token: str
) -> tuple[Stamp, ...]:
    """Return what the store is to say: a new stamp, and the one that the directories have."""
    before = () if remembered is None else (remembered.stamp,)
    newest = max((each.number for each in (*before, *known)), default=0)
    return (Stamp(newest + 1, token), *before)


def newest_of(found: Iterable[Remembered]) -> Remembered | None:
    """Return what counts of what several directories say: some may have been away for a while."""
    return max(found, key=lambda each: (each.stamp.number, each.acted), default=None)


def write_lineage(disk: Disk, path: str, remembered: Remembered) -> None:
    """Replace the file ``path``, durably. Blocks. Raises OSError."""
    replace_file(disk, path, _text(remembered))


def overwrite_lineage(disk: Disk, path: str, remembered: Remembered) -> None:
    """Overwrite the file ``path``, durably: it needs no space. Blocks. Raises OSError.

    After a power cut amid it the file may be not exactly right.
    """
    content = _text(remembered).encode()
    file = disk.open(path)
    try:
        file.write_at(0, content)
        file.truncate(len(content))
        sync(file)
    finally:
        file.close()


def _text(remembered: Remembered) -> str:
    (number, token), acted = remembered
    values = (_VERSION, str(number), token, str(acted))
    return "".join(f"{name}={value}\n" for name, value in zip(_FIELDS, values, strict=True))


def read_lineages(disk: Disk, paths: Iterable[str]) -> dict[str, Remembered]:
    """Return by path what the files say; what cannot be read is told. Blocks."""
    found: dict[str, Remembered] = {}
    for path in paths:
        try:
            remembered = read_lineage(disk, path)
        except OSError as error:
            logger.error("%s cannot be read: %s", path, error)  # noqa: TRY400 - that is all
            continue
        if remembered is not None:
            found[path] = remembered
    return found


def read_lineage(disk: Disk, path: str) -> Remembered | None:
    """Return what the file ``path`` says; None when absent or not exactly right. Blocks."""
    text = read_file(disk, path)
    if text is None:
        return None
    pairs = [line.partition("=") for line in text.removesuffix("\n").split("\n")]
    if tuple(name for name, _, _ in pairs) != _FIELDS:
        return None
    version, number, token, acted = (value for _, _, value in pairs)
    if version != _VERSION or not number.isdecimal() or not acted.isdecimal():
        return None
    if len(token) != 2 * TOKEN_BYTES:
        return None
    return Remembered(Stamp(int(number), token), int(acted))
