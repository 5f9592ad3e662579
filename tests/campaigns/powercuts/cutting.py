"""A disk that cuts the power, or kills its process, at the n-th change that is asked of it.

Owns when a cut comes and what it does. Runs inside the broker's process; nothing of a cut is
simulated: the process dies by SIGKILL, the file system by its shutdown call. Every change counts
(a name made, a write, a cut, a sync, a rename, ...), so that enumerating n visits every prefix of
an operation's calls.
"""

import os
import random
import signal
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ottla.env.disk import Buffer, Disk, File
from ottla.env.faulty_disk import CHANGES, DiskCall, FaultyDisk, FaultyFile
from ottla.env.sync_prices import COUNT_MIN, SyncPrices
from powercuts.volume import LOGFLUSH, NOLOGFLUSH, cut_power

COUNTED = CHANGES - {DiskCall.LOCK}
"""Openings are counted when they make a file; a lock is gone with its process."""


class CutKind(Enum):
    """What happens at the chosen call."""

    KILL = "kill"
    """The process dies; the kernel lives."""
    JOURNAL = "journal"
    """The power goes; names and lengths were written, data was not (flag 1)."""
    NOTHING = "nothing"
    """The power goes; nothing was written that was not synced (flag 2)."""
    SOME = "some"
    """The power goes; the kernel had written some files by itself, others not (then flag 2)."""
    TORN = "torn"
    """The power goes in the middle of a write whose first half the kernel had written."""


class CutPlan(NamedTuple):
    """When and how: at the ``nth`` change, or after some time (SQLite's calls are not counted).

    Both 0: never, only count. ``seed`` chooses for SOME.
    """

    nth: int
    kind: CutKind
    seed: int = 0
    after_us: int = 0


NEVER = CutPlan(0, CutKind.KILL)


class CuttingDisk(FaultyDisk):
    """``inner`` with a planned end."""

    def __init__(self, inner: Disk, mount_point: str, teller: socket.socket) -> None:
        super().__init__(inner)
        self._real = inner
        self._mount_point = mount_point
        self._teller = teller
        self._plan = NEVER
        self.changes = 0
        """Changes asked for since ``arm``."""

    def arm(self, plan: CutPlan) -> None:
        """Count, or let the time run, from now on."""
        self.changes = 0
        self._plan = plan
        if plan.after_us:
            timer = threading.Timer(plan.after_us / 1e6, self.cut, ("time", "passed"))
            timer.daemon = True
            timer.start()

    def enter(self, call: DiskCall, path: str) -> None:
        """Count a call; end here if it is the one."""
        self.counts[call] += 1
        if call in COUNTED:
            self.changes += 1
            if self.changes == self._plan.nth:
                self.cut(call.value, path)

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> "CuttingFile":
        """As ``Disk.open``; counted when it makes the file."""
        if create and not self._real.exists(path):
            self.enter(DiskCall.OPEN, path)
        return CuttingFile(self, self._real.open(path, create=create, exclusive=exclusive))

    def open_read_only(self, path: str) -> "CuttingFile":
        """As ``Disk.open_read_only``."""
        return CuttingFile(self, self._real.open_read_only(path))

    def advise_sequential(self, files: Iterable[File]) -> None:
        """No change."""

    @property
    def tears(self) -> bool:
        """Whether the next counted call, if it is a write, is to be done by half."""
        return self._plan.kind is CutKind.TORN and self.changes + 1 == self._plan.nth

    def cut(self, call: str, path: str) -> None:
        """End it all. Does not return."""
        kind = self._plan.kind
        try:
            self._teller.sendall(f"cut {call} {path}\n".encode())
            if kind is CutKind.SOME:
                self._write_some()
            if kind is not CutKind.KILL:
                flag = LOGFLUSH if kind is CutKind.JOURNAL else NOLOGFLUSH
                self._cut_power(flag)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)

    def _cut_power(self, flag: int) -> None:
        """Let a child do it, for this process stands meanwhile. Does not return."""
        process = os.getpid()
        if os.fork() == 0:
            try:
                cut_power(self._mount_point, flag, process)
            finally:
                os.kill(process, signal.SIGKILL)
                os._exit(0)
        while True:
            signal.pause()

    def _write_some(self) -> None:
        chooser = random.Random(self._plan.seed)
        files = sorted(path for path in Path(self._mount_point).rglob("*") if path.is_file())
        for path in files:
            if chooser.random() < 0.4:
                with suppress(FileNotFoundError):  # The other threads go on.
                    descriptor = os.open(path, os.O_RDONLY)
                    os.fdatasync(descriptor)
                    os.close(descriptor)


class CuttingFile(FaultyFile):
    """A file whose writes can be torn."""

    def write_at(self, position: int, data: Buffer) -> None:
        """As ``File.write_at``."""
        disk = self._disk
        assert isinstance(disk, CuttingDisk)
        if disk.tears:
            with memoryview(data) as view:
                self.inner.write_at(position, view[: max(len(view) // 2, 1)])
            self.inner.sync()
        super().write_at(position, data)

    def sync(self) -> None:
        """As ``File.sync``."""
        self._disk.enter(DiskCall.SYNC, self.path)
        self.inner.sync()


def sync_together() -> None:
    """Let files that are due at once be synced by one call always, whatever that costs here."""

    def prefers_all(self: SyncPrices, count: int, now: float) -> bool:
        del now
        if count < COUNT_MIN:
            return False
        self.saw_probe(1.0, 0.0)
        return True

    SyncPrices.prefers_all = prefers_all  # type: ignore[method-assign]
    SyncPrices.patience_seconds = lambda *_, **__: 60.0  # type: ignore[method-assign]
