"""Lines of standard input as records of one topic, as many at a time as have arrived.

The way of ``ottla produce`` for lines that are values, or a key and a value: no object and no
promise for each. Lines that say more (partitions, headers, JSON) go one by one, see
``produce_sources``. Owns which partition takes each.
"""

from argparse import Namespace
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from ottla.cli.failure import Exit, Failure
from ottla.cli.produce_sources import Given
from ottla.cli.record_format import key_separator
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.producer import Producer
from ottla.client.wire.partitioner import partition_of_key
from ottla.env.clock import Clock
from ottla.ids import TopicPartition
from ottla.records.rows import PlainRow, keyed_rows

_Found = tuple[int, list[PlainRow], int]
"""A partition, records for it, and the bytes of their keys and values."""


class Cut(NamedTuple):
    """What a line is. ``separator``: behind its key; None: it is a value."""

    separator: bytes | None
    empty_is_null: bool


def cut_of(options: Namespace) -> Cut | None:
    """Return what lines are; None when they are to go one by one."""
    others = (options.tombstone, options.files, options.jsonl, options.count, options.rate)
    if any(others) or options.template is not None or options.topic is None:
        return None
    if options.format is None:
        return Cut(None, options.null)
    separator = key_separator(options.format)
    return None if separator is None else Cut(separator, options.null)


class LineSender:
    """Hands lines to a producer. The topic is known."""

    def __init__(
        self, producer: Producer, cluster: Cluster, topic: str, clock: Clock, cut: Cut
    ) -> None:
        self._producer = producer
        self._cluster = cluster
        self._topic = topic
        self._clock = clock
        self._cut = cut
        self._number = 0
        """How many lines there were."""

    async def send(
        self,
        lists: AsyncIterator[list[bytes]],
        given: Given,
        sent: Callable[[int, int], bool],
    ) -> None:
        """Send lines until they end, or ``sent`` is told of some (how many, bytes) and says False.

        Raises Failure for a bad line, when those before it are handed in.
        """
        header_bytes = sum(len(name) + len(data or b"") for name, data in given.headers)
        async for lines in lists:
            taken = len(lines)
            if self._cut.separator is None:
                found = self._values(lines, given)
            else:
                found, taken = self._keyed(lines, self._cut.separator, given)
            # Counted before: a signal may come while they are handed in.
            goes_on = sent(taken, sum(size for _, _, size in found))
            for partition, rows, size in found:
                target = TopicPartition(self._topic, partition)
                await self._producer.put_all(target, rows, size + header_bytes * len(rows))
            self._number += taken
            if taken < len(lines):
                quoted = repr((self._cut.separator or b"").decode("utf-8", "backslashreplace"))
                what = f"line {self._number + 1}: the line has no {quoted}"
                raise Failure(what, code=Exit.USAGE)
            if not goes_on:
                return

    def _values(self, lines: list[bytes], given: Given) -> list[_Found]:
        """Return lines as values."""
        now, headers, key = self._clock.wall_ms(), given.headers, given.key
        values: list[bytes | None] = [each.removesuffix(b"\r") for each in lines]
        size = sum(map(len, lines)) + len(key or b"") * len(lines)
        if self._cut.empty_is_null:
            values = [each or None for each in values]
        rows = [(now, key, each, headers) for each in values]
        return [(self._without_own_key(given), rows, size)]

    def _keyed(
        self, lines: list[bytes], separator: bytes, given: Given
    ) -> tuple[list[_Found], int]:
        """Return lines as keys and values, up to the first that is none, and how many those are."""
        count, now, empty = self._partition_count(), self._clock.wall_ms(), None
        if self._cut.empty_is_null:
            empty = given.key, self._without_own_key(given)
        if given.partition is not None:
            count, empty = 1, None if empty is None else (given.key, 0)
        found, sizes, taken = keyed_rows(lines, separator, now, given.headers, count, empty)
        targets = range(count) if given.partition is None else [given.partition]
        return [each for each in zip(targets, found, sizes, strict=True) if each[1]], taken

    def _without_own_key(self, given: Given) -> int:
        """Return the partition of lines without a key of their own."""
        if given.partition is not None:
            return given.partition
        if given.key is not None:
            return partition_of_key(given.key, self._partition_count())
        return self._producer.partition_without_key(self._topic)

    def _partition_count(self) -> int:
        return len(self._cluster.view.topic(self._topic).partitions)
