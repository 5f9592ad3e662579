"""The two sparse indexes of one segment as one thing: both are in memory, or none is.

Owns how the pair is loaded, extended, cut and written, and how far the log confirms it: after a
crash each file ends at a place of its own, and where the two agree with each other and with the
batches is the joint from which a segment is noted again. Opens index files only; who asks shows it
the log's batches. Below log.segment. Source: reliability rule 10; Kafka's LogSegment.recover.
"""

from collections.abc import Callable, Iterable

from ottla.env.disk import Disk
from ottla.errors import CorruptFile
from ottla.log.files.layout import OFFSET_INDEX_SUFFIX, TEMPORARY_SUFFIX, TIME_INDEX_SUFFIX
from ottla.log.segment.bulk_walk import Stretch
from ottla.log.segment.offset_index import ENTRY as OFFSET_ENTRY
from ottla.log.segment.offset_index import OffsetIndex, OffsetPosition
from ottla.log.segment.scan import Batch
from ottla.log.segment.time_index import ENTRY as TIME_ENTRY
from ottla.log.segment.time_index import TimeIndex, TimestampOffset
from ottla.records.batch import NO_TIMESTAMP

BatchesFrom = Callable[[int], Iterable[Batch]]
"""Gives the batches of the segment's log file from a position on."""
PathOf = Callable[[str], str]
"""Gives the path of the segment's file with a suffix."""


class SegmentIndexes:
    """The offset index and the time index of one segment; they get their entries together."""

    __slots__ = ("_base_offset", "offsets", "times")

    def __init__(self, disk: Disk, path_of: PathOf, base_offset: int) -> None:
        self._base_offset = base_offset
        self.offsets = OffsetIndex(disk, path_of(OFFSET_INDEX_SUFFIX), base_offset)
        self.times = TimeIndex(disk, path_of(TIME_INDEX_SUFFIX), base_offset)

    def load(self, log_size_bytes: int) -> bool:
        """Read both files; False when one is missing or impossible: use neither then.

        ``log_size_bytes``: the size of the log file that the entries must fit. Blocks. Raises
        OSError.
        """
        try:
            self.offsets.load(log_size_bytes)
            self.times.load(log_size_bytes)
        except (FileNotFoundError, CorruptFile):
            return False
        return True

    @property
    def are_written(self) -> bool:
        """Tell whether both files hold all that is in memory."""
        return self.offsets.is_written and self.times.is_written

    def write(self, *, sync: bool = False) -> None:
        """Bring both files up to date; with ``sync`` durably. Blocks. Raises OSError."""
        self.offsets.write(sync=sync)
        self.times.write(sync=sync)

    def move_to(self, path_of: PathOf) -> None:
        """Write to other files from now on: the ones there were are being renamed."""
        self.offsets.path = path_of(OFFSET_INDEX_SUFFIX)
        self.times.path = path_of(TIME_INDEX_SUFFIX)

    def begin_anew(self, path_of: PathOf) -> None:
        """Write to files beside the ones there are, until ``write_anew``."""
        self.move_to(lambda suffix: path_of(suffix) + TEMPORARY_SUFFIX)

    def write_anew(self, path_of: PathOf) -> None:
        """Let both files take the place of the ones there were. Blocks. Raises OSError.

        After a power cut each is the former one, or whole: an index that ends too early, in a
        segment whose timestamps do not rise, cannot be told from a true one.
        """
        try:
            self.write(sync=True)
            for index in (self.offsets, self.times):
                index.rename(index.path.removesuffix(TEMPORARY_SUFFIX))
        except OSError:
            self.offsets.forget_file()
            self.times.forget_file()
            raise
        finally:
            self.move_to(path_of)

    # -- entries ------------------------------------------------------------------------------

    def append(self, last_offset: int, position: int, latest: TimestampOffset) -> None:
        """Add the entries of a batch. ``latest``: the largest timestamp up to and with it."""
        self.offsets.append(last_offset, position)
        self.times.append(*latest)

    def extend(self, stretch: Stretch) -> None:
        """Add the entries of a stretch of batches."""
        self.offsets.extend(stretch.offset_entries)
        self.times.extend(stretch.time_entries)

    def bytes_after_next(self) -> int:
        """Return how many bytes the larger index has with one entry more.

        In the time index one stays free, too, for the entry that a roll itself writes.
        """
        return max(
            len(self.offsets.entries) + OFFSET_ENTRY.size,
            len(self.times.entries) + 2 * TIME_ENTRY.size,
        )

    def last_position(self) -> int:
        """Return where the last batch with an entry starts; 0 when none has one."""
        last = self.offsets.last()
        return 0 if last is None else last.position

    # -- what the log confirms ----------------------------------------------------------------

    def joint(
        self, keep_below: int, batches_from: BatchesFrom, *, trusted: bool
    ) -> tuple[int, TimestampOffset] | None:
        """Drop the offset entries from a batch on; return its position and the latest time there.

        No batch before it is later; it, or one soon after it, has that time, unless none has any.
        It starts at or below the one that holds ``keep_below``, and has an entry to get again. The
        last entries kept agree with the log; with ``trusted`` (after a clean stop) they are as many
        as possible. None: there is no such batch, and none of the entries is to be used. After a
        power cut a page in the middle of a file may hold zeros: what is kept rises.
        """
        self.offsets.keep_below(keep_below)
        self.times.keep_below(keep_below)
        if trusted:
            return self._trusted_joint(batches_from)
        if not (self.offsets.ascends() and self.times.ascends()):
            return None
        return self._joint(batches_from)

    def _trusted_joint(self, batches_from: BatchesFrom) -> tuple[int, TimestampOffset] | None:
        """Resume at the last offset entry: the time index says all about what lies before it."""
        entry, time_entry = self.offsets.last(), self.times.last()
        if entry is None or not agrees(entry, None, batches_from):
            return None
        self.offsets.keep_below(entry.offset)
        return entry.position, time_entry or TimestampOffset(NO_TIMESTAMP, self._base_offset)

    def _joint(self, batches_from: BatchesFrom) -> tuple[int, TimestampOffset] | None:
        """Resume at the last time entry that agrees with the log.

        After a kill the two indexes end at different places, since each is written behind by
        itself: no time entry knows of the batches after it, whatever offset entries say. Nor do
        two tell what lies between them: after a power cut the file may be of an earlier writing,
        with fewer entries, beside one with all offsets. So what is noted again counts from the
        time of this entry on, also where that comes a little later.
        """
        offsets, times = self.offsets, self.times
        while (time_entry := times.last()) is not None:
            times.keep(times.count - 1)
            entry = offsets.lookup(time_entry.offset)
            if entry is None:
                return None
            if agrees(entry, time_entry, batches_from):
                offsets.keep_below(entry.offset)
                times.append(*time_entry)  # Is written again: it may be in memory only, and clean.
                return entry.position, time_entry
        return None


def agrees(
    entry: OffsetPosition, time_entry: TimestampOffset | None, batches_from: BatchesFrom
) -> bool:
    """Tell whether the log has a batch where ``entry`` says, and one as ``time_entry`` says."""
    for batch in batches_from(entry.position):
        if batch.position == entry.position and batch.last_offset != entry.offset:
            return False
        if time_entry is None:
            return True
        if batch.last_offset >= time_entry.offset:
            return (batch.max_timestamp, batch.last_offset) == time_entry
    return False
