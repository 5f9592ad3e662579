"""What a benchmark does about its machine: back its memory first, and watch the neighbours.

A page that a virtual machine has never used costs its host a fault when it is first written, inside
whatever system call writes it: the same for every broker, but dearer than most of what is measured.
The host may take cold memory back at any time, so every benchmark begins with this. Linux only.
"""

import argparse
import mmap
import os
import sys
from pathlib import Path
from typing import NamedTuple

MEMORY_SHARE = 0.7
"""Of what is available: the rest is for who else is here."""
OTHERS_SHARE_MAX = 0.1
"""A run in which other processes took more of the processors says little."""
_GIB = 1 << 30
_PROC = Path("/proc")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what says how much memory is backed."""
    parser.add_argument(
        "--memory",
        type=float,
        metavar="GIB",
        help="back so much memory first (default: 70 %% of what is available; 0: none)",
    )


def back_memory(options: argparse.Namespace) -> str:
    """Touch memory once, in a child that ends, so that the host gives it; return what to report."""
    size = int(available_bytes() * MEMORY_SHARE)
    if options.memory is not None:
        size = min(size, int(options.memory * _GIB))
    size -= size % mmap.PAGESIZE
    if size <= 0:
        return "memory was not backed first: fresh pages cost what the host takes for them"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
            mmap.mmap(-1, size, flags=flags).close()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if status:
        return f"backing {size / _GIB:.1f} GiB of memory failed: fresh pages may cost more"
    return f"{size / _GIB:.1f} GiB of memory backed first"


def available_bytes() -> int:
    """Return what the kernel would give without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def begin(options: argparse.Namespace) -> dict[str, object]:
    """Back the memory, say on standard error what was found, and return it for the report."""
    found: dict[str, object] = {
        "memory": back_memory(options),
        "cpus": os.cpu_count(),
        "kernel": os.uname().release,
        "load_before": round(os.getloadavg()[0], 2),
    }
    print(f"{found['memory']}; load {found['load_before']}", file=sys.stderr)
    return found


class Times(NamedTuple):
    """CPU ticks since the start of the machine."""

    busy: int
    """Of all processors."""
    ours: int
    """Of this process, all below it, and the kernel's own threads, which work for them, too."""
    all: int
    """Busy or not."""


class Neighbours:
    """What processes that are none of ours take of the processors, from ``begin`` on."""

    def __init__(self) -> None:
        self._begin = times()

    def share(self) -> float:
        """Return their share of all processors since this was made, 0 to 1."""
        now, begin = times(), self._begin
        spent = (now.busy - begin.busy) - (now.ours - begin.ours)
        return max(spent, 0) / max(now.all - begin.all, 1)


def times() -> Times:
    """Return the ticks as they are now."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, idle, iowait, irq, softirq, steal = fields
    del steal  # Another machine's.
    busy = user + nice + system + irq + softirq
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for directory in _PROC.iterdir():
        if not directory.name.isdigit():
            continue
        try:
            after_name = (directory / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has ended.
        parents[int(directory.name)] = int(after_name[1])
        ticks[int(directory.name)] = int(after_name[11]) + int(after_name[12])
    ours = sum(ticks[process] for process in parents if _is_ours(process, parents))
    return Times(busy, ours, busy + idle + iowait)


def _is_ours(process: int, parents: dict[int, int]) -> bool:
    kernel = 2
    while process > 1:
        if process in {os.getpid(), kernel}:
            return True
        process = parents.get(process, 0)
    return False
