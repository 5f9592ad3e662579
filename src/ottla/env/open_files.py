"""How many files, sockets among them, the operating system lets this process have open."""

import resource
from contextlib import suppress

_OPEN_FILES_WANTED = 1 << 20
"""Where nothing is the limit; more than this no kernel gives by default."""


def open_files_limit() -> int | None:
    """Return the soft limit in force now (``ulimit -n``); None when there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def raise_open_files_limit() -> int | None:
    """Raise the soft limit to the hard one, for each partition, segment and socket is a file.

    Shells give 1024 for the sake of programs that use ``select``. Returns the limit then in force,
    as ``open_files_limit`` does; where the system refuses, the limit stays as it is.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else hard
    if soft not in {resource.RLIM_INFINITY, hard} and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return open_files_limit()
