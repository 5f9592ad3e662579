"""What a log answers: where an append went, what a read or a look-up by time found.

Plain values, made by log.log, read by the rooms above.
"""

from typing import NamedTuple

from ottla.records.region import Region


class AppendResult(NamedTuple):
    """What a producer is told. Offsets are inclusive."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic's timestamps are LogAppendTime. Of a duplicate: the largest timestamp of
    the original, as Kafka answers."""
    log_start_offset: int


class ReadResult(NamedTuple):
    """Batches from the one that holds the asked offset on; where that stands in the log."""

    region: Region | None
    """None: nothing to see (yet). May end inside a batch: consumers drop the rest."""
    segment_base_offset: int
    position: int
    first_batch_incomplete: bool
    """True when even the first batch did not fit (and ``min_one_message`` was not asked)."""


class TimestampedOffset(NamedTuple):
    """A record's own timestamp and offset, and the epoch of the leader that wrote it (-1: none)."""

    timestamp: int
    offset: int
    leader_epoch: int
