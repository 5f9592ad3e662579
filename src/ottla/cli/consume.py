"""``ottla consume``: records to standard output, to the end or for ever."""

import json
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer

from ottla.cli.failure import Exit, Failure
from ottla.cli.output import note
from ottla.cli.record_format import compile_output
from ottla.cli.run import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    CommandConfig,
    Settings,
    Timeout,
    run,
)
from ottla.cli.start import start_offsets
from ottla.cli.topic import existing_topic
from ottla.client.cluster import Cluster
from ottla.client.fetcher import FetchedBatches, Fetcher
from ottla.client.fetching import FetchLimits
from ottla.client.offsets import LATEST
from ottla.client.reading import read_records
from ottla.env.clock import SystemClock
from ottla.ids import TopicPartition
from ottla.records.record import Record

Show = Callable[[TopicPartition, Record], bytes]


class Output(StrEnum):
    """The values of -o."""

    JSONL = "jsonl"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("consume")(consume)


def consume(  # noqa: PLR0913 - a command's options are its parameters
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where from.")],
    *,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="earliest, latest, an offset, -10, -5m or a time. Default: earliest; latest when"
            " tailing.",
        ),
    ] = "",
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="The same as --from earliest.")
    ] = False,
    count: Annotated[int | None, typer.Option("-n", "--count", min=1, help="Stop after.")] = None,
    tail: Annotated[
        bool, typer.Option("-t", "--tail", "--follow", help="Wait for more at the end.")
    ] = False,
    partition: Annotated[
        list[int] | None, typer.Option("-p", "--partition", help="Only these partitions.")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("-f", "--format", help=r"'%t %p %o %k %v %T %h\n'; %K %S lengths."),
    ] = None,
    output: Annotated[
        Output | None, typer.Option("-o", "--output", help="One object per record.")
    ] = None,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Leave out aborted transactions.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    settings: Settings = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Print a topic's records."""

    async def command(cluster: Cluster) -> None:
        show = _show(format_, output)
        view = await existing_topic(cluster, topic)
        for each in partition or ():
            if each not in view.partitions:
                why = f"{topic} has partitions 0 to {len(view.partitions) - 1}"
                raise Failure(f"{topic} has no partition {each}", why=why, code=Exit.NOT_FOUND)
        wanted = [TopicPartition(topic, each) for each in partition or view.partitions]
        place = "earliest" if from_beginning else start or ("latest" if tail else "earliest")
        try:
            positions = await start_offsets(cluster, wanted, place, SystemClock())
        except ValueError as error:
            raise Failure(str(error), code=Exit.USAGE) from error
        limits = FetchLimits(read_committed=read_committed)
        ends = None if tail else await _ends(cluster, wanted, read_committed=read_committed)
        printer = _Printer(show, count, as_list=output is Output.JSON)
        try:
            async with Fetcher(cluster, limits) as fetcher:
                await printer.print_from(fetcher, positions, ends)
        finally:
            printer.finish()
        if not printer.printed and sys.stderr.isatty() and not tail:
            note(f"{topic} holds no record there; --from earliest, or --tail to wait")

    run(command, bootstrap, settings, command_config, timeout)


class _Printer:
    """Prints records up to a count and up to the ends of partitions."""

    def __init__(self, show: Show, count: int | None, *, as_list: bool) -> None:
        self.printed = 0
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
            if not self._print(batches, end):
                return
            self._out.flush()
            if end is not None and batches.next_offset >= end:
                open_partitions.discard(batches.partition)
                await fetcher.stop_partition(batches.partition)
            if not open_partitions:
                return

    def finish(self) -> None:
        """Close what was opened. Called however the reading ended."""
        if self._as_list:
            self._out.write(b"\n]\n" if self.printed else b"]\n")
        self._out.flush()

    def _print(self, batches: FetchedBatches, end: int | None) -> bool:
        for record in read_records(batches.records, batches.offset, batches.aborted):
            if end is not None and record.offset >= end:
                break
            if self._as_list:
                self._out.write(b",\n" if self.printed else b"\n")
            self._out.write(self._show(batches.partition, record))
            self.printed += 1
            if self._left is not None and self.printed >= self._left:
                return False
        return True


async def _ends(
    cluster: Cluster, partitions: Sequence[TopicPartition], *, read_committed: bool
) -> dict[TopicPartition, int]:
    found = await cluster.list_offsets(
        dict.fromkeys(partitions, LATEST), read_committed=read_committed
    )
    return {each: offset.offset for each, offset in found.items()}


def _show(format_: str | None, output: Output | None) -> Show:
    if output is not None:
        if format_ is not None:
            raise Failure("-o and -f exclude each other", code=Exit.USAGE)
        return _json_line if output is Output.JSONL else _json_object
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
        time = moment.strftime("%H:%M:%S.") + f"{record.timestamp % 1000:03d}  "
    key = "" if record.key is None else f"k={_text(record.key)}  "
    value = "(null)" if record.value is None else _text(record.value)
    return f"{time}{partition.partition}:{record.offset}  {key}{value}\n".encode()


def _text(data: bytes) -> str:
    """Return ``data`` as text that does nothing to a terminal."""
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each == "\t" else repr(each)[1:-1] for each in text
    )


def _json_line(partition: TopicPartition, record: Record) -> bytes:
    return _json_object(partition, record) + b"\n"


def _json_object(partition: TopicPartition, record: Record) -> bytes:
    shown = {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _json_text(record.key),
        "value": _json_text(record.value),
        "headers": {name: _json_text(value) for name, value in record.headers},
    }
    return json.dumps(shown, ensure_ascii=False).encode()


def _json_text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")
