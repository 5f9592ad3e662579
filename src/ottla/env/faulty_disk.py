"""A disk that fails on request: the double for every error a real device has shown.

Wraps any Disk. A test plans faults by kind and by count ("the third sync from now: EIO"), tears a
write, or kills the disk as the end of a process would. Source: reliability rules 1, 2, 18, 20.
"""

import errno as errno_codes
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import cycle
from typing import TypeVar

from ottla.env.disk import Buffer, Disk, File, HeldDirectory, Lock, Volume
from ottla.env.held_directory import FaultyHeldDirectory
from ottla.env.memory_disk import MemoryFile

Result = TypeVar("Result")


class DiskCall(Enum):
    """The calls a FaultyDisk counts and fails."""

    OPEN = "open"
    READ = "read"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    SYNC_VOLUME = "sync_volume"
    LOOK = "look"
    """exists, is_directory, size_of, modified_ms, list_directory, free_bytes, total_bytes,
    File.size."""
    MAKE_DIRECTORY = "make_directory"
    RENAME = "rename"
    REMOVE = "remove"
    """remove and remove_directory."""
    SYNC_DIRECTORY = "sync_directory"
    LOCK = "lock"

    __hash__ = object.__hash__
    """Enum's own hashes the name, in Python: each call of the disk asks whether it is in a set."""


CHANGES = frozenset(DiskCall) - {DiskCall.READ, DiskCall.LOOK}
"""The calls ``kill_at`` counts: those whose effect a crash can separate from the next one's.

An open counts because it may create a name."""


_NO_DESCRIPTOR = frozenset({errno_codes.EMFILE, errno_codes.ENFILE})


class DiskKilled(Exception):
    """The process that used this disk is dead; whatever it still tries does not happen.

    Not an OSError: a handler of disk errors must not take it for one.
    """


@dataclass(slots=True)
class PlannedFault:
    """A planned failure. ``remaining`` counts calls of its kind until it strikes."""

    call: DiskCall
    remaining: int
    errno: int
    lasting: bool
    written_bytes: int | None
    or_call: DiskCall | None = None
    """Counts and fails like ``call``."""


class Faults:
    """What is to go wrong, and when. Without a plan it only counts."""

    def __init__(self) -> None:
        self.counts: Counter[DiskCall] = Counter()
        """How often each call was made, failed ones included."""
        self._faults: list[PlannedFault] = []
        self._changes_until_death: int | None = None
        self._killed = False
        self._held: set[str] = set()
        """Directories that are held: a sync of them never finds the process without descriptors."""
        self._pauses: Iterator[float] | None = None
        """Use: how many seconds the next syncs take longer."""

    def fail(
        self,
        call: DiskCall,
        *,
        or_call: DiskCall | None = None,
        nth: int = 1,
        errno: int = errno_codes.EIO,
        lasting: bool = False,
    ) -> None:
        """Let the ``nth`` call of this kind from now (1 = the next) raise OSError(errno).

        ``lasting`` fails every later one too, until ``heal``. A failed sync leaves the pages clean:
        a later sync succeeds and still does not make those bytes durable. ``or_call``: calls of
        this kind are counted together with the others, and fail as they do.
        """
        self._faults.append(PlannedFault(call, nth, errno, lasting, None, or_call))

    def tear_write(
        self, written_bytes: int, *, nth: int = 1, errno: int = errno_codes.ENOSPC
    ) -> None:
        """Let the ``nth`` write from now put down only ``written_bytes`` and raise OSError."""
        self._faults.append(
            PlannedFault(DiskCall.WRITE, nth, errno, lasting=False, written_bytes=written_bytes)
        )

    def slow_syncs(self, pauses: Sequence[float]) -> None:
        """Let each sync of a file or volume take so many seconds longer, in turn, until ``heal``.

        The thread that syncs waits for real.
        """
        self._pauses = cycle(pauses)

    def pause(self) -> None:
        """Wait as long as the sync that comes takes longer."""
        pauses = self._pauses
        if pauses is not None:
            time.sleep(next(pauses))

    def heal(self) -> None:
        """Forget all planned failures; a killed disk stays killed."""
        self._faults.clear()
        self._pauses = None
        self._changes_until_death = None

    def kill(self) -> None:
        """From now on nothing happens any more: every call raises DiskKilled."""
        self._killed = True

    def kill_at(self, nth: int) -> None:
        """Die at the ``nth`` changing call from now (1 = the next): that call does not happen."""
        self._changes_until_death = nth

    @property
    def killed(self) -> bool:
        """Whether the disk is dead."""
        return self._killed

    def enter(self, call: DiskCall, path: str) -> PlannedFault | None:
        """Count a call; raise what is planned for it. Returns a torn write for the caller to do."""
        if self._killed:
            raise DiskKilled(f"{call.value} {path}")
        self.counts[call] += 1
        if self._changes_until_death is not None and call in CHANGES:
            self._changes_until_death -= 1
            if self._changes_until_death == 0:
                self._killed = True
                raise DiskKilled(f"{call.value} {path}")
        if not self._faults:
            return None
        is_held = call is DiskCall.SYNC_DIRECTORY and path in self._held
        fault = self._strike(call, but_for=_NO_DESCRIPTOR if is_held else frozenset())
        if fault is not None and fault.written_bytes is None:
            raise _error(fault, path)
        return fault

    def _strike(self, call: DiskCall, *, but_for: frozenset[int]) -> PlannedFault | None:
        struck = None
        for fault in [
            planned for planned in self._faults if call in (planned.call, planned.or_call)
        ]:
            if fault.errno in but_for:
                continue
            fault.remaining -= 1
            if fault.remaining <= 0:
                struck = struck or fault
                if not fault.lasting:
                    self._faults.remove(fault)
        return struck


class FaultyDisk(Faults):
    """``inner`` with planned failures."""

    def __init__(self, inner: Disk) -> None:
        super().__init__()
        self._inner = inner
        self._volumes: dict[Volume, FaultyVolume] = {}
        self._locks: list[Lock] = []

    @property
    def inner(self) -> Disk:
        """The disk behind, as it is at this moment."""
        return self._inner

    def _do(self, call: DiskCall, path: str, action: Callable[[], Result]) -> Result:
        self.enter(call, path)
        return action()

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> "FaultyFile":
        """As ``Disk.open``."""
        self.enter(DiskCall.OPEN, path)
        return FaultyFile(self, self._inner.open(path, create=create, exclusive=exclusive))

    def open_read_only(self, path: str) -> "FaultyFile":
        """As ``Disk.open_read_only``."""
        self.enter(DiskCall.OPEN, path)
        return FaultyFile(self, self._inner.open_read_only(path))

    def exists(self, path: str) -> bool:
        """As ``Disk.exists``."""
        return self._do(DiskCall.LOOK, path, lambda: self._inner.exists(path))

    def is_directory(self, path: str) -> bool:
        """As ``Disk.is_directory``."""
        return self._do(DiskCall.LOOK, path, lambda: self._inner.is_directory(path))

    def is_link(self, path: str) -> bool:
        """As ``Disk.is_link``."""
        return self._do(DiskCall.LOOK, path, lambda: self._inner.is_link(path))

    def size_of(self, path: str) -> int:
        """As ``Disk.size_of``."""
        return self._do(DiskCall.LOOK, path, lambda: self._inner.size_of(path))

    def modified_ms(self, path: str) -> int:
        """As ``Disk.modified_ms``."""
        return self._do(DiskCall.LOOK, path, lambda: self._inner.modified_ms(path))

    def list_directory(self, path: str) -> list[str]:
        """As ``Disk.list_directory``."""
        return self._do(DiskCall.LOOK, path, lambda: self._inner.list_directory(path))

    def make_directory(self, path: str) -> None:
        """As ``Disk.make_directory``."""
        self._do(DiskCall.MAKE_DIRECTORY, path, lambda: self._inner.make_directory(path))

    def rename(self, source: str, target: str) -> None:
        """As ``Disk.rename``."""
        self._do(DiskCall.RENAME, source, lambda: self._inner.rename(source, target))

    def remove(self, path: str) -> None:
        """As ``Disk.remove``."""
        self._do(DiskCall.REMOVE, path, lambda: self._inner.remove(path))

    def remove_directory(self, path: str) -> None:
        """As ``Disk.remove_directory``."""
        self._do(DiskCall.REMOVE, path, lambda: self._inner.remove_directory(path))

    def sync_directory(self, path: str) -> None:
        """As ``Disk.sync_directory``."""
        self._do(DiskCall.SYNC_DIRECTORY, path, lambda: self._inner.sync_directory(path))

    def hold_directory(self, path: str) -> HeldDirectory:
        """As ``Disk.hold_directory``."""
        held = self._do(DiskCall.OPEN, path, lambda: self._inner.hold_directory(path))
        return FaultyHeldDirectory(path, held, self._held)

    def open_volume(self, path: str) -> "FaultyVolume | None":
        """As ``Disk.open_volume``."""
        inner = self._inner.open_volume(path)
        if inner is None:
            return None
        return self._volumes.setdefault(inner, FaultyVolume(self, inner, path))

    def volume_of(self, file: File) -> "FaultyVolume | None":
        """Return the volume, with this plan, of a file of the disk behind."""
        inner = file.volume()
        return None if inner is None else self._volumes.get(inner)

    def lock(self, path: str) -> Lock:
        """As ``Disk.lock``."""
        lock = self._do(DiskCall.LOCK, path, lambda: self._inner.lock(path))
        self._locks.append(lock)
        return lock

    def end_process(self) -> None:
        """Die, and give up all locks, as the end of the process that used this disk would."""
        self.kill()
        for lock in self._locks:
            lock.release()

    def locked_by(self, path: str) -> int | None:
        """As ``Disk.locked_by``."""
        return self._do(DiskCall.LOOK, path, lambda: self._inner.locked_by(path))

    def free_bytes(self, path: str) -> int:
        """As ``Disk.free_bytes``."""
        return self._do(DiskCall.LOOK, path, lambda: self._inner.free_bytes(path))

    def total_bytes(self, path: str) -> int:
        """As ``Disk.total_bytes``."""
        return self._do(DiskCall.LOOK, path, lambda: self._inner.total_bytes(path))

    def advise_sequential(self, files: Iterable[File]) -> None:
        """Pass the hint on for the files behind."""
        self._inner.advise_sequential(
            file.inner if isinstance(file, FaultyFile) else file for file in files
        )


class FaultyFile:
    """A file whose calls go through the plan of its FaultyDisk."""

    def __init__(self, disk: FaultyDisk, inner: File) -> None:
        self._disk = disk
        self.inner = inner
        self.path = inner.path
        """The path it was opened by."""

    def read_at(self, position: int, length: int) -> bytes:
        """As ``File.read_at``."""
        self._disk.enter(DiskCall.READ, self.path)
        return self.inner.read_at(position, length)

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """As ``File.read_into``."""
        self._disk.enter(DiskCall.READ, self.path)
        return self.inner.read_into(position, buffer)

    def write_at(self, position: int, data: Buffer) -> None:
        """As ``File.write_at``; a torn write leaves its prefix in the file."""
        torn = self._disk.enter(DiskCall.WRITE, self.path)
        if torn is not None:
            with memoryview(data) as view:
                self.inner.write_at(position, view[: torn.written_bytes])
            raise _error(torn, self.path)
        self.inner.write_at(position, data)

    def truncate(self, size_bytes: int) -> None:
        """As ``File.truncate``."""
        self._disk.enter(DiskCall.TRUNCATE, self.path)
        self.inner.truncate(size_bytes)

    def allocate(self, size_bytes: int) -> None:
        """As ``File.allocate``; counts as a write."""
        self._disk.enter(DiskCall.WRITE, self.path)
        self.inner.allocate(size_bytes)

    def map_at(self, position: int, length: int) -> memoryview | None:
        """Return None: what bypassed ``write_at`` could not fail."""
        del position, length
        return None

    def size(self) -> int:
        """As ``File.size``."""
        self._disk.enter(DiskCall.LOOK, self.path)
        return self.inner.size()

    def sync(self) -> None:
        """As ``File.sync``; when it fails, the unsynced bytes will never be durable."""
        self._disk.pause()
        try:
            self._disk.enter(DiskCall.SYNC, self.path)
        except OSError:
            if isinstance(self.inner, MemoryFile):
                self.inner.forget_unsynced()
            raise
        self.inner.sync()

    def fileno(self) -> int | None:
        """As ``File.fileno``: what leaves by sendfile is not seen here."""
        return self.inner.fileno()

    def sync_descriptor(self) -> None:
        """Return None: a sync past this object would not be seen, nor fail."""
        return

    def volume(self) -> "FaultyVolume | None":
        """As ``File.volume``."""
        return self._disk.volume_of(self.inner)

    def takes_blocks(self) -> bool:
        """Say what is always right; it is not asked where there is no descriptor."""
        return True

    def is_cached(self, position: int, length: int) -> bool:
        """As ``File.is_cached``."""
        return self.inner.is_cached(position, length)

    def close(self) -> None:
        """As ``File.close``. Works on a killed disk too: a dead process's files are closed."""
        self.inner.close()


class FaultyVolume:
    """A volume whose syncs go through the plan of its FaultyDisk."""

    def __init__(self, disk: FaultyDisk, inner: Volume, path: str) -> None:
        self._disk = disk
        self.inner = inner
        self._path = path

    @property
    def is_trusted(self) -> bool:
        """As ``Volume.is_trusted``."""
        return self.inner.is_trusted

    def distrust(self) -> None:
        """As ``Volume.distrust``."""
        self.inner.distrust()

    def sync(self, files: Sequence[File]) -> None:
        """As ``Volume.sync``; when it fails, no file's unsynced bytes will ever be durable."""
        behind = [file.inner for file in files if isinstance(file, FaultyFile)]
        self._disk.pause()
        try:
            self._disk.enter(DiskCall.SYNC_VOLUME, self._path)
        except OSError:
            for file in behind:
                if isinstance(file, MemoryFile):
                    file.forget_unsynced()
            raise
        self.inner.sync(behind)

    def sync_descriptor(self) -> None:
        """Return None: a sync past this object would not be seen, nor fail."""
        return

    def close(self) -> None:
        """As ``Volume.close``."""
        self.inner.close()


def _error(fault: PlannedFault, path: str) -> OSError:
    return OSError(fault.errno, os.strerror(fault.errno), path)
