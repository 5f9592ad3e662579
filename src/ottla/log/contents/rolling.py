"""Decides when the active segment rolls: it is full, its indexes are full, or it is old enough.

And whether its end is to be durable before. Used by log.log before each append and roll. Source:
Kafka's LogSegment.shouldRoll.
"""

import zlib

from ottla.env.clock import Clock
from ottla.log.config import LogConfig
from ottla.log.segment.segment import RELATIVE_OFFSET_MAX, Segment
from ottla.records.batch import NO_TIMESTAMP


def must_roll(
    active: Segment,
    config: LogConfig,
    clock: Clock,
    size_bytes: int,
    *,
    last_offset: int,
    max_timestamp: int,
) -> bool:
    """Tell whether batches of ``size_bytes`` that end with ``last_offset`` need a new segment.

    Age is told by timestamps, the first batch's and ``max_timestamp``; by the clock without them.
    """
    if active.size_bytes == 0:
        return last_offset - active.base_offset > RELATIVE_OFFSET_MAX
    first_timestamp = active.first_timestamp
    if first_timestamp is None:
        first_timestamp = time_of_first_batch(active)
    if first_timestamp >= 0:
        waited_ms = max_timestamp - first_timestamp
    else:
        waited_ms = clock.wall_ms() - active.created_ms
    segment_ms = config.segment_ms
    if config.segment_jitter_ms:
        segment_ms -= _jitter_ms(active, config)
    return (
        active.size_bytes + size_bytes > config.segment_bytes
        or waited_ms > segment_ms
        or active.index_bytes > config.segment_index_bytes
        or last_offset - active.base_offset > RELATIVE_OFFSET_MAX
    )


def is_end_doubtful(active: Segment, config: LogConfig, is_unflushed: bool) -> bool:
    """Tell whether a power cut could leave another end to a full segment than what comes behind it.

    A refused write was cut off it, and could come back; or it is compacted, and a lost end would
    look like a gap. ``is_unflushed``: not all of the log is durable.
    """
    return active.is_cut or (is_unflushed and config.is_compacted and config.flush_messages == 1)


def time_of_first_batch(segment: Segment) -> int:
    """Return the largest timestamp of the first batch; -1 when it (or the batch) has none."""
    if segment.first_timestamp is None:
        batch = segment.next_batch(0)
        segment.first_timestamp = NO_TIMESTAMP if batch is None else batch.max_timestamp
    return segment.first_timestamp


def _jitter_ms(active: Segment, config: LogConfig) -> int:
    """Return how much earlier than ``segment.ms`` the segment rolls.

    Drawn from its name: logs made together do not roll together, and a restart changes nothing.
    """
    limit_ms = min(config.segment_jitter_ms, config.segment_ms)
    return zlib.crc32(active.path.encode()) * limit_ms >> 32
