"""``ottla topic count``: how many records can be read, which offsets alone do not tell.

Control records, aborted records and what compaction took have offsets, too.
"""

from argparse import Namespace

from ottla.cli import output as out
from ottla.cli.output import Row, write_rows
from ottla.cli.partition_choice import chosen_partitions
from ottla.cli.run import run
from ottla.cli.start import start_offsets
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.fetcher import Fetcher
from ottla.client.wire.fetching import FetchLimits
from ottla.client.wire.offsets import LATEST
from ottla.client.wire.reading import read_rows
from ottla.env.clock import SystemClock
from ottla.ids import TopicPartition

COLUMNS = ("topic", "partition", "records", "offsets", "start", "end")
LIMITS = FetchLimits(max_wait_ms=5, read_committed=True)


def count(options: Namespace) -> None:
    """Count a topic's records by reading them."""

    async def command(cluster: Cluster) -> None:
        partitions = await chosen_partitions(cluster, options.topic)
        clock = SystemClock()
        starts = await start_offsets(cluster, partitions, options.start, clock)
        found = await cluster.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
        ends = {each: offset.offset for each, offset in found.items()}
        counts = await _count(cluster, starts, ends)
        rows: list[Row] = [
            {
                "topic": each.topic,
                "partition": each.partition,
                "records": counts[each],
                "offsets": max(0, ends[each] - starts[each]),
                "start": starts[each],
                "end": ends[each],
            }
            for each in sorted(partitions)
        ]
        write_rows(rows, COLUMNS, out.chosen(options.output), header=not options.no_header)
        out.note(f"{out.counted(sum(counts.values()), 'record')} in all")

    run(options, command)


async def _count(
    cluster: Cluster, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return how many committed records lie between the bounds of each partition."""
    counts = dict.fromkeys(starts, 0)
    left = {each: at for each, at in starts.items() if at < ends[each]}
    if not left:
        return counts
    open_partitions = set(left)
    async with Fetcher(cluster, LIMITS) as fetcher:
        await fetcher.assign(left)
        async for batches in fetcher.batches():
            end = ends[batches.partition]
            for _, rows in read_rows(batches.records, batches.offset, batches.aborted):
                inside = rows if rows[-1][0] < end else [row for row in rows if row[0] < end]
                counts[batches.partition] += len(inside)
            if batches.next_offset >= end:
                open_partitions.discard(batches.partition)
                await fetcher.stop_partition(batches.partition)
            if not open_partitions:
                break
    return counts
