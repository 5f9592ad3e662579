"""Directories that are kept open, so that syncing their names takes no new descriptor.

A process without descriptors can rename and remove, but could not make that durable: it would have
to leave things between two names. Belongs to the disks of this room; see ``Disk.hold_directory``.
"""

import errno
import os
from contextlib import suppress

from ottla.env.disk import HeldDirectory
from ottla.env.real_volume import CLOSED, Descriptor, OpenDescriptor


class RealHeldDirectory:
    """A directory's descriptor, known to its disk by the path."""

    def __init__(self, path: str, number: int, held: "dict[str, RealHeldDirectory]") -> None:
        self._path = path
        self._descriptor: Descriptor = OpenDescriptor(number)
        self._held = held
        status = os.fstat(number)
        self._identity = (status.st_dev, status.st_ino)

    def ensure_in_place(self) -> None:
        """Raise OSError unless the path still is this directory's."""
        with suppress(FileNotFoundError, NotADirectoryError):
            status = os.stat(self._path)
            if (status.st_dev, status.st_ino) == self._identity:
                return
        raise OSError(errno.ESTALE, "It is not at its path any more", self._path)

    def sync(self) -> None:
        """Make the names in it durable. Blocks on the device."""
        descriptor = self._descriptor
        self.ensure_in_place()  # Else names were given elsewhere, and would not last.
        os.fsync(descriptor.number)

    def release(self) -> None:
        """Let go of the descriptor; a sync in another thread ends first."""
        self._descriptor = CLOSED
        if self._held.get(self._path) is self:
            del self._held[self._path]


class MemoryHeldDirectory:
    """A directory in memory: there is nothing to hold."""

    def ensure_in_place(self) -> None:
        """Do nothing: nobody else removes it."""

    def release(self) -> None:
        """Do nothing."""


class FaultyHeldDirectory:
    """A held directory of a disk that fails on request: it is known to it by the path."""

    def __init__(self, path: str, inner: HeldDirectory, held: set[str]) -> None:
        self._path = path
        self._inner = inner
        self._held = held
        held.add(path)

    def ensure_in_place(self) -> None:
        """Ask the one behind."""
        self._inner.ensure_in_place()

    def release(self) -> None:
        """Release the one behind."""
        self._held.discard(self._path)
        self._inner.release()
