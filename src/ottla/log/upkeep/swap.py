"""A cleaned segment takes the place of those it was made of: in memory at once, on disk in steps.

The order of reliability rule 15. Each step is one function, so that the caller decides where it
runs; the log reads from the new segment's open file and never sees names in between:

    commit        executor  .cleaned becomes .swap, the log last; directory synced: it is decided
    put_in_place  loop      the log's list of segments has the new one
    rename_all    executor  the old files become .deleted; synced; .swap becomes the final names
                            (the log last); synced
    finish        loop      the new segment may close its files: its names are its own now

A start finishes what was committed, and drops what was not (log.recovery). From the commit to the
end the log holds its segments (``Log.is_swapping``): nothing may be dropped or truncated meanwhile.
"""

from contextlib import suppress

from ottla.env.disk import Disk
from ottla.log.files.faults import sync_directory
from ottla.log.files.layout import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TRANSACTION_SUM_SUFFIX,
    segment_file,
)
from ottla.log.log import Log
from ottla.log.segment.segment import Segment
from ottla.log.upkeep.cleaned_segment import Replacement

_SUFFIXES = (
    *(TRANSACTION_SUM_SUFFIX, TRANSACTION_INDEX_SUFFIX),
    *(TIME_INDEX_SUFFIX, OFFSET_INDEX_SUFFIX, LOG_SUFFIX),
)
"""The log last: a segment without indexes is whole, indexes without a segment are nothing."""


def can_replace(log: Log, new: Replacement) -> bool:
    """Tell whether the segments that ``new`` was made of are still those of ``log``."""
    if not log.is_in_service or log.is_swapping or log.directory != new.directory:
        return False
    sizes = {segment.base_offset: segment.size_bytes for segment in log.segments[:-1]}
    return all(sizes.get(source.base_offset) == source.size_bytes for source in new.replaced)


class Swap:
    """One new segment on its way into its log. Each step may be called again after an OSError."""

    __slots__ = ("_are_old_renamed", "_disk", "_segment", "deleted", "new")

    def __init__(self, disk: Disk, new: Replacement) -> None:
        self._disk = disk
        self.new = new
        self._are_old_renamed = False
        self._segment: Segment | None = None
        self.deleted: list[str] = []
        """Files that may be removed once ``rename_all`` has returned."""

    def commit(self) -> None:
        """Decide the swap: from here on a start finishes it. Blocks. Raises OSError."""
        self._rename(self.new.base_offset, CLEANED_SUFFIX, SWAP_SUFFIX)
        sync_directory(self._disk, self.new.directory)

    def put_in_place(self, log: Log, now_ms: int) -> None:
        """Let ``log`` read from the new segment. On the loop; touches no file."""
        new = self.new
        segment = Segment(
            self._disk,
            new.directory,
            new.base_offset,
            size_bytes=new.size_bytes,
            index_interval_bytes=log.config.index_interval_bytes,
            created_ms=now_ms,
        )
        new.indexes.move_to(segment.path_of)
        segment.take_over(new.file, new.indexes, new.latest)
        if new.transaction_index is not None:
            new.transaction_index.path = segment.path_of(TRANSACTION_INDEX_SUFFIX)
            segment.transaction_index = new.transaction_index
        log.segments.replace(len(new.replaced), segment)
        self._segment = segment

    def rename_all(self) -> None:
        """Give all files their last names. Blocks. Raises OSError."""
        if not self._are_old_renamed:
            for source in self.new.replaced:
                self.deleted += self._rename(source.base_offset, "", DELETED_SUFFIX)
            sync_directory(self._disk, self.new.directory)
            self._are_old_renamed = True
        self._rename(self.new.base_offset, SWAP_SUFFIX, "")
        sync_directory(self._disk, self.new.directory)

    def finish(self, log: Log) -> None:
        """Let ``log`` be as any other again. On the loop, after ``rename_all``."""
        assert self._segment is not None, "it is in its place"
        self._segment.is_named = True
        self._segment.rest()
        log.is_swapping = False

    def withdraw(self) -> None:
        """Remove the new segment, which was not committed. Blocks."""
        for suffix in _SUFFIXES:
            name = segment_file(self.new.base_offset, suffix)
            with suppress(OSError):  # The next start removes what is left.
                self._disk.remove(f"{self.new.directory}/{name}{CLEANED_SUFFIX}")

    def _rename(self, base_offset: int, old: str, new: str) -> list[str]:
        """Change the last suffix of a segment's files; return their new paths."""
        renamed = []
        for suffix in _SUFFIXES:
            path = f"{self.new.directory}/{segment_file(base_offset, suffix)}"
            with suppress(FileNotFoundError):  # There is no such index, or it has its name.
                self._disk.rename(path + old, path + new)
                renamed.append(path + new)
        return renamed
