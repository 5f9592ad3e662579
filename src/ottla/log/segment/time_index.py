"""The time index: from which offset on a segment may hold a timestamp.

Between log.segment and the file ``<base offset>.timeindex``. Grammar, big-endian, as Kafka's:

    index = { entry }                 entries ascending in the timestamp
    entry = timestamp       int64     the largest timestamp in the segment up to that batch
            relative_offset uint32    last offset of the batch that holds it - base offset

An entry is made together with each one of the offset index, and one more when the segment is
rolled, unless the largest timestamp is still that of the entry before. Every record before the
entry's batch is at most as late as the entry says.
"""

from bisect import bisect_right
from struct import Struct
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.errors import CorruptFile
from ottla.log.segment.index import Index

ENTRY = Struct(">qI")


class TimestampOffset(NamedTuple):
    """``offset`` is the last one of the first batch that reaches ``timestamp`` (milliseconds)."""

    timestamp: int
    offset: int


class TimeIndex(Index):
    """The entries of one ``.timeindex`` file."""

    __slots__ = ()

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        super().__init__(disk, path, base_offset, entry=ENTRY)

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry; nothing happens unless ``timestamp`` is later than the last one's (-1)."""
        entries = self.entries
        latest = ENTRY.unpack_from(entries, len(entries) - ENTRY.size)[0] if entries else -1
        if timestamp > latest:
            self.add(ENTRY.pack(timestamp, offset - self.base_offset))

    def entry(self, ordinal: int) -> TimestampOffset:
        """Return entry number ``ordinal`` of ``[0, count)``."""
        timestamp, relative = ENTRY.unpack_from(self.entries, ordinal * ENTRY.size)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def last(self) -> TimestampOffset | None:
        """Return the last entry, or None when there is none."""
        return self.entry(self.count - 1) if self.entries else None

    def lookup(self, timestamp: int) -> TimestampOffset | None:
        """Return the entry with the largest timestamp <= ``timestamp``, or None."""
        after = bisect_right(range(self.count), timestamp, key=self._timestamp)
        return self.entry(after - 1) if after else None

    def keep_below(self, offset: int) -> None:
        """Drop the entries with an offset >= ``offset``."""
        self.keep(bisect_right(range(self.count), offset - 1, key=lambda n: self.entry(n).offset))

    def check(self, log_size_bytes: int) -> None:
        """Raise CorruptFile when the last entry is impossible for a log of ``log_size_bytes``."""
        last = self.last()
        if last is None:
            return
        if log_size_bytes == 0 or last.timestamp < self.entry(0).timestamp:
            why = f"last entry has timestamp {last.timestamp} in a log of {log_size_bytes} bytes"
            raise CorruptFile(self.path, why)

    def _timestamp(self, ordinal: int) -> int:
        timestamp: int = ENTRY.unpack_from(self.entries, ordinal * ENTRY.size)[0]
        return timestamp
