"""A sorted array of fixed-size entries beside a segment: what both sparse indexes share.

Owns how entries reach the disk and come back. An index is a cache of its segment's ``.log``: never
synced on the way of an answer, checked when it is used, thrown away and rebuilt at any doubt
(reliability rule 10). It lives in memory in the file's own format and is written behind by pwrite,
some entries at a time, never through a mapping: a full disk may fail a write, not kill the process.
"""

from contextlib import suppress
from operator import lt
from struct import Struct

from ottla.env.disk import Disk
from ottla.errors import CorruptFile
from ottla.log.files import faults

_ENTRIES_PER_WRITE = 64
"""Entries gathered in memory before they are written: at most so many are rebuilt after a kill."""


class Index:
    """The entries of one index file, in memory, in file format."""

    __slots__ = (
        "_disk",
        "_entry",
        "_written_bytes",
        "base_offset",
        "entries",
        "entry_bytes",
        "path",
    )

    def __init__(self, disk: Disk, path: str, base_offset: int, *, entry: Struct) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        """Use: entries hold offsets relative to it. Invariant: the segment's base offset."""
        self._entry = entry
        self.entry_bytes = entry.size
        self.entries = bytearray()
        """Invariant: whole entries, ascending."""
        self._written_bytes = -1
        """Use: where the next write begins. Invariant: the file's first ``_written_bytes`` bytes
        are those of ``entries``; -1 when the file may hold more or other bytes than that."""

    @property
    def count(self) -> int:
        """Number of entries."""
        return len(self.entries) // self.entry_bytes

    @property
    def is_written(self) -> bool:
        """Tell whether the file holds all entries, and nothing else."""
        return self._written_bytes == len(self.entries)

    def load(self, log_size_bytes: int) -> None:
        """Read the file. Raises FileNotFoundError, or CorruptFile when it cannot be an index.

        ``log_size_bytes`` is the size of the segment's log that the entries must fit.
        """
        file = self._disk.open_read_only(self.path)
        try:
            data = file.read_at(0, file.size())
        finally:
            file.close()
        if len(data) % self.entry_bytes:
            why = f"{len(data)} bytes are not a multiple of {self.entry_bytes}"
            raise CorruptFile(self.path, why)
        # A preallocated or torn file ends in zeros: no entry but perhaps a part of the last one.
        used = len(data.rstrip(b"\0"))
        used += -used % self.entry_bytes
        self.entries[:] = data[:used]
        self._written_bytes = used if used == len(data) else -1
        self.check(log_size_bytes)

    def check(self, log_size_bytes: int) -> None:
        """Raise CorruptFile when the last entry is impossible."""
        raise NotImplementedError

    def add(self, entry: bytes) -> None:
        """Append one packed entry; writes behind when enough have gathered."""
        self.entries += entry
        if len(self.entries) - self._written_bytes >= _ENTRIES_PER_WRITE * self.entry_bytes:
            # An index that lags costs time after a kill; the append it belongs to has succeeded.
            with suppress(OSError):
                self.write()

    def extend(self, entries: bytes) -> None:
        """Append many entries in the file's format; the next ``write`` takes them to the file."""
        self.entries += entries

    def ascends(self) -> bool:
        """Tell whether each entry lies above the one before it, in both of its numbers.

        Reads all of them: up to 0.1 s where a segment of 1 GiB has one every 4 KiB.
        """
        if not self.entries:
            return True
        columns = zip(*self._entry.iter_unpack(self.entries), strict=True)
        return all(all(map(lt, column, column[1:])) for column in columns)

    def keep(self, count: int) -> None:
        """Drop all entries but the first ``count``."""
        if count < self.count:
            del self.entries[count * self.entry_bytes :]
            self._written_bytes = -1

    def rename(self, path: str) -> None:
        """Let the file have another name. Raises OSError."""
        self._disk.rename(self.path, path)
        self.path = path

    def forget_file(self) -> None:
        """Trust nothing that the file may hold: the next write writes all of it."""
        self._written_bytes = -1

    def write(self, *, sync: bool = False) -> None:
        """Bring the file up to date, creating it; with ``sync`` make its bytes durable."""
        if self._written_bytes == len(self.entries) and not sync:
            return
        file = self._disk.open(self.path, create=True)
        try:
            start = max(self._written_bytes, 0)
            if start < len(self.entries):
                file.write_at(start, bytes(self.entries[start:]))
            if file.size() > len(self.entries):
                file.truncate(len(self.entries))
            if sync:
                faults.sync(file)
        finally:
            file.close()
        self._written_bytes = len(self.entries)
