"""The segments of one log: an ordered list, of which the last one takes the appends.

Owns which segments there are, which one is active, which files of full ones stay open, and which
full ones no sync has covered yet. Knows no log end, no flushed offset and no reader: the log tells
what it needs. Changes by these verbs only, on the loop, and each keeps the list, its base offsets
and the active segment together. Between log.log and log.segment. Source: Kafka's LogSegments.

    begin        a new segment takes the appends (a roll)
    replace      one cleaned segment stands for several full ones
    drop_oldest  the oldest segment is no longer the log's (retention)
    truncate_to  what reaches an offset goes, with all segments above it
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from ottla.env.disk import Disk
from ottla.log.config import LogConfig
from ottla.log.files.faults import sync, sync_directory
from ottla.log.files.layout import DELETED_SUFFIX, LOG_SUFFIX, segment_file
from ottla.log.segment.full_files import FullFiles
from ottla.log.segment.scan import Batch
from ottla.log.segment.segment import Segment, with_ends


class Found(NamedTuple):
    """A batch, the segment that holds it, and where that segment's offsets end (exclusive)."""

    segment: Segment
    batch: Batch
    end_offset: int


class Segments(Sequence[Segment]):
    """At least one segment, oldest first."""

    __slots__ = (
        "_base_offsets",
        "_directory",
        "_disk",
        "_full_files",
        "_segments",
        "active",
        "rewrites",
        "unsynced",
    )

    def __init__(self, disk: Disk, directory: str, segments: Sequence[Segment]) -> None:
        """``segments``: all there are in ``directory``, oldest first; at least one."""
        self._disk = disk
        self._directory = directory
        self._segments = list(segments)
        self._base_offsets = [segment.base_offset for segment in segments]
        """Invariant: those of ``_segments``, ascending."""
        self.active = segments[-1]
        """Use: takes the appends; nobody else sets it. Invariant: the last one."""
        self.unsynced: list[Segment] = []
        """Use: full segments that the next flush has to sync. Invariant: oldest first."""
        self.rewrites = 0
        """Use: who remembers what was in full segments looks again when it differs. Counts how
        often what they hold became another: not that new ones began, or that old ones went."""
        self._full_files = FullFiles()
        opened = self.note_read
        for segment in segments:
            segment.opened = opened

    # -- which there are ----------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        return self._segments[index]

    @property
    def base_offset(self) -> int:
        """Base offset of the oldest segment."""
        return self._base_offsets[0]

    @property
    def size_bytes(self) -> int:
        """Bytes in all log files."""
        return sum(segment.size_bytes for segment in self._segments)

    def with_ends(self, log_end_offset: int) -> Iterator[tuple[Segment, int]]:
        """Yield each segment and the offset where it ends (exclusive)."""
        return with_ends(self._segments, log_end_offset)

    # -- finding ------------------------------------------------------------------------------

    def holding(self, offset: int) -> Segment:
        """Return the last segment that begins at or below ``offset``; else the oldest one."""
        active = self.active
        return active if offset >= active.base_offset else self._segments[self.ordinal_of(offset)]

    def ordinal_of(self, offset: int) -> int:
        """Return where ``holding(offset)`` stands in the list."""
        return max(bisect_right(self._base_offsets, offset) - 1, 0)

    def reaching(self, offset: int) -> list[Segment]:
        """Return the segment that holds ``offset`` and all after it."""
        return self._segments[self.ordinal_of(offset) :]

    def find(self, offset: int, log_end_offset: int) -> Found | None:
        """Find the first batch whose last offset is >= ``offset``; None when there is none.

        Raises KafkaError CORRUPT_MESSAGE where a segment cannot be read. May block on a cold index.
        """
        for at in range(self.ordinal_of(offset), len(self._segments)):
            segment = self._segments[at]
            batch = segment.find(offset)
            if batch is not None:
                return Found(segment, batch, self._end_of(at, log_end_offset))
        return None

    def offset_behind(self, base_offset: int, position: int, log_end_offset: int) -> int:
        """Return an offset that nothing before byte ``position`` of a segment reaches.

        ``base_offset``: the segment's. May block on a cold index.
        """
        at = self.ordinal_of(base_offset)
        segment = self._segments[at]
        offset = None
        if position < segment.size_bytes:
            offset = segment.indexes.offsets.offset_behind(position)
        return self._end_of(at, log_end_offset) if offset is None else offset

    def has_full_below(self, offset: int) -> bool:
        """Tell whether the oldest segment is full and holds nothing at or above ``offset``."""
        return len(self._segments) > 1 and self._base_offsets[1] <= offset

    def left_below(self, offset: int) -> Segment:
        """Return the segment that is the active one after ``truncate_to(offset)``."""
        return self._segments[max(bisect_left(self._base_offsets, offset) - 1, 0)]

    def _end_of(self, ordinal: int, log_end_offset: int) -> int:
        is_last = ordinal + 1 == len(self._base_offsets)
        return log_end_offset if is_last else self._base_offsets[ordinal + 1]

    # -- changing -----------------------------------------------------------------------------

    def begin(self, base_offset: int, config: LogConfig, now_ms: int) -> None:
        """Make a segment that takes the appends from ``base_offset`` on. Blocks, for little.

        Its name is not durable before the next flush has done what ``leave_unsynced`` left to it.
        Raises OSError or CorruptFile: the active segment is the same as before then, and what there
        is of the new one is for ``remove_stillborn``.
        """
        segment = Segment(
            self._disk,
            self._directory,
            base_offset,
            size_bytes=0,
            index_interval_bytes=config.index_interval_bytes,
            created_ms=now_ms,
        )
        segment.create(preallocated_bytes=config.preallocated_bytes)
        segment.opened = self.note_read
        self._segments.append(segment)
        self._base_offsets.append(base_offset)
        self.active = segment

    def remove_stillborn(self, base_offset: int) -> OSError | None:
        """Take back a segment that could not be made: the log may grow past its name.

        Returns what the disk said when it did not let go of it.
        """
        path = f"{self._directory}/{segment_file(base_offset, LOG_SUFFIX)}"
        try:
            if self._disk.exists(path) and self._disk.size_of(path) == 0:
                self._disk.remove(path)
        except OSError as error:
            return error
        return None

    def replace(self, count: int, new: Segment) -> None:
        """Let ``new`` stand for the ``count`` full segments from its base offset on."""
        first = self._base_offsets.index(new.base_offset)
        self.rewrites += 1
        self._exchange(first, count, [new])

    def drop_oldest(self) -> None:
        """Take the oldest segment, a full one, out; whoever reads its file keeps it open."""
        self._exchange(0, 1, [])

    def _exchange(self, first: int, count: int, new: list[Segment]) -> None:
        old, self._segments[first : first + count] = self._segments[first : first + count], new
        self._base_offsets[first : first + count] = [segment.base_offset for segment in new]
        self.unsynced = [segment for segment in self.unsynced if segment not in old]
        for segment in new:
            segment.opened = self.note_read
        for segment in old:
            segment.opened = None
            self._full_files.forget(segment)
            segment.let_go()

    def truncate_to(self, offset: int) -> int:
        """Remove all batches at or above ``offset`` and return where the last one left ends.

        What stays of the active segment is durable. Blocks. Raises OSError: then the files are no
        longer to be believed.
        """
        self.rewrites += 1
        while len(self._segments) > 1 and self.active.base_offset >= offset:
            self._remove_active()
        active = self.active
        active.truncate(offset)
        sync(active.file)
        self._take_synced(active)
        last = active.last_offset()
        return active.base_offset if last is None else last + 1

    def _remove_active(self) -> None:
        """Remove the files of the active segment; the one before it takes the appends."""
        dropped = self._segments.pop()
        dropped.opened = None
        self._base_offsets.pop()
        self.active = self._segments[-1]
        self._full_files.forget(self.active)
        self._take_synced(dropped)
        self._disk.rename(dropped.path, dropped.path + DELETED_SUFFIX)
        sync_directory(self._disk, self._directory)
        dropped.remove_transaction_index()  # Not before: a kill would leave the segment without it.
        self._disk.remove(dropped.path_of(LOG_SUFFIX) + DELETED_SUFFIX)
        dropped.let_go()

    # -- syncs and open files -----------------------------------------------------------------

    def leave_unsynced(self) -> None:
        """Leave to the next flush what the active segment, which takes no more, still needs.

        That is the sync of its files, and of the name of the one that follows.
        """
        self.unsynced.append(self.active)

    def take_unsynced(self) -> list[Segment]:
        """Hand what is to be synced to a flush; it comes back by ``put_back`` if that fails."""
        unsynced, self.unsynced = self.unsynced, []
        return unsynced

    def put_back(self, unsynced: Sequence[Segment]) -> None:
        """Take back what a flush was to sync and did not."""
        self.unsynced = [*unsynced, *self.unsynced]

    def _take_synced(self, segment: Segment) -> None:
        if segment in self.unsynced:
            self.unsynced.remove(segment)

    def note_read(self, segment: Segment) -> None:
        """Tell that a segment is open: few full ones stay so.

        After a read, whenever one opens its file or its indexes, and when it has become a full one
        and is synced. One that is not stays open: see ``FullFiles``.
        """
        if segment is not self.active and segment not in self.unsynced:
            self._full_files.note(segment)

    def let_go(self) -> None:
        """Let go of all files; regions and flushes on their way keep theirs."""
        for segment in self._segments:
            segment.opened = None  # Else it would be a cycle.
            segment.let_go()
