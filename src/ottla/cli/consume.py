"""``ottla consume``: records to standard output, to the end or for ever."""

import sys
from argparse import Namespace
from collections.abc import Sequence

from ottla.cli.arguments import (
    Commands,
    add_client_options,
    add_command,
    add_output_option,
    at_least_one,
    not_empty,
    whole,
)
from ottla.cli.consume_offline import without_offline
from ottla.cli.consume_printer import Printer, Search, header_of, show_of
from ottla.cli.failure import Exit, Failure, leave
from ottla.cli.output import FORMATS, Format, note
from ottla.cli.record_decoders import NAMES, Decoders
from ottla.cli.run import run
from ottla.cli.start import start_offsets
from ottla.cli.topic_choice import chosen_topics
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.fetcher import FetchedBatches, Fetcher
from ottla.client.wire.fetching import FetchLimits
from ottla.client.wire.offsets import LATEST
from ottla.client.wire.view import TopicView
from ottla.env.clock import SystemClock
from ottla.ids import TopicPartition


def register(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(commands, "consume", "Print a topic's records.", consume)
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="one or several")
    parser.add_argument(
        "--regex", metavar="PATTERN", help="instead: all topics whose whole name fits"
    )
    parser.add_argument(
        "--from",
        "--offset",
        type=not_empty,
        dest="start",
        metavar="PLACE",
        help="earliest, latest, an offset, -10, -5m or a time; else earliest, latest with --tail",
    )
    parser.add_argument(
        "--to",
        type=not_empty,
        dest="end",
        metavar="PLACE",
        help="stop before an offset, -10, -5m or a time, in each partition",
    )
    parser.add_argument("--from-beginning", action="store_true", help="the same as earliest")
    parser.add_argument(
        "-n", "--count", "--max-messages", type=at_least_one, metavar="N", help="stop after"
    )
    parser.add_argument(
        "-t", "--tail", "--follow", action="store_true", help="wait for more at the end"
    )
    parser.add_argument(
        "-p",
        "--partition",
        type=whole,
        action="append",
        default=[],
        metavar="N",
        help="only this partition, or these",
    )
    parser.add_argument(
        "-g",
        "--group",
        metavar="GROUP",
        help="as a member of this consumer group: go on where it was, and commit",
    )
    parser.add_argument(
        "-f",
        "--format",
        metavar="FORMAT",
        help=r"'%%t %%p %%o %%k %%v %%T %%h\n'; %%K %%S are lengths",
    )
    add_output_option(parser, *FORMATS)
    parser.add_argument(
        "-w",
        "--where",
        action="append",
        default=[],
        metavar="CONDITION",
        help="only records with 'key = 42', 'value.total > 100', 'header.trace', 'value ~ regex',"
        " 'value contains text'; repeatable, all must hold; -n counts matches",
    )
    parser.add_argument(
        "--decode",
        action="append",
        default=[],
        metavar="HOW",
        help=f"values, or key=HOW: {', '.join(NAMES)}; avro:FILE, protobuf:FILE:MESSAGE",
    )
    parser.add_argument(
        "--registry", metavar="URL", help="a schema registry's; else $OTTLA_SCHEMA_REGISTRY"
    )
    parser.add_argument(
        "--skip-corrupt", action="store_true", help="go on behind damaged batches, naming them"
    )
    parser.add_argument(
        "--read-committed", action="store_true", help="leave out aborted transactions"
    )
    add_client_options(parser)


def consume(options: Namespace) -> None:
    """Print a topic's records."""
    if bool(options.topics) == bool(options.regex):
        what = "TOPIC and --regex exclude each other" if options.regex else "no topic is named"
        leave(Failure(what, fix="ottla consume TOPIC, or --regex PATTERN", code=Exit.USAGE))

    async def command(cluster: Cluster) -> None:
        decoders, search = _wanted(options)
        if options.end is not None and (options.tail or options.group is not None):
            why = "--tail and --group read on"
            raise Failure("--to has no place there", why=why, code=Exit.USAGE)
        if options.group is not None and options.partition:
            why = "the group decides who reads which partition"
            raise Failure("-g and -p exclude each other", why=why, code=Exit.USAGE)
        form = None if options.output is None else Format(options.output)
        several = bool(options.regex) or len(options.topics) > 1
        show = show_of(options.format, form, decoders, names_topics=several)
        topics = await chosen_topics(cluster, options.topics, options.regex)
        partitions = [each for view in topics for each in _partitions(view, options.partition)]
        offline: Failure | None = None
        if options.group is None:
            partitions, offline = await without_offline(cluster, partitions)
        printer = Printer(
            show,
            options.count,
            form=form,
            header=b"" if options.no_header else header_of(form, decoders),
            skips_corrupt=options.skip_corrupt,
            search=search,
        )
        try:
            if options.group is None:
                await _read(cluster, partitions, options, printer)
            else:
                await _read_as_member(cluster, topics, options, printer)
        finally:
            printer.finish()
            if decoders.fault_count and options.output is None and not sys.stdout.isatty():
                note(f"not decoded, and shown as they are: {decoders.fault_count:,}")
        failure = printer.damage or offline
        if failure is not None:
            raise failure
        if not printer.printed and search is None and sys.stderr.isatty():
            _say_that_nothing_is_there(options, topics)

    run(options, command)


def _wanted(options: Namespace) -> tuple[Decoders, Search | None]:
    """Return what --decode and --where say. Raises Failure."""
    try:
        decoders = Decoders(options.decode, options.registry)
        if not options.where:
            return decoders, None
        from ottla.cli.record_where import compile_where

        return decoders, Search(
            compile_where(options.where, decoders.key, decoders.value), SystemClock()
        )
    except ValueError as error:
        raise Failure(str(error), code=Exit.USAGE) from error


def _say_that_nothing_is_there(options: Namespace, topics: Sequence[TopicView]) -> None:
    names = options.regex or ", ".join(each.name for each in topics)
    if options.group is not None:
        note(f"{options.group} has read all of {names}; --tail to wait for more")
    elif not options.tail:
        note(f"{names} holds no record there; --from earliest, or --tail to wait")


async def _read(
    cluster: Cluster, partitions: Sequence[TopicPartition], options: Namespace, printer: Printer
) -> None:
    """Print from a place to the end, or for ever."""
    place = options.start or ("latest" if options.tail else "earliest")
    place = "earliest" if options.from_beginning else place
    positions = await start_offsets(cluster, partitions, place, SystemClock())
    limits = FetchLimits(read_committed=options.read_committed)
    ends: dict[TopicPartition, int] | None = None
    if not options.tail:
        ends = await _ends(cluster, partitions, read_committed=limits.read_committed)
        if options.end is not None:
            bounds = await start_offsets(cluster, partitions, options.end, SystemClock())
            ends = {each: min(end, bounds[each]) for each, end in ends.items()}
        positions = {each: at for each, at in positions.items() if at < ends[each]}
    if options.tail and sys.stderr.isatty():
        note("at the end it waits for more; Ctrl-C ends")
    if printer.search is not None and ends is not None:
        printer.search.total = sum(ends[each] - at for each, at in positions.items())
    async with Fetcher(cluster, limits) as fetcher:
        await _print_from(fetcher, positions, ends, printer)


async def _print_from(
    fetcher: Fetcher,
    positions: dict[TopicPartition, int],
    ends: dict[TopicPartition, int] | None,
    printer: Printer,
) -> None:
    """Print from ``positions`` to ``ends`` (None: for ever), or until the count is reached."""
    if not positions:
        return
    open_partitions = set(positions)
    await fetcher.assign(positions)
    async for batches in fetcher.batches():
        end = None if ends is None else ends[batches.partition]
        if not printer.print_batches(batches, end):
            return
        if printer.is_stopped or (end is not None and batches.next_offset >= end):
            open_partitions.discard(batches.partition)
            await fetcher.stop_partition(batches.partition)
        if not open_partitions:
            return


async def _read_as_member(
    cluster: Cluster, topics: Sequence[TopicView], options: Namespace, printer: Printer
) -> None:
    """Print what the group has not read yet."""
    from ottla.cli.consume_group import GroupReader
    from ottla.cli.consume_member import SharingMember
    from ottla.client.asyncio.consumer_member import ConsumerMember
    from ottla.client.asyncio.groups import Groups
    from ottla.client.asyncio.membership import Membership, new_member

    place = "earliest" if options.from_beginning else options.start or "earliest"

    async def places(partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return await start_offsets(cluster, partitions, place, SystemClock())

    groups, names = Groups(cluster), frozenset(each.name for each in topics)
    found = await new_member(cluster, groups, options.group, names, Membership())
    member = SharingMember(found, groups) if isinstance(found, ConsumerMember) else found
    limits = FetchLimits(read_committed=options.read_committed)
    reader = GroupReader(cluster, member, limits, places=places)

    def take(batches: FetchedBatches, end: int | None) -> bool:
        goes_on = printer.print_batches(batches, end)
        reader.note(batches.partition, printer.next_offset)
        if printer.damage is not None:  # Nothing behind it may count as read.
            raise printer.damage
        return goes_on

    await reader.run(take, endless=options.tail)


def _partitions(view: TopicView, chosen: list[int]) -> list[TopicPartition]:
    """Return the partitions to read. Raises Failure for one that the topic does not have."""
    for each in chosen:
        if each not in view.partitions:
            why = f"{view.name} has partitions 0 to {len(view.partitions) - 1}"
            raise Failure(f"{view.name} has no partition {each}", why=why, code=Exit.NOT_FOUND)
    return [TopicPartition(view.name, each) for each in chosen or view.partitions]


async def _ends(
    cluster: Cluster, partitions: Sequence[TopicPartition], *, read_committed: bool
) -> dict[TopicPartition, int]:
    found = await cluster.list_offsets(
        dict.fromkeys(partitions, LATEST), read_committed=read_committed
    )
    return {each: offset.offset for each, offset in found.items()}
