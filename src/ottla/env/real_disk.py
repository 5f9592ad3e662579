"""The disk port on the operating system's files.

Owns descriptors and nothing else: no caching, no decisions about when to sync. POSIX only.
Imports neither asyncio nor threads, so that it loads at once.
"""

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterable

from ottla.env.disk import Buffer, File
from ottla.env.held_directory import RealHeldDirectory
from ottla.env.real_volume import (
    CLOSED,
    NO_DESCRIPTOR,
    Descriptor,
    OpenDescriptor,
    RealVolume,
    Volumes,
)

_FILE_MODE = 0o644
_DIRECTORY_MODE = 0o755
_KERNEL_LOCKS = "/proc/locks"
_KERNEL_LOCKS_BYTES_MAX = 1024 * 1024
_LOCK_PROCESS, _LOCK_FILE = 4, 5
_ZEROS_BYTES = 1 << 20
BLOCK_BYTES_MIN = 1024
"""No file system that is synced as a whole has smaller blocks."""
_BASE_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Nothing is different for a regular file; opening a pipe would wait for its other end."""
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)


class RealFile:
    """A regular file of the kernel's."""

    __slots__ = (
        "_block_end",
        "_block_start",
        "_descriptor",
        "_needs_blocks",
        "_path",
        "_volume",
        "_volumes",
    )

    def __init__(self, path: str, number: int, volumes: Volumes) -> None:
        self._path = path
        self._descriptor: Descriptor = OpenDescriptor(number)
        self._volumes = volumes
        self._volume: RealVolume | None = None
        """Use: the one that was found; it may have lost its trust since."""
        self._block_start = self._block_end = 0
        """The block of the file system's that was written to last, by byte; or none."""
        self._needs_blocks: bool | None = True  # Of a file just opened nothing is known.
        """Use: see ``takes_blocks``. None: always; it is written to past ``write_at``."""

    @property
    def path(self) -> str:
        """The path it was opened by."""
        return self._path

    def read_at(self, position: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``position``. Blocks when they are not cached."""
        descriptor = self._descriptor
        data = os.pread(descriptor.number, length, position)
        if len(data) == length or not data:
            return data
        # One call is cut short by 2 GiB limits and by the end of the file: ask until it says end.
        parts = [data]
        done = len(data)
        while done < length:
            data = os.pread(descriptor.number, length - done, position + done)
            if not data:
                break
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fill ``buffer`` from ``position``; return the count read. Blocks as ``read_at`` does."""
        descriptor = self._descriptor
        done = 0
        with memoryview(buffer) as view:
            length = view.nbytes
            while done < length:
                read = os.preadv(descriptor.number, [view[done:]], position + done)
                if read == 0:
                    break
                done += read
        return done

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of ``data`` at ``position``. After an OSError any prefix may be written."""
        descriptor = self._descriptor
        length = len(data)
        if position + length > self._block_end or position < self._block_start:
            self._note_blocks(position + length)
        done = os.pwrite(descriptor.number, data, position)
        if done == length:
            return
        with memoryview(data) as view:
            while done < length:
                done += os.pwrite(descriptor.number, view[done:], position + done)

    def _note_blocks(self, end: int) -> None:
        """Note that what is written now goes beyond the block that was written to before."""
        size_bytes = BLOCK_BYTES_MIN if self._volume is None else self._volume.block_bytes
        self._block_start = start = (end - 1) // size_bytes * size_bytes
        # The first one may begin in the inode: none of what is written there is without a move.
        self._block_end = start + size_bytes if start else 0
        if self._needs_blocks is False:
            self._needs_blocks = True

    def takes_blocks(self) -> bool:
        """Tell whether more was written to than the block that was written to last."""
        if self._needs_blocks is False:
            return False
        if self._needs_blocks:
            self._needs_blocks = False
        return True

    def truncate(self, size_bytes: int) -> None:
        """Cut or zero-extend the file."""
        self._block_start = self._block_end = 0
        descriptor = self._descriptor
        os.ftruncate(descriptor.number, size_bytes)

    def allocate(self, size_bytes: int) -> None:
        """Make the file ``size_bytes`` long, with its blocks. Raises OSError ENOSPC."""
        self._needs_blocks = None
        if sys.platform == "linux":
            os.posix_fallocate(self._descriptor.number, 0, size_bytes)
            return
        for position in range(self.size(), size_bytes, _ZEROS_BYTES):
            self.write_at(position, bytes(min(_ZEROS_BYTES, size_bytes - position)))

    def map_at(self, position: int, length: int) -> memoryview | None:
        """Map the pages, and have the kernel make them now where it can (MAP_POPULATE)."""
        import mmap  # noqa: PLC0415 - only who preallocates pays for it

        self._needs_blocks = None
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        number = self._descriptor.number
        return memoryview(mmap.mmap(number, length, flags=flags, offset=position))

    def size(self) -> int:
        """Return the length in bytes."""
        descriptor = self._descriptor
        return os.fstat(descriptor.number).st_size

    def sync(self) -> None:
        """Make the written bytes, and a length that changed, durable. Blocks on the device."""
        descriptor = self._descriptor
        if sys.platform == "darwin":
            # fsync there stops at the drive's cache.
            fcntl.fcntl(descriptor.number, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(descriptor.number)

    def fileno(self) -> int | None:
        """Return the descriptor's number, good until ``close``. Raises OSError after it."""
        number = self._descriptor.number
        if number == NO_DESCRIPTOR:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        return number

    def sync_descriptor(self) -> Descriptor | None:
        """Return the descriptor, except where durability takes more than fdatasync."""
        return self._descriptor if sys.platform == "linux" else None

    def volume(self) -> RealVolume | None:
        """Return the volume opened for the device that the file itself says it is on."""
        volume = self._volume
        if volume is None:
            volume = self._volume = self._volumes.of(self._descriptor.number)
        if volume is None or not volume.is_trusted or self._descriptor is CLOSED:
            return None
        return volume

    def is_cached(self, position: int, length: int) -> bool:
        """Ask for the first and the last byte, as far as they need no waiting. 2 us each."""
        number, one = self._descriptor.number, bytearray(1)
        try:
            for at in (position, position + length - 1):
                os.preadv(number, [one], at, _NO_WAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True  # A file system that cannot tell, or a fault for the reader to find.
        return True

    def close(self) -> None:
        """Let go of the descriptor; a sync or read in another thread ends first."""
        self._descriptor = CLOSED


class RealLock:
    """A flock on a lock file. The file itself stays: removing it would let two holders in."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    def release(self) -> None:
        """Give the lock up. Harmless when released already."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


class RealDisk:
    """The operating system's file system."""

    def __init__(self) -> None:
        self._volumes = Volumes()
        self._held: dict[str, RealHeldDirectory] = {}
        """Use: directories that are synced without opening them, by path."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> RealFile:
        """Open for reading and writing; see ``Disk.open``. Raises OSError ELOOP on a symlink."""
        flags = os.O_RDWR | _BASE_FLAGS
        if create:
            flags |= os.O_CREAT
            if exclusive:
                flags |= os.O_EXCL
        return self._regular(path, os.open(path, flags, _FILE_MODE))

    def open_read_only(self, path: str) -> RealFile:
        """Open for reading. Raises FileNotFoundError, or OSError ELOOP on a symlink."""
        return self._regular(path, os.open(path, os.O_RDONLY | _BASE_FLAGS))

    def _regular(self, path: str, number: int) -> RealFile:
        """Return the file. A pipe, a socket or a device of that name has no positions to read."""
        file = RealFile(path, number, self._volumes)
        mode = os.fstat(number).st_mode
        if not stat.S_ISREG(mode):
            why = os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "Not a regular file"
            raise IsADirectoryError(errno.EISDIR, why, path)
        return file

    def exists(self, path: str) -> bool:
        """Tell whether ``path`` names a file or a directory."""
        return _status(path) is not None

    def is_directory(self, path: str) -> bool:
        """Tell whether ``path`` names a directory."""
        status = _status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def is_link(self, path: str) -> bool:
        """Tell whether the last component of ``path`` is a symbolic link."""
        try:
            return stat.S_ISLNK(os.lstat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def size_of(self, path: str) -> int:
        """Return the length of the file ``path`` in bytes."""
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """Return when the file ``path`` was last written."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def list_directory(self, path: str) -> list[str]:
        """Return the sorted names in the directory ``path``."""
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        """Create one directory."""
        os.mkdir(path, _DIRECTORY_MODE)

    def rename(self, source: str, target: str) -> None:
        """Give ``source`` the name ``target``, replacing a file of that name."""
        os.rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        """Make the names in directory ``path`` durable. Blocks on the device."""
        held = self._held.get(path)
        if held is not None:
            held.sync()
            return
        number = os.open(path, _DIRECTORY_FLAGS)
        try:
            os.fsync(number)
        finally:
            os.close(number)

    def hold_directory(self, path: str) -> RealHeldDirectory:
        """Keep a descriptor of directory ``path`` for ``sync_directory``."""
        held = RealHeldDirectory(path, os.open(path, _DIRECTORY_FLAGS), self._held)
        self._held[path] = held
        return held

    def open_volume(self, path: str) -> RealVolume | None:
        """Keep a descriptor of ``path``: the kernel tells errors to whom it knows by then."""
        return self._volumes.open(path)

    def lock(self, path: str) -> RealLock:
        """Take the lock file ``path``. Raises BlockingIOError when held, by this process too.

        A flock belongs to one opening of the file, so a second hold in the same process is refused
        like one of another process.
        """
        number = os.open(path, os.O_RDWR | os.O_CREAT | _BASE_FLAGS, _FILE_MODE)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(number)
            raise
        return RealLock(number)

    def locked_by(self, path: str) -> int | None:
        """Look into the kernel's list of locks, which has Java's too; elsewhere try the lock."""
        try:
            number = os.open(path, os.O_RDONLY | _BASE_FLAGS)
        except FileNotFoundError:
            return None
        try:
            holder = _holder_in_kernel(os.fstat(number))
            if holder is not None:
                return holder
            fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        finally:
            os.close(number)
        return None

    def free_bytes(self, path: str) -> int:
        """Return the bytes free for an unprivileged writer."""
        usage = os.statvfs(path)
        return usage.f_bavail * usage.f_frsize

    def total_bytes(self, path: str) -> int:
        """Return the size of the file system."""
        usage = os.statvfs(path)
        return usage.f_blocks * usage.f_frsize

    def advise_sequential(self, files: Iterable[File]) -> None:
        """Ask the kernel to read ahead in ``files``, where it can be asked."""
        if sys.platform == "linux":
            for file in files:
                number = file.fileno()
                if number is not None:
                    os.posix_fadvise(number, 0, 0, os.POSIX_FADV_SEQUENTIAL)


def _status(path: str) -> os.stat_result | None:
    """Return what the kernel says of ``path``; None when nothing is there. Raises OSError.

    A device or a kernel that cannot tell must not be taken for one that says no (as by os.path).
    """
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _holder_in_kernel(status: os.stat_result) -> int | None:
    """Return the process that holds a lock on the file, by /proc/locks; None: not found there."""
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        number = os.open(_KERNEL_LOCKS, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        lines = os.read(number, _KERNEL_LOCKS_BYTES_MAX).decode("ascii", "replace").splitlines()
    finally:
        os.close(number)
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 4711 08:01:393231 0 EOF; who waits has "->" behind the number.
        fields = line.split()
        if len(fields) > _LOCK_FILE and fields[_LOCK_FILE] == wanted:
            return max(int(fields[_LOCK_PROCESS]), 0)
    return None
