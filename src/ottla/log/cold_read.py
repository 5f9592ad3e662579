"""Going ahead of the loop where a read would wait for the device.

The loop's reads are short because the pages are in memory: the tail of a log was written moments
ago. What a consumer far behind asks for may not be, and one read from a device (milliseconds, on a
spinning disk a hundred) would hold up everybody. So before such a read an executor reads the same
bytes and throws them away; the loop then does its own read as always, from the page cache. A
``ColdRead`` holds paths and numbers only: no state of a log crosses to another thread.

Below log.segment; source: design D1 ("cold reads cross by the executor").
"""

from contextlib import suppress
from typing import NamedTuple

from ottla.env.disk import Disk, File
from ottla.errors import CorruptFile
from ottla.log.offset_index import OffsetIndex
from ottla.log.scan import LOOKUP_CHUNK_BYTES
from ottla.log.time_index import TimeIndex

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
