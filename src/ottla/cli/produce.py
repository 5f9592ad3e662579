"""``ottla produce``: the lines of standard input become records."""

import asyncio
import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import AsyncIterator, Callable
from io import BufferedReader
from typing import NamedTuple, cast

from ottla.cli.arguments import Commands, add_client_options, add_command
from ottla.cli.failure import Exit, Failure
from ottla.cli.output import note
from ottla.cli.record_format import compile_input
from ottla.cli.run import run
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.producer import Delivery, Producer, ProducerSettings
from ottla.client.wire.errors import ConnectionFailed
from ottla.config.human import size_text
from ottla.env.clock import SystemClock
from ottla.errors import KafkaError
from ottla.records.compression import Codec

READ_BYTES = 1 << 16
PROGRESS_SECONDS = 1.0
PARTITIONS_SHOWN = 8


ACKS = {"all": -1, "1": 1, "0": 0}


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


def register(commands: Commands) -> None:
    """Declare the command."""
    about = "Send each line of standard input as a record."
    parser = add_command(commands, "produce", about, produce)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("-k", "--key", help="one key for all")
    parser.add_argument(
        "-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="a header"
    )
    parser.add_argument(
        "-f", "--format", metavar="FORMAT", help=r"how a line reads, e.g. '%%k\t%%v\n'"
    )
    parser.add_argument(
        "--jsonl", action="store_true", help="lines are objects of key, value, headers, ..."
    )
    parser.add_argument("-p", "--partition", type=int, metavar="N", help="to this one always")
    parser.add_argument(
        "--acks", choices=ACKS, default="all", help="who must have it before it counts; all"
    )
    parser.add_argument(
        "--codec", choices=[each.name.lower() for each in Codec], default="none", help="none"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no summary")
    add_client_options(parser)


def produce(options: Namespace) -> None:
    """Send each line of standard input as a record."""

    async def command(cluster: Cluster) -> None:
        key = None if options.key is None else options.key.encode()
        given = Given(options.topic, key, _headers(options.header), options.partition)
        settings = ProducerSettings(acks=ACKS[options.acks], codec=Codec[options.codec.upper()])
        read = _reader(given, options.format, jsonl=options.jsonl)
        await _send(cluster, given, settings, read, quiet=options.quiet)

    run(options, command)


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
        bad_line: Failure | None = None
        async for raw in _lines():
            number += 1
            try:
                line = read(raw)
            except ValueError as error:
                # The lines before it are sent all the same, and counted.
                bad_line = Failure(f"line {number}: {error}", code=Exit.USAGE)
                break
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
    if bad_line is not None:
        raise bad_line


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
