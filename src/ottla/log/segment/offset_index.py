"""The offset index: where in a segment to start looking for an offset.

Between log.segment and the file ``<base offset>.index``. Grammar, big-endian, as Kafka's:

    index = { entry }                entries ascending in both fields
    entry = relative_offset uint32   last offset of a batch - base offset of the segment
            position        uint32   where that batch starts in the log file

An entry is made for the first batch after every ``index.interval.bytes`` of log.
"""

from bisect import bisect_left
from struct import Struct
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.errors import CorruptFile
from ottla.log.segment.index import Index

ENTRY = Struct(">II")


class OffsetPosition(NamedTuple):
    """``offset`` is the last one of the batch that starts at byte ``position``."""

    offset: int
    position: int


class OffsetIndex(Index):
    """The entries of one ``.index`` file."""

    __slots__ = ()

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        super().__init__(disk, path, base_offset, entry=ENTRY)

    def append(self, offset: int, position: int) -> None:
        """Add an entry; nothing happens unless ``offset`` lies above the last one's."""
        entries = self.entries
        relative = offset - self.base_offset
        if not entries or relative > ENTRY.unpack_from(entries, len(entries) - ENTRY.size)[0]:
            self.add(ENTRY.pack(relative, position))

    def entry(self, ordinal: int) -> OffsetPosition:
        """Return entry number ``ordinal`` of ``[0, count)``."""
        relative, position = ENTRY.unpack_from(self.entries, ordinal * ENTRY.size)
        return OffsetPosition(self.base_offset + relative, position)

    def last(self) -> OffsetPosition | None:
        """Return the last entry, or None when there is none."""
        return self.entry(self.count - 1) if self.entries else None

    def lookup(self, offset: int) -> OffsetPosition | None:
        """Return the entry with the largest offset <= ``offset``, or None: start at position 0."""
        after = self._after(offset - self.base_offset)
        return self.entry(after - 1) if after else None

    def offset_behind(self, position: int) -> int | None:
        """Return an offset that nothing before byte ``position`` reaches; None: not known."""
        at = bisect_left(range(self.count), position, key=self._position)
        return self.entry(at).offset if at < self.count else None

    def keep_below(self, offset: int) -> None:
        """Drop the entries with an offset >= ``offset``."""
        self.keep(self._after(offset - 1 - self.base_offset))

    def check(self, log_size_bytes: int) -> None:
        """Raise CorruptFile when the last entry is impossible for a log of ``log_size_bytes``."""
        last = self.last()
        if last is None:
            return
        if last.position >= log_size_bytes or (last.position == 0 and self.count > 1):
            why = f"last entry points at byte {last.position} of a log of {log_size_bytes}"
            raise CorruptFile(self.path, why)

    def _after(self, relative: int) -> int:
        """Return the number of entries with a relative offset <= ``relative``.

        ``bisect_right`` with a key does this in twice the time, and every fetch asks.
        """
        entries, read, size = self.entries, ENTRY.unpack_from, ENTRY.size
        low, high = 0, self.count
        while low < high:
            middle = (low + high) >> 1
            if read(entries, middle * size)[0] <= relative:
                low = middle + 1
            else:
                high = middle
        return low

    def _position(self, ordinal: int) -> int:
        position: int = ENTRY.unpack_from(self.entries, ordinal * ENTRY.size)[1]
        return position
