"""``ottla group reset`` and ``offsets delete``: what a group without members has committed."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from ottla.cli import output as out
from ottla.cli.consent import ask
from ottla.cli.failure import Exit, Failure
from ottla.cli.group import NO_TOPIC, check_empty, existing_group, partition_ends
from ottla.cli.output import Row, answer, counted, note, write_rows
from ottla.cli.partition_choice import chosen_partitions
from ottla.cli.run import run
from ottla.cli.start import start_offsets
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.groups import Groups
from ottla.client.wire.coordination import Committed
from ottla.client.wire.offsets import EARLIEST, LATEST
from ottla.env.clock import SystemClock
from ottla.ids import INT32_MAX, INT64_MAX, TopicPartition


def reset(options: Namespace) -> None:
    """Commit other offsets for a group."""

    async def command(cluster: Cluster) -> None:
        if sum(each is not None for each in (options.place, options.shift, options.file)) != 1:
            fix = "one of --to PLACE, --shift N, --from-file FILE"
            raise Failure("reset to what?", fix=fix, code=Exit.USAGE)
        groups = Groups(cluster)
        name: str = options.group
        await check_empty(groups, name)
        committed = await groups.committed(name)
        wanted = await _wanted(options, cluster, committed)
        rows: list[Row] = [
            {
                "topic": each.topic,
                "partition": each.partition,
                "old": committed[each].offset if each in committed else None,
                "new": wanted[each],
            }
            for each in sorted(wanted)
        ]
        write_rows(
            rows,
            ("topic", "partition", "old", "new"),
            out.chosen(options.output),
            header=not options.no_header,
        )
        if options.dry_run:
            note("nothing was changed (--dry-run)")
            return
        if not options.yes:
            ask(f"reset {counted(len(rows), 'offset')} of {name}? [y/N] ")
        await groups.commit(name, wanted)
        kept = await groups.committed(name, wanted)
        for each, offset in wanted.items():
            if each not in kept or kept[each].offset != offset:
                raise Failure(f"{each} is not at {offset}: somebody else committed meanwhile")
        note(f"reset {name}")

    run(options, command)


async def _wanted(
    options: Namespace, cluster: Cluster, committed: Mapping[TopicPartition, Committed]
) -> dict[TopicPartition, int]:
    """Return the offsets to commit. Raises Failure."""
    if options.file is not None:
        if options.topics:
            raise Failure("--from-file says which partitions; not --topic", code=Exit.USAGE)
        wanted = read_offsets(Path(options.file), options.group)
        for topic in {each.topic for each in wanted}:
            numbers = ",".join(str(each.partition) for each in wanted if each.topic == topic)
            await chosen_partitions(cluster, f"{topic}:{numbers}")
        await _check_inside(cluster, wanted)
        return wanted
    partitions = await _chosen_partitions(cluster, options.topics, committed)
    if options.shift is not None:
        partitions = [each for each in partitions if each in committed]
    if not partitions:
        why = f"{options.group} has committed no offset"
        raise Failure("nothing to reset", why=why, fix="name the topic: --topic TOPIC")
    if options.shift is not None:
        starts, ends = await _bounds(cluster, partitions)
        return {
            each: min(max(committed[each].offset + options.shift, starts[each]), ends[each])
            for each in partitions
        }
    return await start_offsets(cluster, partitions, options.place, SystemClock())


async def _check_inside(cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> None:
    starts, ends = await _bounds(cluster, list(wanted))
    for each, offset in wanted.items():
        if not starts[each] <= offset <= ends[each]:
            why = f"it has offsets from {starts[each]} to {ends[each]}"
            raise Failure(f"{each} has no offset {offset}", why=why, code=Exit.USAGE)


async def _bounds(
    cluster: Cluster, partitions: list[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    starts = await cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await cluster.list_offsets(dict.fromkeys(partitions, LATEST))
    return (
        {each: found.offset for each, found in starts.items()},
        {each: found.offset for each, found in ends.items()},
    )


def read_offsets(path: Path, group: str) -> dict[TopicPartition, int]:
    """Return the offsets that a file tells: ``TOPIC,PARTITION,OFFSET``, as Kafka's tools have it.

    Lines of four parts begin with a group; those of another one are left out. A head of names is
    left out, too; tabs are as good as commas. Raises Failure.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise Failure(f"cannot read {path}", why=why, code=Exit.USAGE) from error
    wanted: dict[TopicPartition, int] = {}
    for number, line in enumerate(lines, 1):
        parts = [each.strip().strip('"') for each in line.replace("\t", ",").split(",")]
        if not line.strip() or (number == 1 and "topic" in parts and "partition" in parts):
            continue
        if len(parts) == 4 and parts.pop(0) != group:
            continue
        is_right = len(parts) == 3 and all(each.isascii() and each.isdigit() for each in parts[1:])
        if not is_right or int(parts[1]) > INT32_MAX or int(parts[2]) > INT64_MAX:
            what = f"{path}, line {number}: expected TOPIC,PARTITION,OFFSET"
            raise Failure(what, code=Exit.USAGE)
        wanted[TopicPartition(parts[0], int(parts[1]))] = int(parts[2])
    if not wanted:
        raise Failure(f"{path} holds no offset of {group}", code=Exit.USAGE)
    return wanted


async def _chosen_partitions(
    cluster: Cluster, topics: list[str], committed: Mapping[TopicPartition, Committed]
) -> list[TopicPartition]:
    if not topics:
        known = await partition_ends(cluster, committed)
        return [each for each in committed if known[each] != NO_TOPIC]
    return [each for text in topics for each in await chosen_partitions(cluster, text)]


def delete_offsets(options: Namespace) -> None:
    """Delete committed offsets."""

    async def command(cluster: Cluster) -> None:
        groups, name = Groups(cluster), options.group
        await existing_group(groups, name)
        committed = await groups.committed(name)
        doomed = [each for text in options.topics for each in _matching(committed, text)]
        for each in doomed:
            note(f"delete {name}'s offset of {each}: {committed[each].offset}")
        if options.dry_run:
            return
        if not options.yes:
            ask(f"delete {counted(len(doomed), 'offset')} of {name}? [y/N] ")
        await groups.delete_offsets(name, doomed)
        for each in doomed:
            answer(f"deleted {each}")

    run(options, command)


def _matching(committed: Mapping[TopicPartition, Committed], text: str) -> list[TopicPartition]:
    """Return the committed partitions that ``TOPIC[:N,N]`` names; the topic may be gone."""
    topic, colon, numbers = text.partition(":")
    found = sorted(each for each in committed if each.topic == topic)
    if colon:
        wanted = numbers.split(",")
        if not all(each.isascii() and each.isdigit() for each in wanted):
            raise Failure(f"{text!r} is not TOPIC or TOPIC:0,1", code=Exit.USAGE)
        found = [each for each in found if str(each.partition) in wanted]
        if len(found) != len(set(wanted)):
            raise Failure(f"no offset is committed for all of {text}", code=Exit.NOT_FOUND)
    if not found:
        raise Failure(f"no offset is committed for {text}", code=Exit.NOT_FOUND)
    return found
