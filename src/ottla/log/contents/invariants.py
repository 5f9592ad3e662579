"""What must always hold of a log and its segments: asserted by tests after every step.

Reads everything, trusts nothing the objects remember. A failed assertion is a fault of ours, never
of the disk or a client. Stands beside log.segment and log.log, which it only reads.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Protocol

from ottla.log.contents.leader_epochs import LeaderEpochs
from ottla.log.contents.segments import Segments
from ottla.log.segment.scan import Batch, Walk
from ottla.log.segment.segment import Segment
from ottla.records.batch import NO_TIMESTAMP


class Bounded(Protocol):
    """What a log says of itself."""

    directory: str
    log_start_offset: int
    log_end_offset: int
    flushed_offset: int
    leader_epochs: LeaderEpochs
    segments: Segments


def check_log(
    log: Bounded,
    *,
    are_indexes_sure: bool = True,
    last_of: Callable[[Segment], int | None] | None = None,
) -> None:
    """Assert that offsets, epochs and segments of ``log`` fit together.

    Segments below the log start may hold anything: nobody reads them, and no start looks into them.
    ``are_indexes_sure``: no power cut can have left a part of an index file (see check_segment).
    ``last_of``: checks a segment instead, and returns its last offset; None: it has none.
    """
    bases = [segment.base_offset for segment in log.segments]
    assert log.segments.active is log.segments[-1], log.directory
    assert bases[0] == log.segments.base_offset, log.directory
    assert bases == sorted(set(bases)), (log.directory, bases)
    assert bases[0] <= log.log_start_offset <= log.log_end_offset, log.directory
    assert log.flushed_offset <= log.log_end_offset, log.directory
    entries = log.leader_epochs.entries
    assert all(a.epoch < b.epoch for a, b in pairwise(entries)), entries
    assert all(a.start_offset <= b.start_offset for a, b in pairwise(entries)), entries
    assert not entries or entries[-1].start_offset <= log.log_end_offset, entries
    last = None
    for segment, end in log.segments.with_ends(log.log_end_offset):
        if segment is not log.segments.active and end <= log.log_start_offset:
            continue
        if last_of is not None:
            last = last_of(segment)
        else:
            batches = check_segment(segment, are_indexes_sure=are_indexes_sure)
            last = batches[-1].last_offset if batches else None
        assert last is None or last < end, (segment.path, last, end)
    assert log.log_end_offset == (bases[-1] if last is None else last + 1), log.directory


def check_segment(segment: Segment, *, are_indexes_sure: bool = True) -> list[Batch]:
    """Assert that indexes and file of ``segment`` agree; return its batches.

    Not ``are_indexes_sure``: entries may be wrong, for they are not synced, and verified only when
    they are used (reliability rule 10). Asserted is that lookups find every batch nonetheless.
    """
    size_bytes = segment.size_bytes
    assert segment.file.size() >= size_bytes, (segment.path, segment.file.size(), size_bytes)
    batches = list(Walk(segment.file, 0, size_bytes, verify_crc=True))
    assert sum(batch.size_bytes for batch in batches) == size_bytes, segment.path
    assert not batches or batches[0].base_offset >= segment.base_offset, segment.path
    for before, after in pairwise(batches):
        assert before.last_offset < after.base_offset, (segment.path, before, after)
    if are_indexes_sure:
        _check_entries(segment, batches)
    else:
        _check_lookups(segment, batches)
    largest = max((batch.max_timestamp for batch in batches), default=NO_TIMESTAMP)
    assert segment.largest_timestamp().timestamp == max(largest, NO_TIMESTAMP), segment.path
    last = batches[-1].last_offset if batches else None
    assert last == segment.last_offset(), (segment.path, last)
    return batches


def _check_entries(segment: Segment, batches: list[Batch]) -> None:
    """Assert that each index entry says what the file says."""
    by_position = {batch.position: batch for batch in batches}
    for ordinal in range(segment.indexes.offsets.count):
        entry = segment.indexes.offsets.entry(ordinal)
        assert by_position[entry.position].last_offset == entry.offset, (segment.path, entry)
    by_last_offset = {batch.last_offset: batch for batch in batches}
    for ordinal in range(segment.indexes.times.count):
        when = segment.indexes.times.entry(ordinal)
        assert by_last_offset[when.offset].max_timestamp == when.timestamp, (segment.path, when)


def _check_lookups(segment: Segment, batches: list[Batch]) -> None:
    """Assert that every batch is found by its last offset, and by its time if it raises it."""
    offsets, times = segment.indexes.offsets, segment.indexes.times
    entries = [offsets.entry(ordinal).offset for ordinal in range(offsets.count)]
    chosen = _edges(batches, [batch.last_offset for batch in batches], entries)
    chosen += [batch for batch in batches if segment.remembers(batch.last_offset)]
    for batch in chosen:
        found = segment.find(batch.last_offset)
        assert found is not None, (segment.path, batch)
        assert found.position == batch.position, (segment.path, batch)
    rising: list[Batch] = []
    for batch in batches:
        if batch.max_timestamp > (rising[-1].max_timestamp if rising else NO_TIMESTAMP):
            rising.append(batch)
    entries = [times.entry(ordinal).timestamp for ordinal in range(times.count)]
    for batch in _edges(rising, [batch.max_timestamp for batch in rising], entries):
        found = segment.first_batch_reaching(batch.max_timestamp, segment.base_offset)
        assert found is not None, (segment.path, batch)
        assert found.position == batch.position, (segment.path, batch)
    if segment.indexes.offsets is not offsets:  # One of the lookups has made them anew.
        _check_lookups(segment, batches)


def _edges(batches: Sequence[Batch], keys: Sequence[int], entries: Iterable[int]) -> list[Batch]:
    """Return the first and the last batch of those for which a lookup begins at the same entry.

    ``keys``: of the batches, rising; ``entries``: those of the index. A lookup that finds the first
    and one that finds the last walk over all in between.
    """
    chosen = {0, len(batches) - 1}
    for entry in entries:
        at = bisect_left(keys, entry)
        chosen |= {at - 1, at}
    return [batches[at] for at in sorted(chosen) if 0 <= at < len(batches)]
