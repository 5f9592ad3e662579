"""What an error of the disk means to the log, and syncs that say so when they fail.

Owns the one table of what each errno means. A full disk refuses a write and takes the next one, and
so does a process that has no descriptor left; anything else, and a sync that failed for whatever
reason, ends the log directory until a restart has verified it. Above env.disk, below everything
else in this room. Source: reliability rules 2 and 18; Kafka's LogDirFailureChannel.
"""

import errno
from enum import Enum

from ottla.env.disk import Disk, File


class Meaning(Enum):
    """What is amiss when the system refuses a call."""

    FULL = "the volume or the quota is full"
    """Refuses writes until there is space; all else goes on."""
    SHORTAGE = "the process or the machine is short of something for a moment"
    """Descriptors, memory: nothing was done, the device had no part in it. Passes by itself: the
    request is refused, and tried again."""
    ONE_PATH = "one path is amiss"
    """A topic's name may be too long for the file system: that must not cost others their
    partitions."""
    BROKEN = "the device is done for"
    """Ends the log directory."""


_MEANINGS = {
    errno.ENOSPC: Meaning.FULL,
    errno.EDQUOT: Meaning.FULL,
    errno.EMFILE: Meaning.SHORTAGE,
    errno.ENFILE: Meaning.SHORTAGE,
    errno.ENOMEM: Meaning.SHORTAGE,
    errno.ENOBUFS: Meaning.SHORTAGE,
    errno.EAGAIN: Meaning.SHORTAGE,
    errno.EINTR: Meaning.SHORTAGE,
    errno.EFBIG: Meaning.ONE_PATH,
    errno.ENOENT: Meaning.ONE_PATH,
    errno.EEXIST: Meaning.ONE_PATH,
    errno.ENOTDIR: Meaning.ONE_PATH,
    errno.EISDIR: Meaning.ONE_PATH,
    errno.ENOTEMPTY: Meaning.ONE_PATH,
    errno.ELOOP: Meaning.ONE_PATH,
    errno.ENAMETOOLONG: Meaning.ONE_PATH,
    errno.EACCES: Meaning.ONE_PATH,
    errno.EPERM: Meaning.ONE_PATH,
}
"""By number; any other is of a device that is done for. Of a sync that failed nothing passes."""
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
"""Only an opening says so, never a sync."""


class SyncFailed(OSError):
    """A sync did not succeed: what it was to make durable may be lost, and may still read back.

    The next sync may call it a success, so none is tried (rule 2).
    """


def sync(file: File) -> None:
    """Make ``file`` durable. Blocks. Raises SyncFailed."""
    try:
        file.sync()
    except OSError as error:
        raise sync_failed(error, file) from error


def sync_failed(error: OSError, file: File) -> SyncFailed:
    """Return what ``file``'s sync, which failed with ``error``, means."""
    return SyncFailed(error.errno, error.strerror, file.path)


def sync_directory(disk: Disk, path: str) -> None:
    """Make the names in directory ``path`` durable. Blocks. Raises SyncFailed.

    Raises a plain OSError when there was no descriptor to open the directory with: nothing was
    synced, and a later call may.
    """
    try:
        disk.sync_directory(path)
    except OSError as error:
        if error.errno in _NO_DESCRIPTOR:
            raise
        raise SyncFailed(error.errno, error.strerror, path) from error


def meaning_of(error: OSError) -> Meaning:
    """Return what ``error`` says of the disk."""
    if isinstance(error, SyncFailed) or error.errno is None:
        return Meaning.BROKEN
    return _MEANINGS.get(error.errno, Meaning.BROKEN)


def ends_directory(error: OSError) -> bool:
    """Tell whether the log directory cannot be relied on any more after ``error``."""
    return meaning_of(error) is Meaning.BROKEN


def is_out_of_space(error: OSError) -> bool:
    """Tell whether ``error`` is a write's that found the volume, or the quota, full."""
    return meaning_of(error) is Meaning.FULL


def is_passing(fault: BaseException) -> bool:
    """Tell whether ``fault`` is a refusal that passes by itself: no space, no descriptors."""
    return isinstance(fault, OSError) and meaning_of(fault) in {Meaning.FULL, Meaning.SHORTAGE}


def is_shortage(error: OSError) -> bool:
    """Tell whether ``error`` passes by itself and is not the disk's."""
    return meaning_of(error) is Meaning.SHORTAGE
