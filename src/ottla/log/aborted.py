"""Which transactions a reader of committed records leaves out of what it read.

Collects them from the transaction indexes of a log's segments. Between replication.fetch and
log.log, which is only read here. On the loop's thread, like the log. Source: Kafka's
``UnifiedLog.collectAbortedTransactions``.
"""

from operator import attrgetter

from ottla.log.log import Log
from ottla.log.results import ReadResult
from ottla.log.segment.transaction_index import AbortedTransaction

_first_offset_of = attrgetter("first_offset")
_NOT_ASKED = -1


def aborted_transactions(
    log: Log, start_offset: int, result: ReadResult, upper_offset: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions in what ``Log.read`` gave, by first offset.

    Some may lie behind the region. ``start_offset`` and ``upper_offset`` are those of the read, the
    latter at most the last stable offset. Reads the transaction indexes of the segment and, until
    one says that it is the last, those after it. Raises OSError.
    """
    found: list[AbortedTransaction] = []
    region = result.region
    if region is None:
        return found
    base_offset = result.segment_base_offset
    upper = _NOT_ASKED
    for segment in log.segments.reaching(base_offset):
        index = segment.transaction_index
        if index is None:
            continue
        if upper == _NOT_ASKED:
            position = region.position + region.length_bytes
            end = log.segments.offset_behind(base_offset, position, log.log_end_offset)
            upper = min(upper_offset, end)
        if index.collect(start_offset, upper, found):
            break
    found.sort(key=_first_offset_of)
    return found


def aborted_below(log: Log, upper_offset: int) -> list[AbortedTransaction]:
    """Return the aborted transactions with records below ``upper_offset``, for compaction.

    Not above the last stable offset. Reads transaction indexes. Raises OSError.
    """
    found: list[AbortedTransaction] = []
    for segment in log.segments:
        index = segment.transaction_index
        if index is not None and index.collect(0, upper_offset, found):
            break
    return found
