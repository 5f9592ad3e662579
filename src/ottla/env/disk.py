"""The disk port: files and directories, and nothing that hides when bytes are durable.

A write is in the page cache when it returns; it survives a power cut only after ``File.sync``.
A name (created, renamed, removed) survives only after ``Disk.sync_directory`` on its directory.
Everything here blocks; errors are plain OSError. Source: reliability rules 1-4 of the design.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview
"""Bytes without a copy."""


MAP_UNIT_BYTES = 64 * 1024
"""Mappings begin at multiples of this, whatever the machine's pages are."""


class SyncDescriptor(Protocol):
    """A descriptor of the kernel's, open as long as this object is kept."""

    @property
    def number(self) -> int:
        """For fdatasync; one that no file has after ``File.close``."""


class Volume(Protocol):
    """A file system, as far as many files in it can be made durable by one call.

    Made by ``Disk.open_volume`` before anything is written. Once a sync of it has failed it is
    never asked again: what the kernel had to say it has said, and would call the next one a success
    (reliability rule 2). A file asks for itself then, by ``File.sync``.
    """

    @property
    def is_trusted(self) -> bool:
        """Whether it may be asked."""

    def distrust(self) -> None:
        """Ask it no more: a sync of it has failed."""

    def sync(self, files: "Sequence[File]") -> None:
        """Make all bytes durable that were written to ``files`` before; their names are not meant.

        Each of ``files`` has this ``File.volume``. Blocks; on any thread. A file that is closed is
        left out. Raises OSError: nothing is known of any of them then.
        """

    def sync_descriptor(self) -> SyncDescriptor | None:
        """Return the directory's for ``sync_loop``; None: only ``sync`` does it."""

    def close(self) -> None:
        """Give it up, once for each ``Disk.open_volume``."""


class File(Protocol):
    """An open file, addressed by byte position. Has no cursor."""

    @property
    def path(self) -> str:
        """The path it was opened by (stays the same after a rename)."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``position``; fewer only at the end of the file."""

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fill ``buffer`` from ``position``; return the count read, fewer only at the end."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of ``data`` at ``position`` (retrying short writes) or raise OSError."""

    def truncate(self, size_bytes: int) -> None:
        """Cut or zero-extend the file to ``size_bytes``."""

    def allocate(self, size_bytes: int) -> None:
        """Make the file ``size_bytes`` long with its blocks on the device; it is not cut."""

    def map_at(self, position: int, length: int) -> memoryview | None:
        """Return bytes of the file as memory: what is put there is written, as by ``write_at``.

        For allocated bytes only: others could end the process where a write would fail.
        ``position`` is a multiple of ``MAP_UNIT_BYTES``. The pages are there already when this
        returns, so that putting bytes in does not stop for each. The file must not become shorter
        than the mapping while it is used. None: this file has no such memory. Raises OSError.
        """

    def size(self) -> int:
        """Return the current length in bytes."""

    def sync(self) -> None:
        """Make all written bytes durable (fdatasync). May be called from an executor thread."""

    def fileno(self) -> int | None:
        """Return the descriptor for sendfile, or None when the file is not the kernel's."""

    def sync_descriptor(self) -> SyncDescriptor | None:
        """Return what fdatasync may be called with in place of ``sync``; None: only that does."""

    def volume(self) -> Volume | None:
        """Return what can sync this file together with others; None: nothing, or it is closed."""

    def takes_blocks(self) -> bool:
        """Tell whether the file system may have to find room for what was written.

        Room for what was written since the last call; False once more only after further writes.
        For a file that is never synced but together with others, or after one that was.
        """

    def is_cached(self, position: int, length: int) -> bool:
        """Tell whether reading ``length`` bytes there would probably not wait for the device.

        Does not wait itself. True where it cannot be known. ``length`` > 0, within the file.
        """

    def close(self) -> None:
        """Release the descriptor. Harmless when closed already."""


class Lock(Protocol):
    """An exclusive hold on a lock file, ended by ``release`` or by the end of the process."""

    def release(self) -> None:
        """Give the lock up. Harmless when released already."""


class HeldDirectory(Protocol):
    """A directory that is kept open, so that its names can be synced without a new descriptor."""

    def ensure_in_place(self) -> None:
        """Raise OSError (ESTALE) unless its path is still this directory's: somebody removed it.

        Files that are open in it are written and synced as ever, and gone when they are closed.
        """

    def release(self) -> None:
        """Keep it open no more; a sync of it in another thread ends first. Harmless twice."""


class Disk(Protocol):
    """A tree of files and directories. Paths are strings; a parent is never created by accident."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> File:
        """Open for reading and writing. Raises FileNotFoundError unless ``create``.

        ``exclusive`` (with ``create``) raises FileExistsError when the name exists. Symbolic links
        are not followed at the last component.
        """

    def open_read_only(self, path: str) -> File:
        """Open for reading. Raises FileNotFoundError."""

    def exists(self, path: str) -> bool:
        """Tell whether ``path`` names a file or a directory. Raises OSError: nobody can tell."""

    def is_directory(self, path: str) -> bool:
        """Tell whether ``path`` names a directory. Raises as ``exists`` does."""

    def is_link(self, path: str) -> bool:
        """Tell whether the last component of ``path`` is a symbolic link. Raises as ``exists``."""

    def size_of(self, path: str) -> int:
        """Return the length of the file ``path`` in bytes, without opening it."""

    def modified_ms(self, path: str) -> int:
        """Return when the file ``path`` was last written, in milliseconds of wall time."""

    def list_directory(self, path: str) -> list[str]:
        """Return the sorted names in the directory ``path``."""

    def make_directory(self, path: str) -> None:
        """Create one directory. Raises FileExistsError when it exists."""

    def rename(self, source: str, target: str) -> None:
        """Give ``source`` the name ``target``, atomically replacing a file of that name."""

    def remove(self, path: str) -> None:
        """Remove a file. Raises FileNotFoundError."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_directory(self, path: str) -> None:
        """Make the names in directory ``path`` durable.

        Takes a descriptor for the length of the call unless ``hold_directory`` has one. Raises
        OSError; ESTALE when another directory bears the path of a held one.
        """

    def hold_directory(self, path: str) -> HeldDirectory:
        """Keep directory ``path`` open: who asks to sync it by this path needs no descriptor.

        Once at a time for each path. Raises FileNotFoundError, NotADirectoryError.
        """

    def open_volume(self, path: str) -> Volume | None:
        """Let the files on ``path``'s file system be synced together, from now on.

        ``path`` is a directory. Call it before anything is written there. Directories of one file
        system get the same. None: they cannot be, or errors would not be told as strictly as
        ``File.sync`` does. Raises nothing: it is only a shorter way.
        """

    def lock(self, path: str) -> Lock:
        """Take the exclusive lock file ``path``, creating it. Raises BlockingIOError when held."""

    def locked_by(self, path: str) -> int | None:
        """Return the process that holds the lock file ``path``, 0 if it cannot be named.

        None: nobody does, or there is no such file. Changes nothing.
        """

    def free_bytes(self, path: str) -> int:
        """Return the bytes an unprivileged writer may still write in ``path``'s file system."""

    def total_bytes(self, path: str) -> int:
        """Return the size of ``path``'s file system."""

    def advise_sequential(self, files: Iterable[File]) -> None:
        """Hint that ``files`` are about to be read front to back. May do nothing."""
