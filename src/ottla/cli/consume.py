"""``ottla consume``: records to standard output, to the end or for ever."""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from ottla.cli.arguments import (
    Commands,
    add_client_options,
    add_command,
    add_output_option,
    at_least_one,
)
from ottla.cli.failure import Exit, Failure
from ottla.cli.output import note, printable
from ottla.cli.record_format import compile_output
from ottla.cli.record_json import record_json
from ottla.cli.run import run
from ottla.cli.start import start_offsets
from ottla.cli.topic import existing_topic
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.fetcher import FetchedBatches, Fetcher
from ottla.client.wire.fetching import FetchLimits
from ottla.client.wire.offsets import LATEST
from ottla.client.wire.reading import OnCorrupt, read_records
from ottla.env.clock import SystemClock
from ottla.errors import KafkaError
from ottla.ids import TopicPartition
from ottla.records.record import Record

Show = Callable[[TopicPartition, Record], bytes]


def register(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(commands, "consume", "Print a topic's records.", consume)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--from",
        dest="start",
        default="",
        metavar="PLACE",
        help="earliest, latest, an offset, -10, -5m or a time; else earliest, latest with --tail",
    )
    parser.add_argument(
        "--to",
        dest="end",
        metavar="PLACE",
        help="stop before an offset, -10, -5m or a time, in each partition",
    )
    parser.add_argument("--from-beginning", action="store_true", help="the same as earliest")
    parser.add_argument("-n", "--count", type=at_least_one, metavar="N", help="stop after")
    parser.add_argument(
        "-t", "--tail", "--follow", action="store_true", help="wait for more at the end"
    )
    parser.add_argument(
        "-p",
        "--partition",
        type=int,
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
    add_output_option(parser, "jsonl", "json")
    parser.add_argument(
        "--skip-corrupt", action="store_true", help="go on behind damaged batches, naming them"
    )
    parser.add_argument(
        "--read-committed", action="store_true", help="leave out aborted transactions"
    )
    add_client_options(parser)


def consume(options: Namespace) -> None:
    """Print a topic's records."""
    topic: str = options.topic

    async def command(cluster: Cluster) -> None:
        show = _show(options.format, options.output)
        if options.end is not None and (options.tail or options.group is not None):
            why = "--tail and --group read on"
            raise Failure("--to has no place there", why=why, code=Exit.USAGE)
        if options.group is not None:
            await _consume_as_member(cluster, options, show)
            return
        partitions = await _partitions(cluster, topic, options.partition)
        place = options.start or ("latest" if options.tail else "earliest")
        place = "earliest" if options.from_beginning else place
        positions = await _places(cluster, partitions, place)
        limits = FetchLimits(read_committed=options.read_committed)
        ends: dict[TopicPartition, int] | None = None
        if not options.tail:
            ends = await _ends(cluster, partitions, read_committed=limits.read_committed)
        if ends is not None and options.end is not None:
            bounds = await _places(cluster, partitions, options.end)
            ends = {each: min(end, bounds[each]) for each, end in ends.items()}
        printer = _printer(options, show)
        if options.tail and sys.stderr.isatty():
            note("at the end it waits for more; Ctrl-C ends")
        try:
            async with Fetcher(cluster, limits) as fetcher:
                await printer.print_from(fetcher, positions, ends)
        finally:
            printer.finish()
        if printer.damage is not None:
            raise printer.damage
        if not printer.printed and sys.stderr.isatty() and not options.tail:
            note(f"{topic} holds no record there; --from earliest, or --tail to wait")

    run(options, command)


async def _consume_as_member(cluster: Cluster, options: Namespace, show: Show) -> None:
    """Print what the group has not read yet."""
    from ottla.cli.consume_group import GroupReader
    from ottla.client.asyncio.member import GroupMember

    if options.partition:
        why = "the group decides who reads which partition"
        raise Failure("-g and -p exclude each other", why=why, code=Exit.USAGE)
    await existing_topic(cluster, options.topic)
    place = "earliest" if options.from_beginning else options.start or "earliest"

    async def places(partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return await _places(cluster, partitions, place)

    printer = _printer(options, show)
    member = GroupMember(cluster, options.group, frozenset([options.topic]))
    limits = FetchLimits(read_committed=options.read_committed)
    reader = GroupReader(cluster, member, limits, places=places)

    def take(batches: FetchedBatches, end: int | None) -> bool:
        goes_on = printer.print_batches(batches, end)
        reader.note(batches.partition, printer.next_offset)
        if printer.damage is not None:  # Nothing behind it may count as read.
            raise printer.damage
        return goes_on

    try:
        await reader.run(take, endless=options.tail)
    finally:
        printer.finish()
    if not printer.printed and sys.stderr.isatty():
        note(f"{options.group} has read all of {options.topic}; --tail to wait for more")


async def _partitions(cluster: Cluster, topic: str, chosen: list[int]) -> list[TopicPartition]:
    """Return the partitions to read. Raises Failure for one that the topic does not have."""
    view = await existing_topic(cluster, topic)
    for each in chosen:
        if each not in view.partitions:
            why = f"{topic} has partitions 0 to {len(view.partitions) - 1}"
            raise Failure(f"{topic} has no partition {each}", why=why, code=Exit.NOT_FOUND)
    return [TopicPartition(topic, each) for each in chosen or view.partitions]


async def _places(
    cluster: Cluster, partitions: Sequence[TopicPartition], place: str
) -> dict[TopicPartition, int]:
    """Return the offset of a place in each partition. Raises Failure."""
    try:
        return await start_offsets(cluster, partitions, place, SystemClock())
    except ValueError as error:
        raise Failure(str(error), code=Exit.USAGE) from error


def _printer(options: Namespace, show: Show) -> "_Printer":
    is_list = options.output == "json"
    return _Printer(show, options.count, as_list=is_list, skips_corrupt=options.skip_corrupt)


class _Printer:
    """Prints records up to a count and up to the ends of partitions.

    A partition with a damaged batch is printed up to it, the others to their ends.
    """

    def __init__(
        self, show: Show, count: int | None, *, as_list: bool, skips_corrupt: bool = False
    ) -> None:
        self.printed = 0
        self.damage: Failure | None = None
        """The first damaged batch that was not skipped."""
        self._is_stopped = False
        self._skips_corrupt = skips_corrupt
        self.next_offset = 0
        """Behind what was printed last, in that partition."""
        self._show = show
        self._left = count
        self._as_list = as_list
        self._out = sys.stdout.buffer
        if as_list:
            self._out.write(b"[")

    async def print_from(
        self,
        fetcher: Fetcher,
        positions: dict[TopicPartition, int],
        ends: dict[TopicPartition, int] | None,
    ) -> None:
        """Print from ``positions`` to ``ends`` (None: for ever), or until the count is reached."""
        if ends is not None:
            positions = {each: at for each, at in positions.items() if at < ends[each]}
        if not positions:
            return
        open_partitions = set(positions)
        await fetcher.assign(positions)
        async for batches in fetcher.batches():
            end = None if ends is None else ends[batches.partition]
            if not self.print_batches(batches, end):
                return
            if self._is_stopped or (end is not None and batches.next_offset >= end):
                open_partitions.discard(batches.partition)
                await fetcher.stop_partition(batches.partition)
            if not open_partitions:
                return

    def finish(self) -> None:
        """Close what was opened. Called however the reading ended."""
        if self._as_list:
            self._out.write(b"\n]\n" if self.printed else b"]\n")
        self._out.flush()

    def print_batches(self, batches: FetchedBatches, end: int | None) -> bool:
        """Print batches up to ``end`` (None: all); False when the count is reached.

        ``next_offset`` then says where the partition goes on.
        """
        self.next_offset = batches.next_offset if end is None else min(batches.next_offset, end)
        goes_on = self._print(batches, end)
        self._out.flush()
        return goes_on

    def _print(self, batches: FetchedBatches, end: int | None) -> bool:
        self._is_stopped = False
        records = read_records(
            batches.records,
            batches.offset,
            batches.aborted,
            on_corrupt=self._on_corrupt(batches, end),
        )
        try:
            return self._print_records(records, batches.partition, end)
        except KafkaError as error:
            is_stuck = batches.next_offset <= batches.offset
            if not self._is_stopped and is_stuck:
                self._stop(batches.partition, batches.offset, error)
        return True

    def _on_corrupt(self, batches: FetchedBatches, end: int | None) -> OnCorrupt:
        def on_corrupt(offset: int, error: KafkaError) -> None:
            if end is not None and offset >= end:
                return
            if not self._skips_corrupt:
                self._stop(batches.partition, offset, error)
                raise error
            note(f"skipped a damaged batch of {batches.partition}: {error.why or error.code.text}")

        return on_corrupt

    def _stop(self, partition: TopicPartition, offset: int, error: KafkaError) -> None:
        """Read a partition no further: no record behind ``offset`` is known to be right."""
        self._is_stopped = True
        self.next_offset = offset
        failure = Failure(
            f"{partition} is damaged at offset {offset}",
            why=error.why or error.code.text,
            fix="--skip-corrupt goes on behind it; `ottla log verify` on its broker tells more",
        )
        if self.damage is None:
            self.damage = failure
        else:
            note(str(failure))

    def _print_records(
        self, records: Iterator[Record], partition: TopicPartition, end: int | None
    ) -> bool:
        for record in records:
            if end is not None and record.offset >= end:
                break
            if self._as_list:
                self._out.write(b",\n" if self.printed else b"\n")
            self._out.write(self._show(partition, record))
            self.printed += 1
            if self._left is not None and self.printed >= self._left:
                self.next_offset = record.offset + 1
                return False
        return True


async def _ends(
    cluster: Cluster, partitions: Sequence[TopicPartition], *, read_committed: bool
) -> dict[TopicPartition, int]:
    found = await cluster.list_offsets(
        dict.fromkeys(partitions, LATEST), read_committed=read_committed
    )
    return {each: offset.offset for each, offset in found.items()}


def _show(format_: str | None, output: str | None) -> Show:
    if output is not None:
        if format_ is not None:
            raise Failure("-o and -f exclude each other", code=Exit.USAGE)
        return _json_line if output == "jsonl" else record_json
    if format_ is not None:
        try:
            return compile_output(format_)
        except ValueError as error:
            raise Failure(f"-f {format_!r}: {error}", code=Exit.USAGE) from error
    return _for_people if sys.stdout.isatty() else compile_output("%v\\n")


def _for_people(partition: TopicPartition, record: Record) -> bytes:
    time = ""
    if record.timestamp >= 0:
        moment = datetime.fromtimestamp(record.timestamp / 1000).astimezone()
        time = f"{moment:%Y-%m-%d %H:%M:%S}.{record.timestamp % 1000:03d}  "
    key = "" if record.key is None else f"k={_text(record.key)}  "
    value = "(null)" if record.value is None else _text(record.value)
    return f"{time}{partition.partition}:{record.offset}  {key}{value}\n".encode()


def _text(data: bytes) -> str:
    """Return ``data`` as text that does nothing to a terminal; what is no text is marked."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"{data!r} (not UTF-8)"
    return printable(text, keep="\t")


def _json_line(partition: TopicPartition, record: Record) -> bytes:
    return record_json(partition, record) + b"\n"
