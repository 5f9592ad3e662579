"""How many files, sockets among them, the operating system lets this process have open."""

import resource


def open_files_limit() -> int | None:
    """Return the soft limit in force now (``ulimit -n``); None when there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
