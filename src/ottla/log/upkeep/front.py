"""The front of a log: where it should start by its settings, and taking away what lies before.

In the order of reliability rule 14: ``retained_from`` decides, ``raise_start_offset`` hides, a
checkpoint of it is written (the caller's), ``drop_segments_below`` renames, the directory is
synced, the files are removed later (the caller's, too). Between replication and log.log; the
decision itself is log.retention's. On the loop's thread, like the log.
"""

from collections.abc import Iterator
from contextlib import suppress

from ottla.env.disk import Disk
from ottla.errors import ErrorCode, InvariantBroken, KafkaError
from ottla.log.files.layout import (
    DELETED_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TRANSACTION_SUM_SUFFIX,
)
from ottla.log.log import Log
from ottla.log.segment.segment import Segment
from ottla.log.upkeep.retention import Candidate, count_to_delete

_INDEXES = (
    *(TRANSACTION_SUM_SUFFIX, TRANSACTION_INDEX_SUFFIX),
    *(TIME_INDEX_SUFFIX, OFFSET_INDEX_SUFFIX),
)


def retained_from(log: Log, upper_offset: int, now_ms: int) -> int:
    """Return where ``log`` should start by its settings; nothing is changed but for a roll.

    What is not below ``upper_offset`` (exclusive: the high watermark) or not durable stays. If all
    segments are to go, a new one is begun. Blocks where the largest timestamp of an oldest segment
    is not in memory. Raises KafkaError.
    """
    log.ensure_open()
    if log.is_swapping:
        return log.log_start_offset
    count = count_to_delete(
        _candidates(log),
        log.config,
        now_ms=now_ms,
        log_size_bytes=log.size_bytes,
        log_start_offset=log.log_start_offset,
        upper_offset=min(upper_offset, log.flushed_offset),
    )
    if count == log.segment_count:
        if log.is_flushing:
            return log.log_start_offset  # The next retention does it.
        log.roll()
        log.flush()  # The snapshot of producers is all that is left of them: it has to be durable.
    first_kept = log.segments[count].base_offset if count else 0
    return max(first_kept, log.log_start_offset)


def _candidates(log: Log) -> Iterator[Candidate]:
    active = log.segments.active
    for segment, end_offset in log.segments.with_ends(log.log_end_offset):
        yield Candidate(end_offset, segment.size_bytes, segment is active, segment.newest_ms)


def raise_start_offset(log: Log, offset: int) -> bool:
    """Let no reader see what lies below ``offset``; False when it is so already.

    ``offset`` is not above the log end. It holds through a crash once a checkpoint was written
    (``LogManager.checkpoint_job``); only then may ``drop_segments_below`` follow.
    """
    if offset <= log.log_start_offset:
        return False
    if offset > log.log_end_offset:
        raise InvariantBroken(f"{log.topic_partition}: start {offset} is above the log end")
    log.log_start_offset = offset
    log.leader_epochs.truncate_from_start(offset)
    return True


def has_segments_below(log: Log, offset: int) -> bool:
    """Tell whether ``drop_segments_below`` has something to do."""
    if log.is_swapping:
        return False  # The next retention does it.
    # What is not settled may be needed yet: the snapshot that tells of it may not be durable.
    return log.segments.has_full_below(min(offset, log.settled_offset))


def drop_segments_below(log: Log, disk: Disk, offset: int, count_max: int) -> list[str]:
    """Take the oldest segments, all of them below ``offset``, out of ``log``.

    ``offset`` is a log start offset that is durable: the log's own may be further already. At most
    ``count_max`` go. Their files are renamed, not opened; a reader that has one open goes on
    reading it. Returns the new paths: they may be removed once the log's directory has been synced.
    Raises KafkaError KAFKA_STORAGE_ERROR when the disk refused the first one already.
    """
    log.ensure_open()
    paths: list[str] = []
    for _ in range(count_max):
        if not has_segments_below(log, offset):
            break
        try:
            paths.extend(_mark_deleted(disk, log.segments[0]))
        except OSError as error:
            if paths:
                break
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        log.segments.drop_oldest()
    return paths


def _mark_deleted(disk: Disk, segment: Segment) -> Iterator[str]:
    """Rename the files of ``segment``; the log last, so that it never leaves indexes behind."""
    for suffix in _INDEXES:
        path = segment.path_of(suffix)
        with suppress(FileNotFoundError):  # Never saved, or there is no such index.
            disk.rename(path, path + DELETED_SUFFIX)
            yield path + DELETED_SUFFIX
    disk.rename(segment.path, segment.path + DELETED_SUFFIX)
    yield segment.path + DELETED_SUFFIX
