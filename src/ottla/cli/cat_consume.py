"""``ottla cat -C`` and ``-G``: records to standard output, as kcat prints them.

Owns where reading begins and ends, as kcat's options say: committed records only, and behind a
place that is not in the log what ``auto.offset.reset`` says, which is the end.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.cli import cat_format
from ottla.cli.cat_options import delimiter, partition_of, say
from ottla.cli.failure import Exit, Failure
from ottla.cli.run import run
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.fetcher import FetchedBatches, Fetcher
from ottla.client.wire.fetching import FetchLimits
from ottla.client.wire.offsets import EARLIEST, LATEST, NO_OFFSET
from ottla.client.wire.reading import read_records
from ottla.config.human import is_whole
from ottla.ids import TopicPartition

RESETS = {
    "earliest": EARLIEST,
    "beginning": EARLIEST,
    "smallest": EARLIEST,
    "latest": LATEST,
    "end": LATEST,
    "largest": LATEST,
}


class Span(NamedTuple):
    """What -o says: where to begin, and at which time (ms) to stop."""

    place: str | None = None
    """``beginning``, ``end``, ``stored`` or a number; None: not said."""
    from_ms: int | None = None
    to_ms: int | None = None


def read_span(texts: Sequence[str]) -> Span:
    """Return what all -o together say. Raises Failure."""
    span = Span()
    for text in texts:
        kind, at, number = text.partition("@")
        if at and kind in ("s", "e") and is_whole(number):
            time_ms = int(number)
            span = span._replace(from_ms=time_ms) if kind == "s" else span._replace(to_ms=time_ms)
        elif text in ("beginning", "end", "stored") or is_whole(text.removeprefix("-")):
            span = span._replace(place=text)
        else:
            why = "it is not beginning, end, stored, N, -N, s@MS or e@MS"
            raise Failure(f"-o {text!r}", why=why, code=Exit.USAGE)
    return span


class Wanted(NamedTuple):
    """What the options say about where to begin, and which records are read."""

    span: Span
    reset: int
    """EARLIEST or LATEST: where to begin when no other place is known or there."""
    limits: FetchLimits


def read_wanted(options: Namespace) -> Wanted:
    """Return what the options say. Raises Failure."""
    span = read_span(options.list_o)
    reset = RESETS.get(options.of_records.get("reset", "latest"))
    if reset is None:
        what = f"-X auto.offset.reset is not one of {', '.join(RESETS)}"
        raise Failure(what, code=Exit.USAGE)
    isolation = options.of_records.get("isolation", "read_committed")
    return Wanted(span, reset, FetchLimits(read_committed=isolation == "read_committed"))


def consume(options: Namespace) -> None:
    """Print records."""
    span, reset, limits = read_wanted(options)

    async def command(cluster: Cluster) -> None:
        show = show_of(options, cluster)
        topic = options.list_t[-1]
        positions = await _positions(cluster, options, topic, span, reset)
        ends = await cluster.list_offsets(
            dict.fromkeys(positions, LATEST), read_committed=limits.read_committed
        )
        last = {each: found.offset for each, found in ends.items()}
        await _read(cluster, positions, last, limits, Printer(options, show, span.to_ms))

    run(options, command)


async def _positions(
    cluster: Cluster, options: Namespace, topic: str, span: Span, reset: int
) -> dict[TopicPartition, int]:
    """Return the offset to begin at in each partition. Raises Failure, KafkaError."""
    view = (await cluster.ensure([topic])).topic(topic)
    only = partition_of(options)
    if only is not None and only not in view.partitions:
        why = f"{topic} has partitions 0 to {len(view.partitions) - 1}"
        raise Failure(f"{topic} has no partition {only}", why=why, code=Exit.NOT_FOUND)
    chosen = [TopicPartition(topic, each) for each in view.partitions if only in (None, each)]
    if span.place == "stored":
        raise Failure("-o stored needs -G GROUP", code=Exit.USAGE)
    return await places(cluster, chosen, span, reset)


async def places(
    cluster: Cluster, partitions: Sequence[TopicPartition], span: Span, reset: int
) -> dict[TopicPartition, int]:
    """Return the offsets at which ``span`` begins."""
    if not partitions:
        return {}
    starts = await _offsets(cluster, partitions, EARLIEST)
    ends = await _offsets(cluster, partitions, LATEST)
    if span.from_ms is not None:
        found = await _offsets(cluster, partitions, span.from_ms)
        return {
            each: ends[each] if offset == NO_OFFSET else offset for each, offset in found.items()
        }
    if span.place in (None, "beginning"):
        return starts
    if span.place == "end":
        return ends
    number = int(span.place or 0)
    if span.place.startswith("-"):
        return {each: max(starts[each], ends[each] + number) for each in partitions}
    outside = starts if reset == EARLIEST else ends
    return {
        each: number if starts[each] <= number <= ends[each] else outside[each]
        for each in partitions
    }


async def _offsets(
    cluster: Cluster, partitions: Sequence[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    found = await cluster.list_offsets(dict.fromkeys(partitions, timestamp))
    return {each: offset.offset for each, offset in found.items()}


def show_of(options: Namespace, cluster: Cluster) -> cat_format.Show:
    """Return what prints a record as the options say. Raises Failure."""
    between = delimiter("-D", "\\n" if options.value_D is None else options.value_D)
    key = None if options.value_K is None else delimiter("-K", options.value_K)
    format_ = None if options.value_f is None else os.fsencode(options.value_f)
    unpack_key, unpack_value = _unpackers(options.list_s)
    null = cat_format.NULL if options.flag_Z else b""
    look = cat_format.Look(null, unpack_key, unpack_value)
    try:
        if options.flag_J:
            behind = cat_format.first_literal(between if format_ is None else format_)

            def broker_of(partition: TopicPartition) -> int:
                return cluster.view.partition(*partition).leader

            return cat_format.compile_json(behind, broker_of, look)
        if format_ is None:
            format_ = cat_format.default_format(between, key)
        return cat_format.compile_format(format_, look)
    except ValueError as error:
        raise Failure(f"-f: {error}", code=Exit.USAGE) from error


def _unpackers(
    texts: Sequence[str],
) -> tuple[cat_format.Unpack | None, cat_format.Unpack | None]:
    """Return how -s has keys and values read. Raises Failure."""
    found: dict[str, cat_format.Unpack] = {}
    for text in texts:
        field, equals, how = text.partition("=")
        if not equals or field not in ("key", "value"):
            field, how = "", text
        if how == "avro":
            fix = "ottla consume -o jsonl shows the bytes; PySpark reads Avro (docs/spark.md)"
            raise Failure("-s avro: this command reads packed numbers", fix=fix, code=Exit.USAGE)
        try:
            unpack = cat_format.compile_unpack(how)
        except ValueError as error:
            raise Failure(f"-s {text!r}: {error}", code=Exit.USAGE) from error
        for each in (field,) if field else ("key", "value"):
            found[each] = unpack
    return found.get("key"), found.get("value")


class Printer:
    """Prints records up to -c, and each partition up to the time of ``-o e@``."""

    def __init__(self, options: Namespace, show: cat_format.Show, to_ms: int | None) -> None:
        self.printed = 0
        self.is_over = False
        """Whether a partition has reached its time."""
        self.next_offset = 0
        self._options = options
        self._show = show
        self._to_ms = to_ms
        self._out = sys.stdout.buffer

    def show_batches(self, batches: FetchedBatches) -> bool:
        """Print a partition's records; False when the count is reached."""
        self.is_over = False
        self.next_offset = batches.next_offset
        partition, write, show = batches.partition, self._out.write, self._show
        try:
            for record in read_records(batches.records, batches.offset, batches.aborted):
                if self._to_ms is not None and record.timestamp >= self._to_ms:
                    self.is_over, self.next_offset = True, record.offset
                    break
                try:
                    write(show(partition, record))
                except ValueError as error:
                    self._unreadable(partition, record.offset, error)
                if self._options.flag_u:
                    self._out.flush()
                self.printed += 1
                if self.printed == self._options.count:
                    self.next_offset = record.offset + 1
                    return False
        finally:
            self._out.flush()
        return True

    def say_end(
        self, what: str, partition: TopicPartition, offset: int, *, is_last: bool = False
    ) -> None:
        """Note that a partition is read."""
        where = f"{partition.topic} [{partition.partition}] at offset {offset}"
        say(self._options, f"{what} {where}{': exiting' if is_last else ''}")

    def ends_at_end(self) -> bool:
        """Whether reading ends where the partitions end."""
        return bool(self._options.flag_e)

    def _unreadable(self, partition: TopicPartition, offset: int, error: ValueError) -> None:
        what = f"{partition} offset {offset} does not fit -s"
        if not self._options.flag_E:
            raise Failure(what, why=str(error), fix="-E goes on behind it")
        say(self._options, f"{what}: {error}")


class _Reading:
    """Which partitions are read on, and what is said at their ends."""

    def __init__(
        self,
        printer: Printer,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        self.left = dict(positions)
        self._printer = printer
        self._ends = ends
        self._told: set[TopicPartition] = set()
        for partition, offset in positions.items():
            self.came_to(partition, offset)

    def came_to(self, partition: TopicPartition, offset: int) -> None:
        """Count a partition as read up to ``offset``: it is left at its end, or its time."""
        if self._printer.is_over:
            del self.left[partition]
            what = "Reached stop timestamp for topic"
            at = self._printer.next_offset
            self._printer.say_end(what, partition, at, is_last=not self.left)
            return
        if offset < self._ends[partition]:
            return
        if self._printer.ends_at_end():
            del self.left[partition]
        if partition not in self._told:
            self._told.add(partition)
            what = "Reached end of topic"
            self._printer.say_end(what, partition, offset, is_last=not self.left)


async def _read(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    limits: FetchLimits,
    printer: Printer,
) -> None:
    reading = _Reading(printer, positions, ends)
    if not reading.left:
        return
    async with Fetcher(cluster, limits) as fetcher:
        await fetcher.assign(reading.left)
        async for batches in fetcher.batches():
            partition = batches.partition
            if partition not in reading.left:
                continue
            if not printer.show_batches(batches):
                return
            reading.came_to(partition, batches.next_offset)
            if partition not in reading.left:
                await fetcher.stop_partition(partition)
            if not reading.left:
                return


async def committed_or_placed(
    cluster: Cluster, partitions: list[TopicPartition], span: Span, reset: int
) -> dict[TopicPartition, int]:
    """Return where a member begins that has read nothing yet: -o, else ``auto.offset.reset``."""
    if span.place in (None, "stored"):
        span = Span("beginning" if reset == EARLIEST else "end")
    return await places(cluster, partitions, span, reset)
