"""Which offset stands at a time, or at an end of a partition, as a consumer may see it.

Pure but for reading the log, which may block on the disk; long batches are searched elsewhere.
Source: ListOffsets; KIP-79, KIP-98 (isolation), KIP-320 (epochs), KIP-734 (the largest timestamp).
"""

import logging
from collections.abc import Callable

from ottla.errors import ErrorCode, KafkaError
from ottla.log.log import Log
from ottla.log.segment.time_lookup import BatchSearch, FoundRecord
from ottla.pending import Pending
from ottla.records.batch import NO_TIMESTAMP
from ottla.replication.fetch import Isolation, exposed_end
from ottla.replication.partition import Partition
from ottla.replication.results import TimestampedOffset
from ottla.sliced import Steps

logger = logging.getLogger(__name__)

SearchElsewhere = Callable[[BatchSearch], Pending[FoundRecord | None]]
"""Has an executor search a batch that takes long."""


def find_by_time(
    partition: Partition,
    timestamp: int | None,
    isolation: Isolation,
    search_elsewhere: SearchElsewhere,
) -> Steps[TimestampedOffset | None]:
    """Return the first record of ``timestamp`` or later; None: that of the largest timestamp.

    None when there is none that the isolation level may see. Raises KafkaError when the log goes,
    or KAFKA_STORAGE_ERROR when its disk refuses to be read.
    """
    while partition.is_held:
        yield partition.released()
    log = partition.log
    search = log.search_timestamp(timestamp)
    found: FoundRecord | None = None
    try:
        batch = next(search)
        while True:
            if batch is None:
                yield None
                if _is_moving(partition, log):
                    again = find_by_time(partition, timestamp, isolation, search_elsewhere)
                    return (yield from again)
                # The log may have other segments now; what was read of this one is known.
                search = log.search_timestamp(timestamp)
                batch = next(search)
                continue
            is_done, found = batch.run_if_short()
            if not is_done:
                found = yield search_elsewhere(batch)
            yield None
            if _is_moving(partition, log):
                return (yield from find_by_time(partition, timestamp, isolation, search_elsewhere))
            log.ensure_open()  # It may have gone meanwhile, with its files.
            batch = search.send(found)
    except StopIteration as end:
        found = end.value
    except OSError as error:
        logger.error("%s cannot be read: %s", partition.topic_partition, error)  # noqa: TRY400 - no traceback
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    if found is None or found.offset >= exposed_end(partition, isolation):
        return None
    return log.place_of(found)


def _is_moving(partition: Partition, log: Log) -> bool:
    """Tell whether ``log`` gets, or has got, another directory: its files have other names."""
    return partition.is_held or partition.log is not log


def start_of(partition: Partition) -> TimestampedOffset:
    """Return the first offset, with the epoch in which its record was written."""
    start = partition.log_start_offset
    epoch = partition.log.leader_epochs.epoch_for_offset(start)
    return TimestampedOffset(NO_TIMESTAMP, start, partition.leader_epoch if epoch < 0 else epoch)


def end_of(partition: Partition, isolation: Isolation) -> TimestampedOffset:
    """Return the end of what the isolation level may see."""
    return TimestampedOffset(
        NO_TIMESTAMP, exposed_end(partition, isolation), partition.leader_epoch
    )


def is_end_known(partition: Partition) -> bool:
    """Tell whether the high watermark is not below what a former leader may have told of.

    False for a moment after an election, until the followers have said what they have (KIP-207).
    """
    view = partition.view
    return view is None or partition.high_watermark >= view.epoch_start_offset
