"""Batches as another node wrote them: checked by a kernel, and appended as they are.

How a follower's log grows. The batches carry their offsets and epochs; offsets may be missing
between them, as compaction leaves them, and what fits one segment there may not fit one here. All
are checked before any is written: magic, length, numbers, CRC-32C, offsets that rise, epochs that
do not fall. Then each stretch of one leader epoch and one segment is one write, with its index
entries made in one loop. Transactions are followed batch by batch, as the leader followed them.

A new segment is named by the log's end, not by its first batch, which may begin later: so each
segment goes on exactly where the one before ends, and recovery knows a lost end from a gap. Only a
gap that is too wide for that makes a jump (``Log.roll``). Stands beside log.log, which it changes;
one node alone never loads it. Source: Kafka's appendAsFollower; reliability rules 1 and 9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.ids import INT64_MAX
from ottla.log.segment.bulk_walk import BulkWalk
from ottla.log.segment.segment import RELATIVE_OFFSET_MAX
from ottla.records.batch import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE_BYTES,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    BatchHeader,
    batch_crc,
    read_header,
)

if TYPE_CHECKING:
    from ottla.log.log import Log

_OFFSET_MAX = INT64_MAX - 2 * RELATIVE_OFFSET_MAX


class Replicated(NamedTuple):
    """Whole batches that passed every check that needs no log."""

    records: memoryview
    """At least one batch."""
    base_offset: int
    next_offset: int
    """Behind the last batch."""
    leader_epoch: int
    """Of the first batch that has one; -1: none has."""


def check_replicated(records: memoryview) -> Replicated:
    """Check what another node wrote; pure, on any thread. A batch cut at the end is left out.

    Answers to a Fetch are cut so. Raises KafkaError: CORRUPT_MESSAGE for what is no batch of
    format 2 or has a wrong checksum, or without any whole batch; INVALID_RECORD for an offset below
    the one before it and a leader epoch that falls.
    """
    end = len(records)
    position = next_offset = base_offset = 0
    first_epoch = epoch = NO_LEADER_EPOCH
    while position < end:
        header = _whole_header(records, position)
        if header is None:
            break
        if position and header.base_offset < next_offset:
            why = f"batch at offset {header.base_offset} after offset {next_offset - 1}"
            raise KafkaError(ErrorCode.INVALID_RECORD, why)
        if header.partition_leader_epoch != NO_LEADER_EPOCH:
            if header.partition_leader_epoch < epoch:
                why = f"leader epoch {header.partition_leader_epoch} after {epoch}"
                raise KafkaError(ErrorCode.INVALID_RECORD, why)
            epoch = header.partition_leader_epoch
            first_epoch = epoch if first_epoch == NO_LEADER_EPOCH else first_epoch
        if not position:
            base_offset = header.base_offset
        position, next_offset = _checked(records, position, header)
    if not position:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{end} bytes are no whole batch of format 2")
    return Replicated(records[:position], base_offset, next_offset, first_epoch)


def _checked(records: memoryview, position: int, header: BatchHeader) -> tuple[int, int]:
    """Check the sums from ``position`` on, of one leader epoch; return where to go on.

    That is a position, and the offset behind the batches before it. Raises KafkaError.
    """
    if header.size_bytes == len(records) - position:  # As often as not it is the only batch.
        if batch_crc(records[position:]) == header.crc:
            return len(records), header.last_offset + 1
    else:
        bulk = BulkWalk.over(
            records, 0, end=len(records), base_offset=header.base_offset, verify_crc=True
        )
        stretch = bulk.advance(
            position,
            next_offset=header.base_offset,
            leader_epoch=header.partition_leader_epoch,
        )
        if stretch is not None:
            return stretch.end_position, stretch.next_offset
    why = f"the checksum of the batch at offset {header.base_offset} is wrong"
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, why)


def _whole_header(records: memoryview, position: int) -> BatchHeader | None:
    """Return the header at ``position``; None when the bytes end inside of that batch.

    Raises KafkaError CORRUPT_MESSAGE.
    """
    left = len(records) - position
    if left < HEADER_SIZE_BYTES:
        return None
    header = read_header(records, position)
    why = None
    if header.magic != MAGIC_V2 or header.batch_length < BATCH_LENGTH_MIN:
        why = f"magic {header.magic}, length {header.batch_length}"
    elif not 0 <= header.base_offset <= _OFFSET_MAX:
        why = f"base offset {header.base_offset}"
    elif header.last_offset_delta < 0 or (
        not 0 <= header.record_count <= header.last_offset_delta + 1
    ):
        why = f"last offset delta {header.last_offset_delta}, {header.record_count} records"
    if why is not None:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch at byte {position}: {why}")
    return header if header.size_bytes <= left else None


def append_replicated(log: Log, replicated: Replicated) -> None:
    """Write what was checked; on the loop, to the page cache: nothing is synced.

    Raises KafkaError: INVALID_RECORD for offsets below the log's end and for a leader epoch below
    its last one (nothing is appended); KAFKA_STORAGE_ERROR when the log takes no batches, or the
    disk refused (those before stay).
    """
    records, base_offset, _, leader_epoch = replicated
    log.ensure_writable()
    if base_offset < log.log_end_offset:
        why = f"batch at offset {base_offset}, the log goes on at {log.log_end_offset}"
        raise KafkaError(ErrorCode.INVALID_RECORD, why)
    if NO_LEADER_EPOCH < leader_epoch < log.latest_epoch:
        why = f"batch of leader epoch {leader_epoch}, the log's last one is {log.latest_epoch}"
        raise KafkaError(ErrorCode.INVALID_RECORD, why)
    position = 0
    while position < len(records):
        position += _append_stretch(log, records[position:])


def _append_stretch(log: Log, records: memoryview) -> int:
    """Write what ``records`` begins with of one epoch to one segment; return its length."""
    header = read_header(records)
    last_offset, size_bytes = header.last_offset, header.size_bytes
    is_near = last_offset - log.log_end_offset <= RELATIVE_OFFSET_MAX
    log.roll_if_due(
        size_bytes,
        last_offset,
        header.max_timestamp,
        base_offset=log.log_end_offset if is_near else header.base_offset,
    )
    active = log.segments.active
    start = active.size_bytes
    # A batch that is larger than a segment is one of its own.
    room_bytes = max(log.config.segment_bytes - start, size_bytes)
    bulk = BulkWalk.over(
        records,
        start,
        end=start + min(room_bytes, len(records)),
        base_offset=active.base_offset,
        verify_crc=False,
        index_interval_bytes=active.index_interval_bytes,
    )
    epoch = header.partition_leader_epoch
    try:
        stretch = active.note_ahead(
            bulk, next_offset=log.log_end_offset, leader_epoch=epoch, data=records
        )
    except OSError as error:
        raise log.write_refused(error) from error
    assert stretch is not None, "it was checked"
    log.leader_epochs.assign(epoch, header.base_offset)
    positions = [position - start for position in bulk.producer_positions()]
    if positions:
        log.producers.note_replicated(records, positions, active)
    log.log_end_offset = stretch.next_offset
    return stretch.end_position - start
