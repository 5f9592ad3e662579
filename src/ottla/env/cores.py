"""How many cores this process may use: those that it is bound to, and its share of their time."""

import os
from contextlib import suppress
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""In a container, its own; the grammar is ``("max" | microseconds) " " period``."""
_OLD_QUOTA = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
_OLD_PERIOD = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def usable_cores() -> int:
    """Return how many, at least 1. Source: sched_getaffinity(2), control groups 1 and 2."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = ""
    with suppress(OSError):
        quota = _QUOTA.read_text(encoding="ascii")
    if not quota:
        with suppress(OSError):
            quota = f"{_OLD_QUOTA.read_text(encoding='ascii').strip()} "
            quota += _OLD_PERIOD.read_text(encoding="ascii")
    return cores_within(cores, quota)


def cores_within(cores: int, quota: str) -> int:
    """Return how many of ``cores`` the quota pays for, rounded down, at least 1.

    ``quota``: as in cpu.max; what has another form is no limit.
    """
    parts = quota.split()
    if len(parts) == len(("quota", "period")) and all(part.isdigit() for part in parts):
        share, period = map(int, parts)
        if period:
            cores = min(cores, share // period)
    return max(cores, 1)
