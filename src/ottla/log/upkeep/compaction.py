"""What the log cleaner decides: which part of a log is dirty, when it is due, what goes together.

Pure: sees what is told of segments, opens nothing. A log is seen as three parts:

    clean       below the first dirty offset: at most one record of each key, but for those that
                a newer one in the dirty part makes obsolete
    cleanable   from there to the first uncleanable offset: whole segments
    uncleanable the active segment; what is not committed, not stable or not flushed yet; what is
                younger than ``min.compaction.lag.ms``

Used by housekeeping.log_cleaner and log.cleaner. Source: Kafka's LogCleanerManager, LogToClean and
``Cleaner.groupSegmentsBySize``.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.ids import INT32_MAX, INT64_MAX
from ottla.log.config import LogConfig


class SegmentFacts(NamedTuple):
    """What the decisions need to know of one segment."""

    base_offset: int
    size_bytes: int
    newest_ms: Callable[[], int]
    """Its largest timestamp; asked for with a minimal lag only: may be slow."""
    first_ms: Callable[[], int]
    """The largest timestamp of its first batch; asked for with a maximal lag only."""


class LogBounds(NamedTuple):
    """The offsets of a log that matter here."""

    start_offset: int
    end_offset: int
    stable_offset: int
    """Exclusive end of what is committed, decided and flushed."""


class Cleanable(NamedTuple):
    """The parts of one log, and how dirty it is."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    """Where a segment begins. Invariant: not below the first dirty offset, but for empty parts."""
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    """``max.compaction.lag.ms`` has passed for a record in the dirty part."""

    @property
    def ratio(self) -> float:
        """The cleanable share of what is not uncleanable; 0 for an empty log."""
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, min_ratio: float) -> bool:
        """Tell whether the log is to be cleaned, with this ``min.cleanable.dirty.ratio``."""
        return self.ratio > min_ratio or (self.is_overdue and self.cleanable_bytes > 0)


def cleanable_part(
    segments: Sequence[SegmentFacts],
    bounds: LogBounds,
    config: LogConfig,
    *,
    cleaned_to: int | None,
    now_ms: int,
) -> Cleanable:
    """Return the parts of a log of ``segments``, oldest first, the last one active.

    ``cleaned_to``: the checkpoint, see ``first_dirty_offset``.
    """
    first_dirty = first_dirty_offset(bounds.start_offset, bounds.end_offset, cleaned_to)
    dirty_at = _floor(segments, first_dirty)
    upper = min(bounds.stable_offset, segments[-1].base_offset)
    if config.min_compaction_lag_ms > 0:
        for segment in segments[dirty_at:-1]:
            if segment.newest_ms() > now_ms - config.min_compaction_lag_ms:
                upper = min(upper, segment.base_offset)
                break
    uncleanable_at = _floor(segments, max(upper, first_dirty))
    return Cleanable(
        first_dirty,
        segments[uncleanable_at].base_offset,
        sum(one.size_bytes for one in segments if one.base_offset < first_dirty),
        sum(one.size_bytes for one in segments[dirty_at:uncleanable_at]),
        _is_overdue(segments[dirty_at:-1], config, now_ms),
    )


def first_dirty_offset(start_offset: int, end_offset: int, cleaned_to: int | None) -> int:
    """Return where the part begins that was never cleaned, of a log from start to end.

    ``cleaned_to``: the checkpoint, where the last cleaning ended; None: there was none. One that
    cannot be right (below the start, above the end) counts as none.
    """
    if cleaned_to is None or not start_offset <= cleaned_to <= end_offset:
        return start_offset
    return cleaned_to


def _is_overdue(dirty: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms == INT64_MAX:
        return False
    limit_ms = now_ms - config.max_compaction_lag_ms
    return any(0 < segment.first_ms() < limit_ms for segment in dirty)


def _floor(segments: Sequence[SegmentFacts], offset: int) -> int:
    """Return the ordinal of the segment that holds ``offset``, or of the first one."""
    ordinal = 0
    while ordinal + 1 < len(segments) and segments[ordinal + 1].base_offset <= offset:
        ordinal += 1
    return ordinal


class Source(NamedTuple):
    """One segment that is to be cleaned."""

    base_offset: int
    end_offset: int
    """Where the next one begins."""
    size_bytes: int
    offset_index_bytes: int = 0
    time_index_bytes: int = 0


def group_sources(sources: Sequence[Source], config: LogConfig) -> list[list[Source]]:
    """Return ``sources`` in groups that become one segment each.

    As many as together are not larger than a segment and its indexes may be, and whose offsets a
    segment can hold.
    """
    groups: list[list[Source]] = []
    log_bytes = offset_index_bytes = time_index_bytes = 0
    for source in sources:
        log_bytes += source.size_bytes
        offset_index_bytes += source.offset_index_bytes
        time_index_bytes += source.time_index_bytes
        if (
            groups
            and log_bytes <= config.segment_bytes
            and max(offset_index_bytes, time_index_bytes) <= config.segment_index_bytes
            and source.end_offset - 1 - groups[-1][0].base_offset <= INT32_MAX
        ):
            groups[-1].append(source)
            continue
        groups.append([source])
        log_bytes = source.size_bytes
        offset_index_bytes = source.offset_index_bytes
        time_index_bytes = source.time_index_bytes
    return groups
