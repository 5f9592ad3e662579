"""``ottla produce``: the lines of standard input become records."""

import asyncio
import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from ottla.cli.arguments import (
    Commands,
    add_client_options,
    add_command,
    at_least_one,
    per_second,
    whole,
)
from ottla.cli.failure import Exit, Failure, explain
from ottla.cli.input_stream import input_stream, part_lists
from ottla.cli.output import note, progress
from ottla.cli.produce_lines import LineSender, cut_of
from ottla.cli.produce_sources import LINE_MAX_BYTES, Given, Line, paced, source, welcome
from ottla.cli.record_json import Headers
from ottla.cli.run import run
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.producer import Outcome, Producer, ProducerSettings
from ottla.client.wire.backoff import MISSING
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.view import TopicView
from ottla.config.human import size_text
from ottla.env.clock import SystemClock
from ottla.errors import KafkaError
from ottla.ids import TopicPartition
from ottla.records.compression import Codec

PROGRESS_SECONDS = 1.0
PARTITIONS_SHOWN = 8
TOPICS_MAX = 10_000
"""Topics that are remembered; of more, each record's is asked for again."""
LAST_FLUSH_SECONDS = 1.0
"""How long a command that is told to end waits for what it has sent."""

ACKS = {"all": -1, "1": 1, "0": 0}


def register(commands: Commands) -> None:
    """Declare the command."""
    about = "Send each line of standard input as a record."
    parser = add_command(commands, "produce", about, produce)
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="may be missing if -f has %%t")
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
    parser.add_argument(
        "--null", "-Z", action="store_true", help="an empty value is null, a tombstone; so keys"
    )
    parser.add_argument(
        "--tombstone", action="store_true", help="send one: the key of -k without a value"
    )
    parser.add_argument(
        "--file",
        dest="files",
        action="append",
        default=[],
        metavar="FILE",
        help="a whole file is a record; repeatable",
    )
    parser.add_argument(
        "--template",
        metavar="TEXT",
        help="make records: %%i counts, %%T time in ms, %%r random number, %%u UUID; in -k, too",
    )
    parser.add_argument("-n", "--count", type=at_least_one, metavar="N", help="at most so many")
    parser.add_argument(
        "--rate", type=per_second, metavar="N", help="so many a second, at most; 1k, 0.5"
    )
    parser.add_argument("-p", "--partition", type=whole, metavar="N", help="to this one always")
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
        if options.topic is None and "%t" not in (options.format or ""):
            fix = "ottla produce TOPIC, or -f with %t"
            raise Failure("no topic is named", fix=fix, code=Exit.USAGE)
        is_progressing = sys.stderr.isatty() and not sys.stdin.isatty() and not options.quiet
        tally = _Tally(shows_progress=is_progressing)
        topics = _Topics(cluster, may_create=settings.may_create_topics)
        producer = Producer(cluster, settings, told=tally.told)
        cut, clock = cut_of(options), SystemClock()
        # Opened before a topic is made.
        with ExitStack() as stack:
            if cut is None:
                records = stack.enter_context(source(options, given, clock))
                lines = paced(records, options.count, options.rate, clock)
                sending = _send_lines(producer, topics, lines, given, tally)
            else:
                lists = stack.enter_context(_lines(options))
                sender = LineSender(producer, cluster, options.topic, clock, cut)
                sending = sender.send(lists, given, tally.sent)
            stack.callback(sending.close)  # It never began if the topic is wrong.
            if options.topic is not None:
                _check_partition(await topics.view(options.topic), options.partition)
            try:
                await _produce(producer, sending)
            finally:
                # Of a file that is not there no record is told.
                is_idle = not tally.has_sent and isinstance(sys.exception(), Failure)
                if not options.quiet and not is_idle:
                    tally.summary()
        if tally.error is not None:
            raise tally.error

    run(options, command)


@contextmanager
def _lines(options: Namespace) -> Iterator[AsyncIterator[list[bytes]]]:
    welcome(options)
    with input_stream(None) as number:
        yield part_lists(number, b"\n", LINE_MAX_BYTES)


async def _produce(producer: Producer, sending: Awaitable[None]) -> None:
    """Send all records, also those before a bad one. Raises Failure."""
    async with producer:
        failure: Failure | None = None
        try:
            await sending
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


class _Topics:
    """The topics that records go to; made if the broker makes topics."""

    def __init__(self, cluster: Cluster, *, may_create: bool) -> None:
        self._cluster = cluster
        self._may_create = may_create
        self._views: dict[str, TopicView] = {}

    async def view(self, name: str) -> TopicView:
        """Return a topic, and say if it is new."""
        if name in self._views:
            return self._views[name]
        view = await self._cluster.refresh([name])
        is_new = name not in view.topics or view.topics[name].error in MISSING
        view = await self._cluster.ensure([name], create=self._may_create, led=False)
        topic = view.topic(name)
        if is_new:
            count = len(topic.partitions)
            note(f"created topic {topic.name}, {count} partition{'' if count == 1 else 's'}")
        if len(self._views) < TOPICS_MAX:
            self._views[name] = topic
        return topic


def _check_partition(topic: TopicView, partition: int | None, where: str = "") -> None:
    if partition is not None and partition not in topic.partitions:
        why = f"{topic.name} has partitions 0 to {len(topic.partitions) - 1}"
        what = f"{where}{topic.name} has no partition {partition}"
        raise Failure(what, why=why, code=Exit.NOT_FOUND)


async def _send_lines(
    producer: Producer,
    topics: _Topics,
    lines: AsyncIterator[Line],
    given: Given,
    tally: "_Tally",
) -> None:
    """Send each record until they end or a delivery fails. Raises Failure for a bad line."""
    clock = SystemClock()
    async for line in lines:
        name = line.topic or given.topic or ""
        if line.topic is not None or line.partition is not None:
            try:
                _check_partition(await topics.view(name), line.partition, line.where)
            except KafkaError as error:
                failure = explain(error)
                failure.what = f"{line.where}{failure.what}"
                raise failure from error
        time = line.timestamp_ms
        timestamp_ms = clock.wall_ms() if time is None else time
        row = timestamp_ms, line.key, line.value, line.headers
        # Counted before: a signal may come while it is handed in.
        goes_on = tally.sent(1, len(line.key or b"") + len(line.value or b""))
        await producer.put(name, row, line.partition)
        if not goes_on:
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
        self._ranges: dict[TopicPartition, tuple[int, int]] = {}
        self._counts: Counter[TopicPartition] = Counter()

    def sent(self, count: int, size_bytes: int) -> bool:
        """Count records handed in; return whether more may follow: not behind a failure."""
        self._bytes += size_bytes
        self._sent_count += count
        if self._shows_progress and self._clock.monotonic() - self._shown > PROGRESS_SECONDS:
            self._shown = self._clock.monotonic()
            progress(f"{self._counts.total():,} records  {size_text(self._bytes)}")
        return self.error is None

    @property
    def has_sent(self) -> bool:
        """Whether any record was handed in."""
        return self._sent_count > 0

    def told(self, outcome: Outcome) -> None:
        """Count records written, or keep the first error."""
        partition, count, offset, error = outcome
        if error is not None:
            self._failed_count += count
            self.error = self.error or error
            return
        self._counts[partition] += count
        first, _ = self._ranges.get(partition, (offset, offset))
        self._ranges[partition] = (first, offset + count - 1 if offset >= 0 else -1)

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
        several = len({each.topic for each in self._counts}) > 1
        for partition, written in sorted(self._counts.items())[:PARTITIONS_SHOWN]:
            first, last = self._ranges[partition]
            name = f"{partition.topic} " if several else ""
            where = f"offsets {first:,}-{last:,}" if last >= 0 else "offsets unknown (acks=0)"
            note(f"  {name}partition {partition.partition}  {written:,}  {where}")
        if len(self._counts) > PARTITIONS_SHOWN:
            note(f"  and {len(self._counts) - PARTITIONS_SHOWN} more partitions")


def _headers(texts: list[str]) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        headers.append((name, os.fsencode(value) if equals else None))
    return tuple(headers)
