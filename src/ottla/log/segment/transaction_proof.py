"""What the log can prove of a transaction index that nothing vouches for.

Asked at a start, of entries that no checksum covers: those that Kafka wrote. The abort marker that
ends a transaction stands where its entry says, and so does the transaction's first batch unless it
is gone from the log. What cannot be proven so (a first offset that is that of a later batch of the
same transaction) is believed, as Kafka does. Costs two look-ups an entry. Below log.producers.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice

from ottla.env.disk import Buffer
from ottla.errors import KafkaError
from ottla.log.segment.bulk_walk import headers_at
from ottla.log.segment.segment import Segment
from ottla.log.segment.transaction_index import AbortedTransaction, TransactionIndex
from ottla.records.batch import BatchHeader
from ottla.records.control import (
    ControlType,
    EndTransactionMarker,
    control_type_of,
    parse_end_transaction_marker,
)
from ottla.records.decode import decode_batch

_MARKER_BYTES_MAX = 64 * 1024
"""Far more than any marker has: what is opened of one that claims to be compressed."""


def is_confirmed(index: TransactionIndex, segments: Sequence[Segment]) -> bool:
    """Tell whether ``segments`` confirm the entries of ``index`` that its checksum does not cover.

    Blocks. Raises OSError. At the first that they deny, all from it on count as not there.
    """
    for entry in list(islice(index.entries(), index.vouched_count, None)):
        if not _is_confirmed(entry, segments):
            index.distrust_from(entry.last_offset)
            return False
    return True


def _is_confirmed(entry: AbortedTransaction, segments: Sequence[Segment]) -> bool:
    try:
        ended = _batch_at(entry.last_offset, segments)
        begun = _batch_at(entry.first_offset, segments)
    except KafkaError:
        return False
    if ended is None or not _aborts(entry, *ended):
        return False
    if begun is None or begun[0].base_offset > entry.first_offset:
        return True  # Deleted, or taken by compaction.
    first = begun[0]
    return (
        first.base_offset == entry.first_offset
        and first.producer_id == entry.producer_id
        and first.is_transactional
        and not first.is_control
    )


def _aborts(entry: AbortedTransaction, header: BatchHeader, segment: Segment, at: int) -> bool:
    if not header.is_control or header.base_offset != entry.last_offset:
        return False
    if header.producer_id != entry.producer_id:
        return False
    marker = read_marker(segment.file.read_at(at, header.size_bytes))
    # Compaction leaves markers without records: what they ended is gone.
    return marker is None or marker.control_type is ControlType.ABORT


def _batch_at(offset: int, segments: Sequence[Segment]) -> tuple[BatchHeader, Segment, int] | None:
    """Return the batch that holds ``offset``, or the next one in its segment, and its place."""
    if offset < segments[0].base_offset:
        return None
    segment = segments[bisect_right(segments, offset, key=_base_offset_of) - 1]
    batch = segment.find(offset)
    if batch is None:
        return None
    return next(iter(headers_at(segment.file, [batch.position]))), segment, batch.position


def _base_offset_of(segment: Segment) -> int:
    return segment.base_offset


def read_marker(data: Buffer) -> EndTransactionMarker | None:
    """Return the marker in the control batch ``data``; None for another control record, or none.

    Compaction leaves a control batch without records in place of one that nobody needs any more.
    """
    try:
        records = decode_batch(memoryview(data), _MARKER_BYTES_MAX).records
        if not records or control_type_of(records[0].key) is None:
            return None
        return parse_end_transaction_marker(records[0])
    except KafkaError:
        return None
