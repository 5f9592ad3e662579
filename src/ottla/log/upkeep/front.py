"""The front of a log: where it should start by its settings, and taking away what lies before.

In the order of reliability rule 14: ``expired_to`` decides, a log of which all is expired is rolled
and flushed (the caller's), ``raise_start_offset`` hides, a checkpoint of it is written (the
caller's), what the segments say of producers is made durable (the caller's, see
``is_told_durably``), ``drop_segments_below`` renames, the directory is synced, the files are
removed later (the caller's, too). Between replication and log.log; the decision itself is
log.retention's. On the loop's thread, like the log.
"""

from collections.abc import Generator, Iterator
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
from ottla.log.upkeep.retention import Candidate, Decision

_INDEXES = (
    *(TRANSACTION_SUM_SUFFIX, TRANSACTION_INDEX_SUFFIX),
    *(TIME_INDEX_SUFFIX, OFFSET_INDEX_SUFFIX),
)


def expired_to(log: Log, upper_offset: int, now_ms: int) -> Generator[None, None, int]:
    """Find the end, exclusive, of the segments that are to go by the settings of ``log``; 0: none.

    Yields before each segment of which the largest timestamp is not in memory: looking at it costs
    some calls of the disk, so that the loop is to have a turn first. What is not durable stays; so
    does what is not below ``upper_offset`` (exclusive: the high watermark), nor does that count: a
    log that loses it again would have less than it is to keep. The end is above the base
    offset of the active segment when all goes: then it has to be rolled first, and that flushed,
    before the log may start there; the snapshot of producers is all that is left of them. Nothing
    is to go when the log went, its settings changed or its segments were replaced meanwhile: the
    next retention finds it. Raises KafkaError, OSError.
    """
    config, segments = log.config, log.segments
    decision = Decision(
        config,
        now_ms=now_ms,
        log_size_bytes=log.size_bytes - _size_from(log, upper_offset),
        log_start_offset=log.log_start_offset,
        upper_offset=min(upper_offset, log.flushed_offset),
    )
    is_by_time = config.is_deleted and config.retention_ms >= 0
    ordinal, end_offset = 0, segments.base_offset
    while ordinal < len(segments):
        segment = segments[ordinal]
        if is_by_time and segment.size_bytes and not segment.knows_newest:
            yield
        if (
            not log.is_in_service
            or log.is_swapping
            or log.config is not config
            or ordinal >= len(segments)
            or segments[ordinal].base_offset != end_offset
        ):
            return 0
        segment = segments[ordinal]
        ordinal += 1
        next_offset = segments[ordinal].base_offset if ordinal < len(segments) else None
        is_active = next_offset is None
        next_offset = log.log_end_offset if next_offset is None else next_offset
        goes = decision.goes(
            Candidate(next_offset, segment.size_bytes, is_active, segment.newest_ms)
        )
        if not goes:
            break
        end_offset = next_offset
    return end_offset if end_offset > segments.base_offset else 0


def _size_from(log: Log, offset: int) -> int:
    """Return how many bytes of the log are of batches that reach ``offset``, or lie above it."""
    if offset >= log.log_end_offset:
        return 0
    size_bytes = 0
    for ordinal in range(len(log.segments) - 1, -1, -1):
        segment = log.segments[ordinal]
        if segment.base_offset < offset:
            return size_bytes + segment.size_bytes - segment.position_of(offset)
        size_bytes += segment.size_bytes
    return size_bytes


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
    """Tell whether segments lie below ``offset`` that may go, once ``is_told_durably`` holds."""
    if log.is_swapping:
        return False  # The next retention does it.
    # What is not settled may be needed yet: the snapshot that tells of it may not be durable.
    return log.segments.has_full_below(min(offset, log.settled_offset))


def end_below(log: Log, offset: int) -> int:
    """Return where the segments end (exclusive) that may go below ``offset``."""
    return log.segments.holding(min(offset, log.settled_offset)).base_offset


def is_told_durably(log: Log, offset: int) -> bool:
    """Tell whether a start knows what batches below ``offset`` say of producers, without them.

    After a power cut, and when the log is cut back to what is committed, too. Else a producer's
    next batch would be refused, or taken twice.
    """
    known = log.producers.knows_durably(log.sure_offset)
    return known is None or known >= offset


def drop_segments_below(log: Log, disk: Disk, offset: int, count_max: int) -> list[str]:
    """Take the oldest segments, all of them below ``offset``, out of ``log``.

    ``offset`` is a log start offset that is durable: the log's own may be further already. At most
    ``count_max`` go, and none that may be all that tells of a producer. Their files are renamed,
    not opened; a reader that has one open goes on reading it. Returns the new paths: they may be
    removed once the log's directory has been synced. Raises KafkaError KAFKA_STORAGE_ERROR when the
    disk refused the first one already.
    """
    log.ensure_open()
    paths: list[str] = []
    for _ in range(count_max):
        if not has_segments_below(log, offset):
            break
        if not is_told_durably(log, log.segments[1].base_offset):
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
