"""``ottla topic trim``: the oldest records of a topic are deleted. Source: KIP-107."""

from argparse import Namespace

from ottla.cli import output as out
from ottla.cli.consent import ask
from ottla.cli.failure import Exit, Failure
from ottla.cli.output import Row, counted, note, write_rows
from ottla.cli.partition_choice import chosen_partitions
from ottla.cli.run import run
from ottla.cli.start import start_offsets
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.partitions import Partitions
from ottla.client.wire.offsets import EARLIEST, LATEST
from ottla.config.human import is_whole
from ottla.env.clock import SystemClock
from ottla.ids import TopicPartition

COLUMNS = ("topic", "partition", "start", "new_start", "end")


def trim(options: Namespace) -> None:
    """Delete the records before a place."""

    async def command(cluster: Cluster) -> None:
        partitions = await chosen_partitions(cluster, options.topic)
        starts = await _offsets(cluster, partitions, EARLIEST)
        ends = await _offsets(cluster, partitions, LATEST)
        wanted = await start_offsets(cluster, partitions, options.place, SystemClock())
        _check_inside(options.place, ends)
        rows: list[Row] = [
            {
                "topic": each.topic,
                "partition": each.partition,
                "start": starts[each],
                "new_start": wanted[each],
                "end": ends[each],
            }
            for each in sorted(wanted)
        ]
        write_rows(rows, COLUMNS, out.chosen(options.output), header=not options.no_header)
        moved = {each: offset for each, offset in wanted.items() if offset > starts[each]}
        count = sum(offset - starts[each] for each, offset in moved.items())
        if options.dry_run or not moved:
            note("nothing was deleted (--dry-run)" if moved else "there is nothing to delete")
            return
        if not options.yes:
            ask(f"delete {counted(count, 'offset')} of {options.topic}, for ever? [y/N] ")
        found = await Partitions(cluster).delete_records(moved)
        for each, offset in sorted(found.items()):
            note(f"{each} begins at {offset}")

    run(options, command)


def _check_inside(place: str, ends: dict[TopicPartition, int]) -> None:
    """Raise Failure for an offset behind the end: it is a mistake, and would delete everything."""
    if not is_whole(place):
        return
    for each, end in sorted(ends.items()):
        if int(place) > end:
            fix = f"--to latest deletes all of it; {each.topic}:{each.partition} names partitions"
            raise Failure(f"{each} ends at {end}, before {place}", fix=fix, code=Exit.USAGE)


async def _offsets(
    cluster: Cluster, partitions: list[TopicPartition], place: int
) -> dict[TopicPartition, int]:
    found = await cluster.list_offsets(dict.fromkeys(partitions, place))
    return {each: offset.offset for each, offset in found.items()}
