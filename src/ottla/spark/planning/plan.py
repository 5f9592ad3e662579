"""What a batch query reads: the options become ranges of offsets, by asking the cluster.

The planner's side: runs once per query in a Python process of the driver, and imports nothing but
the standard library and this project. Knows no pyarrow and no records.
"""

import logging
from collections.abc import Mapping

from ottla.client.blocking.cluster import BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NULL_TOPIC_ID, TopicPartition
from ottla.spark.connection import OptionError
from ottla.spark.lookup import cluster_state, partitions_of, resolve, with_epoch_ends
from ottla.spark.loss import ClusterState, TopicRecreated, find_losses
from ottla.spark.offsets import Bound, OffsetRange
from ottla.spark.options import SourceOptions
from ottla.spark.planning.split import split
from ottla.spark.positions import Positions

LOG = logging.getLogger("ottla.spark")


def plan(options: SourceOptions) -> list[OffsetRange]:
    """Return the ranges to read, none of them empty, one for each task. Blocks.

    Raises as ``plan_ranges`` does.
    """
    return split(
        plan_ranges(options),
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )


def plan_ranges(options: SourceOptions) -> list[OffsetRange]:
    """Return what is to be read of every partition, which may be nothing. Blocks.

    Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION), ConnectionFailed, OptionError for offsets that
    do not fit the partitions, DataLoss for offsets that the log does not hold.
    """
    with BlockingClient(options.settings(retry_timeout_ms=options.first_retry_ms)) as client:
        return ranges_with(client, options)


def ranges_with(client: BlockingClient, options: SourceOptions) -> list[OffsetRange]:
    """Return what ``plan_ranges`` does, by ``client``."""
    partitions = partitions_of(client, options)
    now = cluster_state(client, partitions, read_committed=options.read_committed)
    for each in () if options.pattern else partitions:
        if each not in now.logs:
            why = f"{each}: it was deleted while the query was planned"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
    starts = _checked(client, options, options.starting, now)
    ends = _checked(client, options, options.ending, now)
    if options.ending.word is not None:  # an open transaction may begin before the start
        ends = {each: max(end, starts[each]) for each, end in ends.items()}
    ranges = [
        OffsetRange(*each, starts[each], ends[each], now.ids.get(each.topic, NULL_TOPIC_ID))
        for each in sorted(now.logs)
    ]
    for one in ranges:
        if one.start > one.end and options.fail_on_data_loss:
            message = f"{one} ends before it starts: see {options.starting.option}"
            raise OptionError(message)
    return ranges


def _checked(
    client: BlockingClient, options: SourceOptions, bound: Bound, now: ClusterState
) -> Mapping[TopicPartition, int]:
    """Return the offsets of ``bound``, all of them in the logs. Raises DataLoss if they are not."""
    offsets = resolve(client, bound, now, options)
    if bound.positions is None:
        return offsets
    positions = Positions(offsets, bound.positions.ids, bound.positions.epochs)
    is_start = bound is options.starting
    checked = with_epoch_ends(
        client, now, positions, read_committed=options.read_committed and is_start
    )
    losses = find_losses(positions, checked)
    for each, loss in losses.items():
        if options.fail_on_data_loss:
            raise loss.error
        LOG.warning("%s: %s", bound.option, loss.error)
        is_end_of_another_log = bound is options.ending and isinstance(loss.error, TopicRecreated)
        if loss.resume is not None:
            offsets[each] = now.logs[each].end if is_end_of_another_log else loss.resume
    return offsets
