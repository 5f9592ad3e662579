"""File systems of the kernel's on which many files can be synced at once.

Owns one descriptor per file system, open from before the first write: the kernel tells a writeback
error once to each descriptor that it knew by then. Decides nothing of when it is better; that is
``ottla.env.sync_prices``. Only file systems whose errors have been seen to arrive, on kernels that
pass them on, are taken; on all others every file is synced by itself (docs/adr/0024).
"""

import errno
import os
import re
import sys
from array import array
from collections.abc import Sequence

from ottla.env.disk import File
from ottla.env.sync_loop import SYNCS_TOGETHER, file_system_of, sync_together

KERNEL_MIN = (5, 17)
"""Before 5.8 ``syncfs`` told of no file's error, before 5.17 of none of the journal's."""
EXT4, XFS = 0xEF53, 0x58465342
_TRUSTED = frozenset({EXT4, XFS})
"""A file system in layers (overlay) or on a network does not pass on what it is told below."""


class Descriptor:
    """A number for the kernel."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class OpenDescriptor(Descriptor):
    """A kernel descriptor that is closed when its last user lets go of it.

    A sync in an executor thread holds it for the length of the call, so a ``close`` meanwhile can
    not hand the number to another file under the sync's feet (reliability rule 19).
    """

    __slots__ = ()

    def __del__(self) -> None:
        os.close(self.number)


NO_DESCRIPTOR = 2**31 - 1
"""A number no descriptor has. (Python refuses a negative one, each call its own way.)"""

CLOSED = Descriptor(NO_DESCRIPTOR)
"""Stands in after ``close``: the kernel answers EBADF for it, without a check on the way."""


class RealVolume:
    """One file system, by a directory in it."""

    def __init__(self, path: str, number: int, volumes: "Volumes", device: int) -> None:
        self._path = path
        self._descriptor: Descriptor = OpenDescriptor(number)
        self._volumes = volumes
        self._device = device
        self.block_bytes = os.fstatvfs(number).f_bsize
        self.users = 1
        self.is_trusted = True

    def distrust(self) -> None:
        """Ask it no more."""
        self.is_trusted = False

    def sync(self, files: Sequence[File]) -> None:
        """Sync all. Blocks, without the interpreter's lock."""
        numbers = array("i", [self._descriptor.number])
        kept = [file.sync_descriptor() for file in files if file.volume() is not None]
        numbers.extend(descriptor.number for descriptor in kept if descriptor is not None)
        code = sync_together(numbers)
        if code:
            raise OSError(code, os.strerror(code), self._path)

    def sync_descriptor(self) -> Descriptor:
        """Return the directory's."""
        return self._descriptor

    def close(self) -> None:
        """Let go of the descriptor when nobody is left who opened it; a sync ends first."""
        self.users -= 1
        if not self.users:
            self.is_trusted = False
            self._descriptor = CLOSED
            self._volumes.forget(self._device)


class Volumes:
    """The open volumes of one disk, by device."""

    def __init__(self) -> None:
        self._open: dict[int, RealVolume] = {}

    def open(self, path: str) -> RealVolume | None:
        """Return the volume that ``path`` is on; None where syncing it would not do."""
        if not SYNCS_TOGETHER or not _kernel_tells(os.uname().release):
            return None
        try:
            number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        device = os.fstat(number).st_dev
        known = self._open.get(device)
        if known is not None or file_system_of(number) not in _TRUSTED or not _is_allowed():
            os.close(number)
            if known is not None:
                known.users += 1
            return known
        volume = self._open[device] = RealVolume(path, number, self, device)
        return volume

    def of(self, number: int) -> RealVolume | None:
        """Return the open volume on which the file with this descriptor is."""
        if not self._open:
            return None
        try:
            return self._open.get(os.fstat(number).st_dev)
        except OSError:
            return None  # It is closed.

    def forget(self, device: int) -> None:
        """Find it no more."""
        self._open.pop(device, None)


def _kernel_tells(release: str) -> bool:
    """Tell whether a kernel of this name tells all that went wrong."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return found is not None and tuple(map(int, found.groups())) >= KERNEL_MIN


def _is_allowed() -> bool:
    """Tell whether this process may call ``syncfs`` at all: a sandbox may forbid it.

    EBADF is what the kernel itself says to a descriptor that nobody has.
    """
    return sys.platform == "linux" and sync_together(array("i", [-1])) == errno.EBADF
