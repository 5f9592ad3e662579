"""Which transactions a reader of committed records leaves out of what it read.

Collects them from the transaction indexes of a log's segments. Between replication.fetch and
log.log, which is only read here. On the loop's thread, like the log. Source: Kafka's
``UnifiedLog.collectAbortedTransactions``.
"""

from collections.abc import Callable
from operator import attrgetter

from ottla.log.log import Log
from ottla.log.results import ReadResult
from ottla.log.segment.transaction_index import AbortedTransaction, TransactionIndex

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
        is_read = segment.base_offset == base_offset
        if _collect(index, start_offset, upper, found, stays_open=is_read):
            break
    found.sort(key=_first_offset_of)
    return found


def aborted_below(log: Log, upper_offset: int) -> Callable[[], list[AbortedTransaction]]:
    """Return a job that finds the aborted transactions with records below ``upper_offset``.

    For compaction, on the loop; not above the last stable offset. The job reads the transaction
    indexes as they are now, on any thread. It raises OSError: FileNotFoundError when a segment has
    gone since.
    """
    disk = log.segments.active.disk
    kept = [
        segment.transaction_index.keep()
        for segment in log.segments
        if segment.transaction_index is not None
    ]

    def read() -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        for index in kept:
            for entry in index.read(disk):
                if entry.first_offset < upper_offset:
                    found.append(entry)
                if entry.last_stable_offset >= upper_offset:
                    return found
        return found

    return read


def _collect(
    index: TransactionIndex,
    start_offset: int,
    upper_offset: int,
    found: list[AbortedTransaction],
    *,
    stays_open: bool = False,
) -> bool:
    """Do as ``TransactionIndex.collect``; leave no file open that was not, but for a segment read.

    There may be thousands of segments behind the one that is read.
    """
    was_open = stays_open or index.is_open
    try:
        return index.collect(start_offset, upper_offset, found)
    finally:
        if not was_open:
            index.let_go()
