"""``ottla produce``: the lines of standard input become records."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from io import BufferedReader
from typing import Annotated, NamedTuple, cast

import typer

from ottla.cli.failure import Exit, Failure
from ottla.cli.output import note
from ottla.cli.record_format import compile_input
from ottla.cli.run import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    CommandConfig,
    Settings,
    Timeout,
    run,
)
from ottla.client.cluster import Cluster
from ottla.client.errors import ConnectionFailed
from ottla.client.producer import Delivery, Producer, ProducerSettings
from ottla.config.human import size_text
from ottla.env.clock import SystemClock
from ottla.errors import KafkaError
from ottla.records.compression import Codec

READ_BYTES = 1 << 16
PROGRESS_SECONDS = 1.0
PARTITIONS_SHOWN = 8


class CodecName(StrEnum):
    """The codecs of --codec."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """The values of --acks."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"


_ACKS = {Acks.ALL: -1, Acks.LEADER: 1, Acks.NONE: 0}


class Line(NamedTuple):
    """What one line of input says."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Given(NamedTuple):
    """What the options say about every line."""

    topic: str
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("produce")(produce)


def produce(  # noqa: PLR0913 - a command's options are its parameters
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to.")],
    *,
    key: Annotated[str | None, typer.Option("-k", "--key", help="One key for all.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("-H", "--header", metavar="NAME=VALUE", help="A header.")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("-f", "--format", help=r"How a line reads, e.g. '%k\t%v\n'."),
    ] = None,
    jsonl: Annotated[
        bool,
        typer.Option("--jsonl", help="Lines are objects of key, value, headers, partition, ..."),
    ] = False,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", help="To this one, whatever the key.")
    ] = None,
    acks: Annotated[
        Acks, typer.Option(help="Who must have it: all in-sync replicas, ...")
    ] = Acks.ALL,
    codec: Annotated[CodecName, typer.Option(help="Compression.")] = CodecName.NONE,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No summary.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    settings: Settings = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Send each line of standard input as a record."""

    async def command(cluster: Cluster) -> None:
        given = Given(
            topic, None if key is None else key.encode(), _headers(header or []), partition
        )
        chosen = ProducerSettings(acks=_ACKS[acks], codec=Codec[codec.name])
        await _send(cluster, given, chosen, _reader(given, format_, jsonl=jsonl), quiet=quiet)

    run(command, bootstrap, settings, command_config, timeout)


async def _send(
    cluster: Cluster,
    given: Given,
    settings: ProducerSettings,
    read: Callable[[bytes], Line],
    *,
    quiet: bool,
) -> None:
    if sys.stdin.isatty() and not quiet:
        note("one record per line; Ctrl-D ends")
    tally = _Tally(shows_progress=sys.stderr.isatty() and not sys.stdin.isatty() and not quiet)
    async with Producer(cluster, settings) as producer:
        # Refuse a wrong topic or partition before the first line is read.
        await cluster.ensure([given.topic], create=settings.may_create_topics)
        number = 0
        async for raw in _lines():
            number += 1
            try:
                line = read(raw)
            except ValueError as error:
                raise Failure(f"line {number}: {error}", code=Exit.USAGE) from error
            promise = await producer.send(
                given.topic,
                line.value,
                key=line.key,
                headers=line.headers,
                partition=line.partition,
                timestamp_ms=line.timestamp_ms,
            )
            tally.sent(len(raw))
            promise.add_done_callback(tally.delivered)
            if tally.error is not None:
                break
        await producer.flush()
    if not quiet:
        tally.summary()
    if tally.error is not None:
        raise tally.error


class _Tally:
    """Counts deliveries, and says how it goes."""

    def __init__(self, *, shows_progress: bool) -> None:
        self.error: KafkaError | ConnectionFailed | None = None
        self._clock = SystemClock()
        self._start = self._shown = self._clock.monotonic()
        self._shows_progress = shows_progress
        self._bytes = 0
        self._ranges: dict[int, tuple[int, int]] = {}
        self._counts: Counter[int] = Counter()

    def sent(self, size_bytes: int) -> None:
        """Count a record handed in."""
        self._bytes += size_bytes
        if self._shows_progress and self._clock.monotonic() - self._shown > PROGRESS_SECONDS:
            self._shown = self._clock.monotonic()
            sys.stderr.write(f"\r{self._counts.total():,} records  {size_text(self._bytes)} ")
            sys.stderr.flush()

    def delivered(self, promise: "asyncio.Future[Delivery]") -> None:
        """Count a record written, or keep the first error."""
        error = promise.exception()
        if error is not None:
            if self.error is None and isinstance(error, KafkaError | ConnectionFailed):
                self.error = error
            return
        (_, partition), offset, _ = promise.result()
        self._counts[partition] += 1
        first, _ = self._ranges.get(partition, (offset, offset))
        self._ranges[partition] = (first, offset)

    def summary(self) -> None:
        """Say what was done, on standard error."""
        seconds = max(self._clock.monotonic() - self._start, 1e-6)
        count = self._counts.total()
        if self._shows_progress:
            sys.stderr.write("\r\x1b[K")
        note(
            f"{count:,} record{'' if count == 1 else 's'}  {size_text(self._bytes)}"
            f"  in {seconds:.1f} s  ({count / seconds:,.0f} rec/s)"
        )
        for partition, written in sorted(self._counts.items())[:PARTITIONS_SHOWN]:
            first, last = self._ranges[partition]
            where = f"offsets {first:,}-{last:,}" if last >= 0 else "offsets unknown (acks=0)"
            note(f"  partition {partition}  {written:,}  {where}")
        if len(self._counts) > PARTITIONS_SHOWN:
            note(f"  and {len(self._counts) - PARTITIONS_SHOWN} more partitions")


async def _lines() -> AsyncIterator[bytes]:
    """Yield standard input's lines as they arrive, without their ends."""
    loop = asyncio.get_running_loop()
    source = cast("BufferedReader", sys.stdin.buffer)
    rest = b""
    # read1 gives what is there, be it a file, a pipe or a person; it may block, so not here.
    while data := await loop.run_in_executor(None, source.read1, READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest


def _reader(given: Given, format_: str | None, *, jsonl: bool) -> Callable[[bytes], Line]:
    if jsonl and format_ is not None:
        raise Failure("--jsonl and -f exclude each other", code=Exit.USAGE)
    if jsonl:
        return lambda raw: _json_line(raw, given)
    if format_ is None:
        return lambda raw: Line(given.key, raw, given.headers, given.partition)
    try:
        split = compile_input(format_)
    except ValueError as error:
        raise Failure(f"-f {format_!r}: {error}", code=Exit.USAGE) from error

    def read(raw: bytes) -> Line:
        key, value = split(raw)
        return Line(given.key if key is None else key, value, given.headers, given.partition)

    return read


def _json_line(raw: bytes, given: Given) -> Line:
    try:
        found = json.loads(raw)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - input, not a type of ours
    unknown = found.keys() - _JSON_KEYS
    if unknown:
        raise ValueError(f"unknown keys {sorted(unknown)}; known are {sorted(_JSON_KEYS)}")
    headers = found.get("headers") or {}
    if not isinstance(headers, dict):
        raise ValueError("headers must be an object")  # noqa: TRY004 - the same
    partition, timestamp = found.get("partition"), found.get("timestamp")
    if not isinstance(partition, int | None) or not isinstance(timestamp, int | None):
        raise ValueError(  # noqa: TRY004 - the same
            "partition and timestamp must be whole numbers"
        )
    named = tuple((name, _json_bytes(value)) for name, value in headers.items())
    return Line(
        _json_bytes(found["key"]) if "key" in found else given.key,
        _json_bytes(found.get("value")),
        given.headers + named,
        given.partition if partition is None else partition,
        timestamp,
    )


_JSON_KEYS = {"key", "value", "headers", "partition", "timestamp", "topic", "offset"}
"""topic and offset are what `ottla consume -o jsonl` adds; they are not obeyed."""


def _json_bytes(value: object) -> bytes | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return text.encode()


def _headers(texts: list[str]) -> tuple[tuple[str, bytes | None], ...]:
    headers: list[tuple[str, bytes | None]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        headers.append((name, value.encode() if equals else None))
    return tuple(headers)
