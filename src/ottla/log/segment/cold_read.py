"""Has an executor read bytes that are not in memory, so that the loop need not wait for a device.

The loop's reads are short if the pages are in memory, as the tail of a log is, which was written
moments ago. A consumer far behind may ask for pages that are not, and one read from a device
(milliseconds, on a spinning disk a hundred) would hold up all clients. So an executor first reads
the same bytes and throws them away; then the loop reads them as always, from the page cache. A
``ColdRead`` has paths and numbers only: no state of a log crosses to another thread.

Above log.segment, below replication.fetch; source: design D1 ("cold reads cross by the executor").
"""

from contextlib import suppress
from typing import NamedTuple

from ottla.env.disk import Disk, File
from ottla.errors import CorruptFile, KafkaError
from ottla.log.files.layout import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from ottla.log.segment.offset_index import OffsetIndex
from ottla.log.segment.scan import LOOKUP_CHUNK_BYTES
from ottla.log.segment.segment import Segment
from ottla.log.segment.time_index import TimeIndex

COLD_READ_BYTES_MAX = 4 * 1024 * 1024
"""Of one partition, at a time: a client that asked for more gets less, and asks again."""

_PIECE_BYTES = 256 * 1024


class ColdRead(NamedTuple):
    """What a read of one segment from ``offset`` on will look at."""

    disk: Disk
    log_path: str
    offset_index_path: str
    time_index_path: str
    base_offset: int
    log_bytes: int
    offset: int
    position: int | None
    """Where the batch before or at ``offset`` starts; None: the index is not in memory, either."""
    length_bytes: int

    def run(self) -> None:
        """Read it. Blocks; on any thread. Does not raise: errors are for who reads in earnest."""
        with suppress(OSError, CorruptFile):
            position = self._from_index() if self.position is None else self.position
            file = self.disk.open_read_only(self.log_path)
            try:
                self._read(file, position)
            finally:
                file.close()

    def _from_index(self) -> int:
        index = OffsetIndex(self.disk, self.offset_index_path, self.base_offset)
        index.load(self.log_bytes)
        TimeIndex(self.disk, self.time_index_path, self.base_offset).load(self.log_bytes)
        entry = index.lookup(self.offset)
        return 0 if entry is None else entry.position

    def _read(self, file: File, position: int) -> None:
        # The batch itself may begin up to an index interval behind the entry.
        end = min(position + self.length_bytes + LOOKUP_CHUNK_BYTES, self.log_bytes)
        scratch = memoryview(bytearray(min(_PIECE_BYTES, max(end - position, 0))))
        while position < end:
            read = file.read_into(position, scratch[: end - position])
            if read == 0:
                return
            position += read


def cold_read(segment: Segment, offset: int, length_bytes: int) -> ColdRead | None:
    """Return what an executor should do before ``segment`` is read from ``offset`` on.

    None when nothing of that would wait for the device: always so near the end of the log.
    Otherwise costs some microseconds.
    """
    if segment.remembers(offset) or not segment.size_bytes:
        return None
    position: int | None = None
    try:
        if segment.has_loaded_indexes or _indexes_are_cached(segment):
            entry = segment.indexes.offsets.lookup(offset)
            position = 0 if entry is None else entry.position
            length_bytes = min(length_bytes, segment.size_bytes - position)
            if segment.file.is_cached(position, max(length_bytes, 1)):
                return None
    except (OSError, KafkaError):
        return None  # For the read to find, and to answer.
    return ColdRead(
        segment.disk,
        segment.path,
        segment.path_of(OFFSET_INDEX_SUFFIX),
        segment.path_of(TIME_INDEX_SUFFIX),
        segment.base_offset,
        segment.size_bytes,
        offset,
        position,
        length_bytes,
    )


def _indexes_are_cached(segment: Segment) -> bool:
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        try:
            file = segment.disk.open_read_only(segment.path_of(suffix))
        except FileNotFoundError:
            return True  # It is made from the log, whoever does it.
        try:
            size_bytes = file.size()
            if size_bytes and not file.is_cached(0, size_bytes):
                return False
        finally:
            file.close()
    return True
