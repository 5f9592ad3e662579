"""Walking the batches of a log file: from header to header, with or without their checksums.

The one way recovery, index rebuilds and look-ups find out what a ``.log`` holds. Reads in large
chunks, never record by record. A walk stops at the first thing that is not a batch and says why;
what that means is the caller's to judge (a torn tail, bit rot, or simply the end).
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ottla.env.disk import File
from ottla.log.segment.old_formats import NoBatch, is_old, read_old_batch
from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    BATCH_LENGTH_MIN,
    HEADER,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
)
from ottla.records.crc import crc32c

SCAN_CHUNK_BYTES = 1024 * 1024
"""Read ahead of a whole walk. Larger is slower: the copy should stay in the processor's cache."""

LOOKUP_CHUNK_BYTES = 8 * 1024
"""Read ahead of a look-up: it ends within ``index.interval.bytes`` or at a large batch."""


class Batch(NamedTuple):
    """Where a batch stands in its file, and what the log needs of its header."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int


_SEEK = Struct(">qiib6xi")
"""Of a header, only what a look-up needs: offset, length, epoch, magic and last offset delta."""


def seek(
    file: File, position: int, end: int, offset: int, entry_offset: int | None
) -> Batch | None:
    """Return the first batch from ``position`` on whose last offset is >= ``offset``, quickly.

    ``entry_offset``: what an index says the first batch ends with; None: it says nothing. None is
    returned for anything unusual, a look-up beyond the end too: a ``Walk`` tells what it is. Only
    position, size, first and last offset of the result are filled in.
    """
    chunk = file.read_at(position, LOOKUP_CHUNK_BYTES)
    at, chunk_end = 0, len(chunk) - HEADER_SIZE_BYTES
    unpack = _SEEK.unpack_from
    while position + HEADER_SIZE_BYTES <= end:
        if at > chunk_end:
            chunk = file.read_at(position, LOOKUP_CHUNK_BYTES)
            at, chunk_end = 0, len(chunk) - HEADER_SIZE_BYTES
            if chunk_end < 0:
                return None
        base_offset, length, _, magic, delta = unpack(chunk, at)
        last_offset = base_offset + delta
        size_bytes = length + LOG_OVERHEAD_BYTES
        if magic != MAGIC_V2 or length < BATCH_LENGTH_MIN or position + size_bytes > end:
            return None
        if entry_offset is not None:
            if last_offset != entry_offset:
                return None
            entry_offset = None
        if last_offset >= offset:
            return Batch(position, size_bytes, base_offset, last_offset, -1, -1)
        position += size_bytes
        at += size_bytes
    return None


class Walk:
    """One pass over ``[position, end)`` of a log file; iterate it, then ask how it ended."""

    __slots__ = (
        "_chunk_bytes",
        "_end",
        "_file",
        "_verify_crc",
        "header",
        "position",
        "stopped_by",
    )

    def __init__(
        self,
        file: File,
        position: int,
        end: int,
        *,
        verify_crc: bool,
        chunk_bytes: int = SCAN_CHUNK_BYTES,
    ) -> None:
        self._file = file
        self._end = end
        self._verify_crc = verify_crc
        self._chunk_bytes = chunk_bytes
        self.position = position
        """Where the next batch starts, or where the walk stopped: all before it is whole."""
        self.header: tuple[int, ...] = ()
        """The fields of the current batch's header, in ``BatchHeader``'s order."""
        self.stopped_by: str | None = None
        """Why the bytes at ``position`` are no batch; None at the end of the range."""

    def __iter__(self) -> Iterator[Batch]:
        chunk = memoryview(b"")
        chunk_start = self.position
        unpack = HEADER.unpack_from
        verify_crc = self._verify_crc
        end = self._end
        while (position := self.position) < end:
            at = position - chunk_start
            if at + HEADER_SIZE_BYTES > len(chunk):
                chunk_start, at = position, 0
                chunk = self._read(position, self._chunk_bytes)
            if len(chunk) - at < HEADER_SIZE_BYTES or chunk[at + MAGIC_POSITION] < MAGIC_V2:
                old = self._read_old(chunk[at:])
                if old is None:
                    return
                yield old
                continue
            header = unpack(chunk, at)
            base_offset, length, leader_epoch, magic, crc, _, delta, _, max_timestamp = header[:9]
            size_bytes = length + LOG_OVERHEAD_BYTES
            if magic != MAGIC_V2 or length < BATCH_LENGTH_MIN or position + size_bytes > end:
                self.stopped_by = f"magic {magic}, length {length}, {end - position} bytes left"
                return
            if base_offset < 0 or delta < 0 or not 0 <= header[12] <= delta + 1:
                self.stopped_by = f"base offset {base_offset}, delta {delta}, {header[12]} records"
                return
            if verify_crc:
                if at + size_bytes > len(chunk):
                    chunk_start, at = position, 0
                    chunk = self._read(position, max(size_bytes, self._chunk_bytes))
                if crc32c(chunk[at + ATTRIBUTES_POSITION : at + size_bytes]) != crc:
                    self.stopped_by = f"checksum of the batch at offset {base_offset} is wrong"
                    return
            self.position = position + size_bytes
            self.header = header
            yield Batch(
                position, size_bytes, base_offset, base_offset + delta, leader_epoch, max_timestamp
            )

    def _read_old(self, head: memoryview) -> Batch | None:
        """Go past an entry of format 0 or 1; None when it is not whole."""
        position = self.position
        if not is_old(head):
            self.stopped_by = f"{len(head)} bytes are too few for a header"
            return None
        header = read_old_batch(self._file, position, self._end, head)
        if isinstance(header, NoBatch):
            self.stopped_by = header.why
            return None
        self.header = header
        self.position = position + header.size_bytes
        return Batch(
            position,
            header.size_bytes,
            header.base_offset,
            header.last_offset,
            header.partition_leader_epoch,
            header.max_timestamp,
        )

    def _read(self, position: int, length: int) -> memoryview:
        return memoryview(self._file.read_at(position, min(length, self._end - position)))


def are_zeros(file: File, start: int, end: int) -> bool:
    """Tell whether all bytes of ``file`` in ``[start, end)`` are zeros. Blocks. Raises OSError."""
    for position in range(start, end, SCAN_CHUNK_BYTES):
        count = min(SCAN_CHUNK_BYTES, end - position)
        if file.read_at(position, count).count(0) != count:
            return False
    return True
