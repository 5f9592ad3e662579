"""The disk port in memory: for ``ottla serve --memory`` and as the double that can lose power.

Two uses, one class. Plain, it keeps bytes and nothing else. With ``durability=True`` it also keeps
what a real disk would hold: bytes as of each ``sync``, names as of each ``sync_directory``, and
``crash`` builds the disk that comes back after a power cut. Source: reliability rules 1-7.
"""

import errno
import threading
from collections.abc import Iterable, Sequence

from ottla.env.clock import Clock, SystemClock
from ottla.env.disk import Buffer, File
from ottla.env.held_directory import MemoryHeldDirectory
from ottla.env.memory_inode import DurableInode, Inode, resize, write
from ottla.env.memory_names import Directory, Journal, Node, Tree, os_error, parts
from ottla.env.rng import Rng

DEFAULT_CAPACITY_BYTES = 1 << 40


class MemoryFile:
    """A file of a MemoryDisk. Reads and syncs may come from executor threads."""

    __slots__ = ("_disk", "_inode", "_open", "_path", "_writable")

    def __init__(self, disk: "MemoryDisk", path: str, inode: Inode, *, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._writable = writable
        self._open = True

    @property
    def path(self) -> str:
        """The path it was opened by."""
        return self._path

    def read_at(self, position: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``position``; fewer only at the end of the file."""
        self._check(position)
        inode = self._inode
        # A bytearray cannot grow while a view of it exists: the guard keeps a writer out meanwhile.
        with inode.guard, memoryview(inode.content) as view:
            return bytes(view[position : position + length])

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fill ``buffer`` from ``position`` and return the count read."""
        data = self.read_at(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of ``data``. Raises OSError ENOSPC, having written nothing, when full."""
        self._check(position, writing=True)
        inode = self._inode
        with inode.guard:
            growth = position + len(data) - len(inode.content)
            if growth > 0:
                self._disk.take(inode.linked, growth, self._path)
            write(inode.content, position, data)
            inode.written(position, data)
            inode.modified_ms = self._disk.wall_ms()

    def truncate(self, size_bytes: int) -> None:
        """Cut or zero-extend the file. An extension takes space, as if allocated."""
        self._check(size_bytes, writing=True)
        inode = self._inode
        with inode.guard:
            self._disk.take(inode.linked, size_bytes - len(inode.content), self._path)
            resize(inode.content, size_bytes)
            inode.truncated(size_bytes)
            inode.modified_ms = self._disk.wall_ms()

    def allocate(self, size_bytes: int) -> None:
        """Make the file ``size_bytes`` long."""
        if size_bytes > self.size():
            self.truncate(size_bytes)

    def map_at(self, position: int, length: int) -> memoryview | None:
        """Return None: what bypassed ``write_at`` could not be torn."""
        del position, length
        return None

    def size(self) -> int:
        """Return the length in bytes."""
        self._check(0)
        return len(self._inode.content)

    def sync(self) -> None:
        """Make the bytes written so far survive ``crash``."""
        self._check(0)
        self._inode.synced()

    def forget_unsynced(self) -> None:
        """Make the bytes since the last sync never survive, though they still read back.

        This is what a failed fsync leaves behind; FaultyDisk calls it.
        """
        if isinstance(self._inode, DurableInode):
            self._inode.forget_unsynced()

    def sync_in_volume(self) -> None:
        """Make the bytes survive, if the file is still open: a volume's sync leaves it out else."""
        if self._open:
            self._inode.synced()

    def volume(self) -> "MemoryVolume | None":
        """Return the disk's, once it was opened."""
        return self._disk.volume if self._open else None

    def takes_blocks(self) -> bool:
        """Say what is always right; it is not asked where there is no descriptor."""
        return True

    def is_cached(self, position: int, length: int) -> bool:
        """Tell that it is: there is no device."""
        return True

    def fileno(self) -> int | None:
        """Return None: the kernel does not know this file."""
        return None

    def sync_descriptor(self) -> None:
        """Return None: the kernel does not know this file."""
        return

    def close(self) -> None:
        """Refuse further use. Harmless when closed already."""
        self._open = False

    def _check(self, position: int, *, writing: bool = False) -> None:
        if not self._open or (writing and not self._writable):
            raise os_error(errno.EBADF, self._path)
        if position < 0:
            raise os_error(errno.EINVAL, self._path)


class MemoryVolume:
    """All of a MemoryDisk. A sync does what is promised and no more: the files it is given."""

    def __init__(self) -> None:
        self.is_trusted = True
        self.users = 0

    def distrust(self) -> None:
        """Ask it no more."""
        self.is_trusted = False

    def sync(self, files: Sequence[File]) -> None:
        """Make the bytes written to ``files`` so far survive ``crash``."""
        for file in files:
            assert isinstance(file, MemoryFile), file
            file.sync_in_volume()

    def sync_descriptor(self) -> None:
        """Return None: the kernel does not know it."""

    def close(self) -> None:
        """Be found no more when nobody is left who opened it."""
        self.users -= 1


class MemoryLock:
    """A hold on a lock file of a MemoryDisk."""

    __slots__ = ("_inode",)

    def __init__(self, inode: Inode) -> None:
        self._inode: Inode | None = inode

    def release(self) -> None:
        """Give the lock up. Harmless when released already."""
        if self._inode is not None:
            self._inode.locked = False
            self._inode = None


class MemoryDisk:
    """A tree of files in memory, with ``/`` in it. Relative paths start there too.

    ``durability`` adds the cost of a second copy of everything written, for ``crash``.
    """

    def __init__(
        self,
        *,
        durability: bool = False,
        capacity_bytes: int = DEFAULT_CAPACITY_BYTES,
        clock: Clock | None = None,
    ) -> None:
        """``clock`` says when files were written; None: the system's does."""
        self._clock = SystemClock() if clock is None else clock
        self.wall_ms = self._clock.wall_ms
        self._durability = durability
        self._tree = Tree()
        self._free_bytes = capacity_bytes
        self._capacity_bytes = capacity_bytes
        self._space_guard = threading.Lock()
        self._volume = MemoryVolume()
        self._journal = Journal()
        """Use: only with durability."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> MemoryFile:
        """Open for reading and writing; see ``Disk.open``. There are no symbolic links here."""
        return MemoryFile(self, path, self._file_at(path, create, exclusive), writable=True)

    def open_read_only(self, path: str) -> MemoryFile:
        """Open for reading. Raises FileNotFoundError."""
        inode = self._file_at(path, create=False, exclusive=False)
        return MemoryFile(self, path, inode, writable=False)

    def exists(self, path: str) -> bool:
        """Tell whether ``path`` names a file or a directory."""
        return self._tree.find(path) is not None

    def is_directory(self, path: str) -> bool:
        """Tell whether ``path`` names a directory."""
        return isinstance(self._tree.find(path), Directory)

    def is_link(self, path: str) -> bool:
        """Return False: there are no links here."""
        return False

    def size_of(self, path: str) -> int:
        """Return the length of the file ``path`` in bytes."""
        return len(self._file_at(path, create=False, exclusive=False).content)

    def modified_ms(self, path: str) -> int:
        """Return when the file ``path`` was last written, by this disk's clock."""
        return self._file_at(path, create=False, exclusive=False).modified_ms

    def list_directory(self, path: str) -> list[str]:
        """Return the sorted names in the directory ``path``."""
        return sorted(self._tree.directory_at(path).names)

    def make_directory(self, path: str) -> None:
        """Create one directory."""
        directory, name = self._tree.parent_of(path)
        if name in directory.names:
            raise os_error(errno.EEXIST, path)
        self._step((directory, name, Directory()))

    def rename(self, source: str, target: str) -> None:
        """Give ``source`` the name ``target``, atomically replacing a file of that name."""
        source_directory, source_name = self._tree.parent_of(source)
        target_directory, target_name = self._tree.parent_of(target)
        node = source_directory.names.get(source_name)
        if node is None:
            raise os_error(errno.ENOENT, source)
        replaced = target_directory.names.get(target_name)
        if replaced is node:
            return
        if isinstance(replaced, Directory):
            if not isinstance(node, Directory):
                raise os_error(errno.EISDIR, target)
            if replaced.names:
                raise os_error(errno.ENOTEMPTY, target)
        elif isinstance(node, Directory) and replaced is not None:
            raise os_error(errno.ENOTDIR, target)
        if isinstance(replaced, Inode):
            self._unlink(replaced)
        self._step((source_directory, source_name, None), (target_directory, target_name, node))

    def remove(self, path: str) -> None:
        """Remove a file. One that is open lives on without a name."""
        inode = self._file_at(path, create=False, exclusive=False)
        directory, name = self._tree.parent_of(path)
        self._unlink(inode)
        self._step((directory, name, None))

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        if self._tree.directory_at(path).names:
            raise os_error(errno.ENOTEMPTY, path)
        directory, name = self._tree.parent_of(path)
        self._step((directory, name, None))

    def sync_directory(self, path: str) -> None:
        """Make the names in directory ``path`` survive ``crash``."""
        self._journal.sync(self._tree.directory_at(path))

    def hold_directory(self, path: str) -> MemoryHeldDirectory:
        """See that it is there; no descriptor could be short here."""
        self._tree.directory_at(path)
        return MemoryHeldDirectory()

    @property
    def volume(self) -> MemoryVolume | None:
        """The one volume there is, while it is open and trusted."""
        return self._volume if self._volume.users > 0 and self._volume.is_trusted else None

    def open_volume(self, path: str) -> MemoryVolume:
        """Return the one volume there is."""
        self._tree.directory_at(path)
        self._volume.users += 1
        return self._volume

    def lock(self, path: str) -> MemoryLock:
        """Take the lock file ``path``, creating it. Raises BlockingIOError when held."""
        inode = self._file_at(path, create=True, exclusive=False)
        if inode.locked:
            raise os_error(errno.EWOULDBLOCK, path)
        inode.locked = True
        return MemoryLock(inode)

    def locked_by(self, path: str) -> int | None:
        """Return 0 when the lock file is held, for there are no processes here."""
        inode = self._tree.find(path)
        return 0 if isinstance(inode, Inode) and inode.locked else None

    def free_bytes(self, path: str) -> int:
        """Return the bytes still free of the capacity."""
        if self._tree.find(path) is None:
            raise os_error(errno.ENOENT, path)
        return self._free_bytes

    def total_bytes(self, path: str) -> int:
        """Return the capacity."""
        if self._tree.find(path) is None:
            raise os_error(errno.ENOENT, path)
        return self._capacity_bytes

    def advise_sequential(self, files: Iterable[File]) -> None:
        """Do nothing: memory needs no reading ahead."""

    def crash(self, rng: Rng, of_names: Rng | None = None) -> "MemoryDisk":
        """Return a disk as it may come back after a power cut at this moment.

        Synced bytes under synced names are there. Of the rest ``rng`` decides: unsynced steps on
        names survive as a prefix per directory, unsynced bytes as a prefix of the writes with some
        512-byte sectors missing. This disk is left as it is, so one moment can crash many ways.
        ``of_names`` decides of the names instead, unless it is None. Locks are gone. Needs
        ``durability``.
        """
        if not self._durability:
            raise ValueError("only a disk made with durability=True knows what a crash leaves")
        survivor = MemoryDisk(
            durability=True, capacity_bytes=self._capacity_bytes, clock=self._clock
        )
        names = self._journal.surviving_names(of_names or rng)
        used_bytes = _rebuild(self._tree.root, survivor.root, names, rng)
        survivor.take(linked=True, growth_bytes=used_bytes, path="/")
        return survivor

    @property
    def root(self) -> Directory:
        """The directory ``/`` itself, for ``crash`` to fill."""
        return self._tree.root

    def take(self, linked: bool, growth_bytes: int, path: str) -> None:
        """Book ``growth_bytes`` (negative: give back) for a file. Raises OSError ENOSPC.

        A file without a name gave its space back when it lost the name.
        """
        if not linked:
            return
        with self._space_guard:
            if growth_bytes > self._free_bytes:
                raise os_error(errno.ENOSPC, path)
            self._free_bytes -= growth_bytes

    def _unlink(self, inode: Inode) -> None:
        with inode.guard:
            inode.linked = False
            self.take(linked=True, growth_bytes=-len(inode.content), path="")

    def _step(self, *step: tuple[Directory, str, Node | None]) -> None:
        for directory, name, node in step:
            if node is None:
                del directory.names[name]
            else:
                directory.names[name] = node
        if self._durability:
            self._journal.append(step)

    def _file_at(self, path: str, create: bool, exclusive: bool) -> Inode:
        if not parts(path):
            raise os_error(errno.EISDIR, path)
        directory, name = self._tree.parent_of(path)
        node = directory.names.get(name)
        if isinstance(node, Directory):
            raise os_error(errno.EISDIR, path)
        if node is None:
            if not create:
                raise os_error(errno.ENOENT, path)
            node = self._new_inode()
            self._step((directory, name, node))
        elif create and exclusive:
            raise os_error(errno.EEXIST, path)
        return node

    def _new_inode(self) -> Inode:
        if self._durability:
            return DurableInode(bytearray(), bytearray(), self.wall_ms())
        return Inode(bytearray(), self.wall_ms())


def _rebuild(
    source: Directory, target: Directory, names: dict[int, dict[str, Node]], rng: Rng
) -> int:
    """Fill ``target`` with what survives below ``source``; return the bytes its files hold."""
    used_bytes = 0
    for name, node in names.get(id(source), source.durable_names).items():
        copy: Node
        if isinstance(node, Directory):
            copy = Directory()
            used_bytes += _rebuild(node, copy, names, rng)
        else:
            # Every inode of a disk with durability is a durable one.
            assert isinstance(node, DurableInode)
            content = node.after_crash(rng)
            copy = DurableInode(content, bytearray(content), node.modified_ms)
            used_bytes += len(content)
        target.names[name] = copy
        target.durable_names[name] = copy
    return used_bytes
