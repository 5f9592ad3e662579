"""``ottla produce``: the lines of standard input become records."""

import asyncio
import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import NamedTuple

from ottla.cli.arguments import Commands, add_client_options, add_command
from ottla.cli.failure import Exit, Failure
from ottla.cli.input_stream import input_stream, parts_of
from ottla.cli.output import note, progress
from ottla.cli.record_format import compile_input
from ottla.cli.record_json import Headers, read_record_json
from ottla.cli.run import run
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.producer import Delivery, Producer, ProducerSettings
from ottla.client.wire.backoff import MISSING
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.view import TopicView
from ottla.config.human import size_text
from ottla.env.clock import SystemClock
from ottla.errors import KafkaError
from ottla.records.compression import Codec

LINE_MAX_BYTES = 1 << 30
PROGRESS_SECONDS = 1.0
PARTITIONS_SHOWN = 8
LAST_FLUSH_SECONDS = 1.0
"""How long a command that is told to end waits for what it has sent."""

ACKS = {"all": -1, "1": 1, "0": 0}


class Line(NamedTuple):
    """What one line of input says."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Given(NamedTuple):
    """What the options say about every line."""

    topic: str
    key: bytes | None
    headers: Headers
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
        key = None if options.key is None else os.fsencode(options.key)
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
    with input_stream(None) as number:  # Before the topic is made.
        view = await _existing_or_created(cluster, given, settings)
        lines = parts_of(number, b"\n", LINE_MAX_BYTES)
        try:
            await _produce(Producer(cluster, settings), view, lines, read, tally)
        finally:
            if not quiet:
                tally.summary()
    if tally.error is not None:
        raise tally.error


async def _produce(
    producer: Producer,
    topic: TopicView,
    lines: AsyncIterator[bytes],
    read: Callable[[bytes], Line],
    tally: "_Tally",
) -> None:
    """Send all lines, also those before a bad one. Raises Failure."""
    async with producer:
        failure: Failure | None = None
        try:
            await _send_lines(producer, topic, lines, read, tally)
        except Failure as error:
            failure = error
        except asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_FLUSH_SECONDS):
                    await producer.flush()
            raise
        await producer.flush()
    if failure is not None:
        raise failure


async def _existing_or_created(
    cluster: Cluster, given: Given, settings: ProducerSettings
) -> TopicView:
    """Return the topic, made if the broker makes topics; refuse a partition that it has not."""
    view = await cluster.refresh([given.topic])
    is_new = given.topic not in view.topics or view.topics[given.topic].error in MISSING
    view = await cluster.ensure([given.topic], create=settings.may_create_topics)
    topic = view.topic(given.topic)
    if is_new:
        count = len(topic.partitions)
        note(f"created topic {topic.name}, {count} partition{'' if count == 1 else 's'}")
    _check_partition(topic, given.partition)
    return topic


def _check_partition(topic: TopicView, partition: int | None, where: str = "") -> None:
    if partition is not None and partition not in topic.partitions:
        why = f"{topic.name} has partitions 0 to {len(topic.partitions) - 1}"
        what = f"{where}{topic.name} has no partition {partition}"
        raise Failure(what, why=why, code=Exit.NOT_FOUND)


async def _send_lines(
    producer: Producer,
    topic: TopicView,
    lines: AsyncIterator[bytes],
    read: Callable[[bytes], Line],
    tally: "_Tally",
) -> None:
    """Send each line until the input ends or a delivery fails. Raises Failure for a bad line."""
    number = 0
    async for raw in lines:
        number += 1
        try:
            line = read(raw.removesuffix(b"\r"))
        except ValueError as error:
            raise Failure(f"line {number}: {error}", code=Exit.USAGE) from error
        _check_partition(topic, line.partition, f"line {number}: ")
        promise = await producer.send(
            topic.name,
            line.value,
            key=line.key,
            headers=line.headers,
            partition=line.partition,
            timestamp_ms=line.timestamp_ms,
        )
        tally.sent(len(raw))
        promise.add_done_callback(tally.delivered)
        if tally.error is not None:
            return


class _Tally:
    """Counts deliveries, and says how it goes."""

    def __init__(self, *, shows_progress: bool) -> None:
        self.error: KafkaError | ConnectionFailed | None = None
        self._clock = SystemClock()
        self._start = self._shown = self._clock.monotonic()
        self._shows_progress = shows_progress
        self._is_typed = sys.stdin.isatty()
        self._bytes = 0
        self._sent_count = 0
        self._failed_count = 0
        self._ranges: dict[int, tuple[int, int]] = {}
        self._counts: Counter[int] = Counter()

    def sent(self, size_bytes: int) -> None:
        """Count a record handed in."""
        self._bytes += size_bytes
        self._sent_count += 1
        if self._shows_progress and self._clock.monotonic() - self._shown > PROGRESS_SECONDS:
            self._shown = self._clock.monotonic()
            progress(f"{self._counts.total():,} records  {size_text(self._bytes)}")

    def delivered(self, promise: "asyncio.Future[Delivery]") -> None:
        """Count a record written, or keep the first error."""
        error = promise.exception()
        if error is not None:
            self._failed_count += 1
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
            progress("")
        what = f"{count:,} record{'' if count == 1 else 's'}  {size_text(self._bytes)}"
        if not self._is_typed:  # The time would be the typist's.
            what += f"  in {seconds:.1f} s  ({count / seconds:,.0f} rec/s)"
        note(what)
        if left := self._sent_count - count - self._failed_count:
            note(f"  {left:,} more were sent, and not answered: they may be written or not")
        if self._failed_count:
            note(f"  {self._failed_count:,} failed")
        for partition, written in sorted(self._counts.items())[:PARTITIONS_SHOWN]:
            first, last = self._ranges[partition]
            where = f"offsets {first:,}-{last:,}" if last >= 0 else "offsets unknown (acks=0)"
            note(f"  partition {partition}  {written:,}  {where}")
        if len(self._counts) > PARTITIONS_SHOWN:
            note(f"  and {len(self._counts) - PARTITIONS_SHOWN} more partitions")


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
        key, value, headers, partition, topic, timestamp_ms = split(raw)
        if topic not in (None, given.topic):
            raise ValueError(f"the line is for {topic}")
        return Line(
            given.key if key is None else key,
            value,
            given.headers + headers,
            given.partition if partition is None else partition,
            timestamp_ms,
        )

    return read


def _json_line(raw: bytes, given: Given) -> Line:
    found = read_record_json(raw)
    return Line(
        found.key if found.has_key else given.key,
        found.value,
        given.headers + found.headers,
        given.partition if found.partition is None else found.partition,
        found.timestamp_ms,
    )


def _headers(texts: list[str]) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        headers.append((name, os.fsencode(value) if equals else None))
    return tuple(headers)
