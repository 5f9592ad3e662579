"""Everything outside of one node: the disk, net, clock, rng and threads that it works with.

Builds the operating system's; a test builds one of doubles. Knows the ports, nothing above them.
"""

from functools import partial
from typing import NamedTuple

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.env.executor import Executor, ThreadExecutor
from ottla.env.net import Net
from ottla.env.open_files import open_files_limit
from ottla.env.real_disk import RealDisk
from ottla.env.real_net import AsyncioNet
from ottla.env.rng import Rng, SystemRng
from ottla.env.stall_meter import MeteredClock, StallMeter

FLUSH_THREADS = 4
"""Threads for fdatasyncs and for unpacking large compressed batches."""
READ_THREADS = 4
"""Threads for reads that have to wait for the device."""
CLEANER_NICENESS = 15
"""Compaction gets only the processor time that producers leave (numbers in ADR 14)."""
LOGIN_THREADS = 2
"""Threads for TLS handshakes: what is costly in them does not hold the interpreter's lock."""
RECOVERY_THREADS = 8
MAKING_THREADS = 8
"""New logs that are made at the same time, for the same reason as ``STOP_THREADS``."""
STOP_THREADS = 16
"""Logs that are closed at the same time: a file system makes many syncs durable together."""


class Environment(NamedTuple):
    """The ports of one node. Tests pass doubles."""

    disk: Disk
    net: Net
    clock: Clock
    rng: Rng
    executor: Executor
    store_executor: Executor
    """One thread, for the metadata store only."""
    read_executor: Executor | None = None
    """For reads of what is not in memory; None: ``executor`` does them."""
    cleaner_executor: Executor | None = None
    """For compaction, which is not urgent; None: ``executor`` does it."""
    login_executor: Executor | None = None
    """For TLS handshakes; None: ``executor`` does them."""
    key_executor: Executor | None = None
    """For asking the issuers of tokens for their keys; None: ``executor`` does it."""
    recovery_threads: int = 1
    """How many logs are recovered at the same time, at a start after a crash."""
    stop_threads: int = 1
    """How many logs are closed at the same time, at a stop."""
    making_threads: int = 1
    """How many new logs are made at the same time."""
    open_files_max: int | None = None
    """How many files and sockets the process may have open; None: no limit."""
    meter: StallMeter | None = None
    """Measures every turn of the loop; None: only the work of connections is measured."""
    steady_clock: Clock | None = None
    """For connections, waiting requests and the loop's turns, where a test lets ``clock`` jump; its
    wall time is that of ``clock``. None: ``clock``."""

    @classmethod
    def real(cls, *, memory: bool) -> "Environment":
        """Return the operating system's ports; with ``memory`` all files are kept in memory."""
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
            login_executor=threads(LOGIN_THREADS, "ottla-login"),
            key_executor=threads(1, "ottla-keys"),
            recovery_threads=1 if memory else RECOVERY_THREADS,
            stop_threads=1 if memory else STOP_THREADS,
            making_threads=1 if memory else MAKING_THREADS,
            open_files_max=open_files_limit(),
            meter=clock.meter,
        )

    @property
    def waits_clock(self) -> Clock:
        """The clock by which clients wait, and which never jumps."""
        return self.steady_clock or self.clock

    def close_executors(self) -> None:
        """Finish the submitted jobs and end the threads. Blocks until that is done."""
        for executor in (
            self.read_executor, self.cleaner_executor, self.login_executor, self.key_executor,
            self.executor, self.store_executor,
        ):  # fmt: skip
            if executor is not None:
                executor.close()


def _memory_disk() -> Disk:
    from ottla.env.memory_disk import MemoryDisk  # noqa: PLC0415 - only --memory needs it

    return MemoryDisk()
