"""The segment that a cleaning writes: under ``.cleaned`` names, durable before it replaces others.

Owns its files until they are handed over as a Replacement; what is written is log.upkeep.cleaner's,
and the swap is ``log.upkeep.swap``'s. A start drops what a crash leaves of it. In an executor.
Source: Kafka's Cleaner; reliability rule 15.
"""

from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ottla.env.disk import Disk, File
from ottla.log.files.faults import sync
from ottla.log.files.layout import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TRANSACTION_SUM_SUFFIX,
    segment_file,
)
from ottla.log.segment.indexes import SegmentIndexes
from ottla.log.segment.time_index import TimestampOffset
from ottla.log.segment.transaction_index import AbortedTransaction, TransactionIndex
from ottla.log.upkeep.compaction import Source
from ottla.records import batch_walk
from ottla.records.batch import HEADER_SIZE_BYTES, NO_TIMESTAMP

SYNC_BYTES = 8 * 1024 * 1024
"""A new segment is synced every so often: one large sync would hold up those of producers."""
_SUFFIXES = (
    *(LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX),
    *(TRANSACTION_INDEX_SUFFIX, TRANSACTION_SUM_SUFFIX),
)


class Replacement(NamedTuple):
    """A new segment, durable under its ``.cleaned`` names, and the segments it is to replace."""

    directory: str
    replaced: Sequence[Source]
    file: File
    """The new log file, open."""
    size_bytes: int
    indexes: SegmentIndexes
    transaction_index: TransactionIndex | None
    """None: no marker of an aborted transaction is left in it."""
    latest: TimestampOffset
    """Its largest timestamp."""

    @property
    def base_offset(self) -> int:
        """The new segment's: that of the first one replaced."""
        return self.replaced[0].base_offset


class CleanedSegment:
    """A segment that is being written under ``.cleaned`` names."""

    def __init__(
        self, disk: Disk, directory: str, group: Sequence[Source], index_interval_bytes: int
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._group = group
        self._size_bytes = 0
        self._synced_bytes = 0
        self._base_offset = group[0].base_offset
        for suffix in _SUFFIXES:
            with suppress(FileNotFoundError):  # Of a cleaning that could not remove it.
                disk.remove(self._path(suffix))
        self._indexes = SegmentIndexes(disk, self._path, self._base_offset)
        self._file = disk.open(self._path(LOG_SUFFIX), create=True, exclusive=True)
        self._walk = array("q", bytes(8 * batch_walk.WALK_STATE_SIZE))
        """The ``state`` of ``index_batches``."""
        self._walk[batch_walk.INDEX_INTERVAL] = index_interval_bytes
        self._walk[batch_walk.LATEST_TIMESTAMP] = NO_TIMESTAMP
        self._walk[batch_walk.LATEST_OFFSET] = self._base_offset

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{segment_file(self._base_offset, suffix)}{CLEANED_SUFFIX}"

    def write(self, out: bytearray, size_bytes: int) -> None:
        """Append the first ``size_bytes`` of the output, whole batches, to the segment."""
        room = 8 * batch_walk.ENTRY_WORDS * (size_bytes // HEADER_SIZE_BYTES + 1)
        entries = array("q", bytes(room))
        count = batch_walk.index_batches(out, size_bytes, self._walk, entries)
        for at in range(0, batch_walk.ENTRY_WORDS * count, batch_walk.ENTRY_WORDS):
            position, last_offset, timestamp, timestamp_offset = entries[at : at + 4]
            latest = TimestampOffset(timestamp, timestamp_offset)
            self._indexes.append(last_offset, position, latest)
        with memoryview(out) as view:
            self._file.write_at(self._size_bytes, view[:size_bytes])
        self._size_bytes += size_bytes

    def sync_some(self) -> int:
        """Sync if much was written since the last time. Returns 0: nothing was moved."""
        if self._size_bytes - self._synced_bytes >= SYNC_BYTES:
            sync(self._file)
            self._synced_bytes = self._size_bytes
        return 0

    def finish(self, aborted: Sequence[AbortedTransaction]) -> Replacement:
        """Make all of it durable but for the names."""
        latest = TimestampOffset(
            self._walk[batch_walk.LATEST_TIMESTAMP], self._walk[batch_walk.LATEST_OFFSET]
        )
        self._indexes.times.append(*latest)
        sync(self._file)
        self._indexes.write(sync=True)
        return Replacement(
            self._directory,
            self._group,
            self._file,
            self._size_bytes,
            self._indexes,
            self._transaction_index(aborted),
            latest,
        )

    def _transaction_index(self, aborted: Sequence[AbortedTransaction]) -> TransactionIndex | None:
        if not aborted:
            return None
        index = TransactionIndex(self._disk, self._path(TRANSACTION_INDEX_SUFFIX))
        for entry in aborted:
            index.append(entry)
        index.sync()
        return index

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def remove(self) -> None:
        """Take back what was written."""
        for suffix in _SUFFIXES:
            with suppress(OSError):  # The next start removes what is left.
                self._disk.remove(self._path(suffix))
