"""The outside of one node, as a whole: which disk, net, clock and threads it works with.

Chooses the real ones; a test puts doubles together. Knows the ports and nothing above them.
"""

from functools import partial
from typing import NamedTuple

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.env.executor import Executor, ThreadExecutor
from ottla.env.net import Net
from ottla.env.open_files import raise_open_files_limit
from ottla.env.real_disk import RealDisk
from ottla.env.real_net import AsyncioNet
from ottla.env.rng import Rng, SystemRng
from ottla.env.stall_meter import MeteredClock, StallMeter

FLUSH_THREADS = 4
"""fdatasyncs, and openings of large compressed batches, that may run side by side."""
READ_THREADS = 4
"""Reads from the device side by side."""
CLEANER_NICENESS = 15
"""So that compaction takes what producers leave of the processors (numbers in ADR 14)."""
RECOVERY_THREADS = 8
MAKING_THREADS = 8
"""New logs made side by side, for the same reason as below."""
STOP_THREADS = 16
"""Logs closed side by side: the file system makes the syncs of many durable together."""


class Environment(NamedTuple):
    """Everything outside of one node, as ports. Tests pass doubles."""

    disk: Disk
    net: Net
    clock: Clock
    rng: Rng
    executor: Executor
    store_executor: Executor
    """One thread, for the metadata store alone."""
    read_executor: Executor | None = None
    """For reads of what is not in memory; None: ``executor`` does them."""
    cleaner_executor: Executor | None = None
    """For compaction, which has time; None: ``executor`` does it."""
    recovery_threads: int = 1
    """Logs recovered side by side at a start after a crash."""
    stop_threads: int = 1
    """Logs closed side by side at a stop."""
    making_threads: int = 1
    """New logs made side by side."""
    open_files_max: int | None = None
    """The files, sockets among them, that the process may have open; None: no limit."""
    meter: StallMeter | None = None
    """Measures the turns of the loop; None: only those of connections are."""

    @classmethod
    def real(cls, *, memory: bool) -> "Environment":
        """Return the operating system's; with ``memory`` files are kept in memory only."""
        clock = MeteredClock()
        threads = partial(ThreadExecutor, meter=clock.meter)
        return cls(
            disk=_memory_disk() if memory else RealDisk(),
            net=AsyncioNet(),
            clock=clock,
            rng=SystemRng(),
            executor=threads(FLUSH_THREADS, "ottla-disk"),
            store_executor=threads(1, "ottla-metadata"),
            read_executor=threads(READ_THREADS, "ottla-read"),
            cleaner_executor=threads(1, "ottla-cleaner", niceness=CLEANER_NICENESS),
            recovery_threads=1 if memory else RECOVERY_THREADS,
            stop_threads=1 if memory else STOP_THREADS,
            making_threads=1 if memory else MAKING_THREADS,
            open_files_max=raise_open_files_limit(),
            meter=clock.meter,
        )

    def close_executors(self) -> None:
        """Finish the submitted work and end the threads. Blocks until that is done."""
        for executor in (
            self.read_executor, self.cleaner_executor, self.executor, self.store_executor
        ):  # fmt: skip
            if executor is not None:
                executor.close()


def _memory_disk() -> Disk:
    from ottla.env.memory_disk import MemoryDisk  # noqa: PLC0415 - only --memory needs it

    return MemoryDisk()
