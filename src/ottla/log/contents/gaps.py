"""What of a log is still there below an offset: compaction leaves gaps, at the ends of epochs too.

A replica that copies a compacted log hears of a leader epoch with the first batch that is left of
it. Between that and the batch before it the log cannot tell who wrote what. Beside
log.contents.segments, for who compares another log with this one; changes nothing.
"""

from ottla.log.contents.segments import Segments
from ottla.log.segment.scan import Walk
from ottla.log.segment.segment import Segment


def reached_below(segments: Segments, offset: int, bound: int) -> int:
    """Return ``offset`` if a batch that begins below ``bound`` has what is just below it, or more.

    Else where the last batch before it ends, or lower where an index leads to nothing; 0: there is
    none. ``offset`` is above 0. Raises KafkaError CORRUPT_MESSAGE where a segment cannot be read.
    May block on a cold index.
    """
    found = segments.find(offset - 1, bound)
    if found is not None:
        batch = found.segment.next_batch(found.batch.position)
        if batch is not None and batch.base_offset < bound:
            return offset
        end = _end_before(found.segment, found.batch.position, offset)
        if end is not None:
            return end
    for segment in reversed(segments[: segments.ordinal_of(offset - 1) + 1]):
        is_below = found is None or segment is not found.segment
        last = segment.last_offset() if is_below and segment.size_bytes else None
        if last is not None:
            return last + 1
    return 0


def _end_before(segment: Segment, position: int, offset: int) -> int | None:
    """Return where the batch before the one at ``position`` ends; None: that is the first one.

    All before it lies below ``offset`` - 1.
    """
    if position == 0:
        return None
    entry = segment.indexes.offsets.lookup(offset - 2)
    last = segment.base_offset - 1
    start = 0 if entry is None else entry.position
    for batch in Walk(segment.file, start, position, verify_crc=False):
        last = batch.last_offset
    return min(last + 1, offset - 1)
