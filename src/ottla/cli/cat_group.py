"""``ottla cat -G``: records as a member of a group. Topics may be patterns, which begin with ^."""

import re
from argparse import Namespace

from ottla.cli.cat_consume import Printer, committed_or_placed, read_wanted, show_of
from ottla.cli.consume_group import GroupReader
from ottla.cli.failure import Exit, Failure
from ottla.cli.run import run
from ottla.client.asyncio.admin import Admin
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.fetcher import FetchedBatches
from ottla.client.asyncio.member import GroupMember
from ottla.ids import TopicPartition


def consume_as_member(options: Namespace) -> None:
    """Print what the group has not read yet."""
    span, reset, limits = read_wanted(options)
    if span.from_ms is not None or span.to_ms is not None:
        raise Failure("-o s@ and e@ have no place with -G", code=Exit.USAGE)

    async def command(cluster: Cluster) -> None:
        printer = Printer(options, show_of(options, cluster), None)
        topics = await _topics(cluster, options.files or options.list_t)

        async def places(partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
            return await committed_or_placed(cluster, partitions, span, reset)

        member = GroupMember(cluster, options.value_G, frozenset(topics))
        overrides = span.place not in (None, "stored")
        reader = GroupReader(cluster, member, limits, places=places, ignores_committed=overrides)

        def take(batches: FetchedBatches, _: int | None) -> bool:
            goes_on = printer.show_batches(batches)
            reader.note(batches.partition, printer.next_offset)
            return goes_on

        await reader.run(take, endless=not printer.ends_at_end())

    run(options, command)


async def _topics(cluster: Cluster, given: list[str]) -> list[str]:
    """Return the topics that names and patterns stand for. Raises Failure."""
    if not given:
        raise Failure("-G GROUP needs topics", fix="ottla cat -G GROUP TOPIC", code=Exit.USAGE)
    patterns = [each for each in given if each.startswith("^")]
    names = [each for each in given if not each.startswith("^")]
    if not patterns:
        return names
    try:
        compiled = [re.compile(each) for each in patterns]
    except re.error as error:
        raise Failure(f"{error.pattern!r} is no pattern: {error}", code=Exit.USAGE) from error
    there = [each.name for each in await Admin(cluster).list_topics() if not each.is_internal]
    found = [name for name in there if any(each.search(name) for each in compiled)]
    if not names and not found:
        raise Failure(f"no topic fits {' or '.join(patterns)}", code=Exit.NOT_FOUND)
    return sorted({*names, *found})
