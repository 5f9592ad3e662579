"""What of a log is still there below an offset: compaction leaves gaps, at the ends of epochs too.

A replica that copies a compacted log hears of a leader epoch with the first batch that is left of
it. Between that and the batch before it the log cannot tell who wrote what. Beside
log.contents.segments, for who compares another log with this one, or cuts it; changes nothing.
"""

from ottla.errors import ErrorCode, KafkaError
from ottla.log.contents.segments import Segments
from ottla.log.segment.scan import Walk
from ottla.log.segment.segment import Segment


def batch_start(segments: Segments, offset: int) -> int:
    """Return where the batch begins that spans ``offset``; ``offset`` itself if none does.

    Raises and blocks as ``end_if_cut``.
    """
    segment = segments.holding(offset)
    spanning = segment.next_batch(segment.position_of(offset))
    return offset if spanning is None else min(offset, spanning.base_offset)


def end_if_cut(segments: Segments, offset: int) -> int:
    """Return where the log ends after it was cut at ``offset``: behind the last batch below it.

    Below ``offset`` when a batch spans it, which goes as a whole, or when compaction has taken what
    was just below: it made way for records that go now. The log that this one follows may have it.
    Raises KafkaError CORRUPT_MESSAGE where a segment cannot be read. May block on a cold index.
    """
    segment = segments.left_below(offset)
    end = _end_before(segment, segment.position_of(offset), offset)
    return segment.base_offset if end is None else end


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
        end = _end_before(found.segment, found.batch.position, offset - 1)
        if end is not None:
            return end
    for segment in reversed(segments[: segments.ordinal_of(offset - 1) + 1]):
        is_below = found is None or segment is not found.segment
        last = segment.last_offset() if is_below and segment.size_bytes else None
        if last is not None:
            return last + 1
    return 0


def _end_before(segment: Segment, position: int, bound: int) -> int | None:
    """Return where the last batch before ``position`` ends, at most ``bound``; None: there is none.

    All before it lies below ``bound``.
    """
    if position == 0:
        return None
    entry = segment.indexes.offsets.lookup(bound - 1)
    for start in (0,) if entry is None else (entry.position, 0):
        last = None
        walk = Walk(segment.file, start, position, verify_crc=False)
        for batch in walk:
            last = batch.last_offset
        if last is not None and walk.stopped_by is None:
            return min(last + 1, bound)
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment.path} cannot be read up to {position}")
