"""``ottla topic diff``: whether two topics hold the same records, partition by partition."""

from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from ottla.cli import output as out
from ottla.cli.failure import Failure
from ottla.cli.output import Row, note, write_rows
from ottla.cli.record_stream import Digest, committed_records, is_same
from ottla.cli.run import run
from ottla.cli.second_cluster import second_cluster
from ottla.cli.topic_choice import existing_topic
from ottla.client.asyncio.cluster import Cluster
from ottla.client.wire.offsets import EARLIEST, LATEST
from ottla.ids import TopicPartition
from ottla.records.record import Record

COLUMNS = ("partition", "first_records", "second_records", "first_digest", "second_digest", "note")


class Side(NamedTuple):
    """One of the two partitions, in the bounds that are compared."""

    cluster: Cluster
    partition: TopicPartition
    start: int
    end: int


def diff(options: Namespace) -> None:
    """Compare two topics. Exits with 1 if they differ."""

    async def command(cluster: Cluster) -> None:
        async with second_cluster(options, cluster) as other:
            firsts = await _sides(cluster, options.first)
            seconds = await _sides(other, options.second or options.first)
            rows = [
                await compare(index, firsts.get(index), seconds.get(index))
                for index in sorted({*firsts, *seconds})
            ]
        write_rows(rows, COLUMNS, out.chosen(options.output), header=not options.no_header)
        different = sum(bool(row["note"]) for row in rows)
        if different:
            raise Failure(f"{different} of {len(rows)} partitions differ")
        note("no difference")

    run(options, command)


async def compare(index: int, first: Side | None, second: Side | None) -> Row:
    """Return the row about one partition; its note is empty if both hold the same."""
    left, right = Digest(), Digest()
    found = "" if first is not None and second is not None else "only in one"
    async with (
        aclosing(_records(first)) as ones,
        aclosing(_records(second)) as others,
    ):
        while True:
            one, other = await anext(ones, None), await anext(others, None)
            if one is not None:
                left.add(one)
            if other is not None:
                right.add(other)
            if one is None and other is None:
                break
            if found:
                continue
            if one is None or other is None:
                longer = "the first" if one is not None else "the second"
                at = one.offset if one is not None else other.offset if other else 0
                found = f"{longer} has more, from offset {at} on"
            elif not is_same(one, other):
                found = f"differ at offsets {one.offset} and {other.offset}"
    return {
        "partition": index,
        "first_records": left.count if first is not None else None,
        "second_records": right.count if second is not None else None,
        "first_digest": left.text() if first is not None else None,
        "second_digest": right.text() if second is not None else None,
        "note": found,
    }


async def _records(side: Side | None) -> AsyncGenerator[Record, None]:
    if side is None:
        return
    async with aclosing(committed_records(*side)) as records:
        async for each in records:
            yield each


async def _sides(cluster: Cluster, topic: str) -> dict[int, Side]:
    view = await existing_topic(cluster, topic)
    partitions = [TopicPartition(topic, each) for each in view.partitions]
    starts = await cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await cluster.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    return {
        each.partition: Side(cluster, each, starts[each].offset, ends[each].offset)
        for each in partitions
    }
