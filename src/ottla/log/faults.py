"""What an error of the disk means to the log, and syncs that say so when they fail.

Owns the one question "is this device done for, or only full?". A full disk (or a limit of this
process) refuses a write and takes the next one; anything else, and a sync that failed for whatever
reason, ends the log directory until a restart has verified it. Above env.disk, below everything
else in this room. Source: reliability rules 2 and 18; Kafka's LogDirFailureChannel.
"""

import errno

from ottla.env.disk import Disk, File

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_LIMITS = frozenset({errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR})
_ONE_PATH = frozenset(
    {
        *(errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.ELOOP),
        *(errno.ENAMETOOLONG, errno.EACCES, errno.EPERM),
    }
)
_PASSING = _FULL | _LIMITS | _ONE_PATH
"""The device is well: it is full, the process is at a limit of its own, or one path is amiss (a
topic's name may be too long for the file system: that must not cost others their partitions)."""


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
    """Make the names in directory ``path`` durable. Blocks. Raises SyncFailed."""
    try:
        disk.sync_directory(path)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, path) from error


def ends_directory(error: OSError) -> bool:
    """Tell whether the log directory cannot be relied on any more after ``error``."""
    return isinstance(error, SyncFailed) or error.errno not in _PASSING


def is_out_of_space(error: OSError) -> bool:
    """Tell whether ``error`` is a write's that found the volume, or the quota, full."""
    return error.errno in _FULL and not isinstance(error, SyncFailed)
