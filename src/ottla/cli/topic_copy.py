"""``ottla topic copy``: the records of a topic, exact to the byte, to a topic anywhere.

Owns what is checked before the first record: that the copy has the partitions, keeps the times, and
holds nothing of others. ``topic_copier`` copies.
"""

from argparse import Namespace
from collections.abc import Mapping
from typing import NamedTuple

from ottla.cli import output as out
from ottla.cli.failure import Exit, Failure
from ottla.cli.group import check_empty, existing_group
from ottla.cli.output import Row, counted, note, write_rows
from ottla.cli.run import run
from ottla.cli.second_cluster import second_cluster
from ottla.cli.start import checked_timestamp, start_offsets
from ottla.cli.topic_choice import existing_topic
from ottla.cli.topic_copier import (
    Copier,
    Ends,
    Lane,
    checkpoint_group,
    count_before,
    read_checkpoint,
)
from ottla.client.asyncio.admin import Admin
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.configs import Configs, Resource, ResourceType
from ottla.client.asyncio.groups import Groups
from ottla.client.wire.offsets import EARLIEST, LATEST
from ottla.client.wire.view import TopicView
from ottla.config.option import Source
from ottla.env.clock import SystemClock
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.records.compression import Codec

COLUMNS = ("partition", "copied", "from_offset", "to_offset", "left")
TIMES = "message.timestamp.type"
BATCH_BYTES = 256 << 10
BATCH_OVERHEAD_BYTES = 512


def copy(options: Namespace) -> None:
    """Copy a topic's records."""

    async def command(cluster: Cluster) -> None:
        async with second_cluster(options, cluster) as other:
            await _copy(options, cluster, other)

    run(options, command)


async def _copy(options: Namespace, cluster: Cluster, other: Cluster) -> None:
    source, target = options.first, options.second or options.first
    if options.place is not None:
        checked_timestamp(options.place, SystemClock())
    view = await existing_topic(cluster, source)
    cluster_id = cluster.view.cluster_id
    await other.refresh([])
    if other.view.cluster_id == cluster_id and source == target:
        fix = "name another topic, or --other-bootstrap HOST:PORT"
        raise Failure("a topic cannot be copied to itself", fix=fix, code=Exit.USAGE)
    batch_bytes = await _prepare(cluster, view, other, target, dry_run=options.dry_run)
    group = checkpoint_group(cluster_id, source)
    await check_empty(Groups(other), group)
    lanes = await _lanes(options, cluster, view, other, target)
    if lanes is None:
        note(f"nothing was copied: {target} would be made (--dry-run)")
        return
    wanted = await _offsets_of_groups(options, cluster, source, other)
    copier = Copier(
        Ends(cluster, view.topic_id.hex(), other, group),
        lanes,
        codec=Codec[options.codec.upper()],
        batch_bytes=batch_bytes,
    )
    if not options.dry_run:
        try:
            await copier.run()
        finally:
            done = sum(lane.copied for lane in lanes)
            note(f"copied {done:,} record{'' if done == 1 else 's'} to {target}")
        for name, offsets in wanted.items():
            await _translate(cluster, other, name, offsets, lanes)
    rows: list[Row] = [
        {
            "partition": lane.source.partition,
            "copied": lane.copied,
            "from_offset": lane.source_next,
            "to_offset": lane.target_next,
            "left": lane.source_end - lane.source_next,
        }
        for lane in lanes
    ]
    write_rows(rows, COLUMNS, out.chosen(options.output), header=not options.no_header)
    if options.dry_run:
        note("nothing was copied (--dry-run)")


async def _prepare(
    cluster: Cluster, view: TopicView, other: Cluster, target: str, *, dry_run: bool
) -> int:
    """Make the target, or check that it can hold the copy; return the bytes a batch may have."""
    admin = Admin(other)
    try:
        found = await admin.describe_topic(target)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        entries = await Configs(cluster).describe(Resource(ResourceType.TOPIC, view.name))
        configs = {
            each.key: each.value
            for each in entries
            if each.source == Source.TOPIC and each.value is not None and each.key != TIMES
        }
        count = len(view.partitions)
        configs[TIMES] = "CreateTime"
        await admin.create_topic(
            target, partition_count=count, configs=configs, validate_only=dry_run
        )
        if dry_run:
            return BATCH_BYTES
        note(f"created topic {target}, {count} partition{'' if count == 1 else 's'}")
        await other.ensure([target], create=True)  # It is there, and seen a moment later.
    else:
        _check_partitions(view, found)
    entries = await Configs(other).describe(Resource(ResourceType.TOPIC, target))
    values = {each.key: each.value or "" for each in entries}
    if values.get(TIMES, "CreateTime") != "CreateTime":
        raise Failure(
            f"{target} would give the records new times",
            why=f"its {TIMES} is {values[TIMES]}",
            fix=f"ottla config set topic/{target} {TIMES}=CreateTime",
        )
    limit = values.get("max.message.bytes", "")
    return min(BATCH_BYTES, max(int(limit) - BATCH_OVERHEAD_BYTES, 1) if limit else BATCH_BYTES)


def _check_partitions(view: TopicView, found: TopicView) -> None:
    missing = [each for each in view.partitions if each not in found.partitions]
    if missing:
        has, needs = len(found.partitions), len(view.partitions)
        raise Failure(
            f"{found.name} has too few partitions: {has} for the {needs} of {view.name}",
            why="records of two partitions would have to share one, in an order of chance",
            fix=f"ottla topic add-partitions {found.name} {needs - has}, or copy to a new topic",
        )


class _Bounds(NamedTuple):
    """Where the logs of a source and its target begin and end; ``place`` is what was asked for."""

    start: int
    place: int
    end: int
    target_start: int
    target_end: int


async def _lanes(
    options: Namespace, cluster: Cluster, view: TopicView, other: Cluster, target: str
) -> list[Lane] | None:
    """Return where each partition goes on; None: in a dry run there is no target yet.

    Raises Failure if the target holds what is not of this copy.
    """
    there = (await other.refresh([target])).topics.get(target)
    if options.dry_run and (there is None or there.error is not ErrorCode.NONE):
        return None
    targets = {
        TopicPartition(view.name, each): TopicPartition(target, each) for each in view.partitions
    }
    bounds = await _bounds(options.place, cluster, other, targets)
    group = checkpoint_group(cluster.view.cluster_id, view.name)
    known = await Groups(other).committed(group, targets.values())
    lanes: list[Lane] = []
    for source, to in targets.items():
        checkpoint = None
        if to in known:
            checkpoint = read_checkpoint(known[to].metadata, view.topic_id.hex())
        if checkpoint is None:
            lane = _new_lane(source, to, bounds[source], may_append=options.append)
        else:
            if options.place is not None:
                why = "what is between would be missing, or be there twice"
                fix = "leave --from out; or copy to a new topic"
                raise Failure("the copy was begun already", why=why, fix=fix, code=Exit.USAGE)
            lane = Lane(source, to, *checkpoint)
            _check_known(lane, bounds[source])
        lane.source_end = max(bounds[source].end, lane.source_next)
        lane.target_end = bounds[source].target_end
        lanes.append(lane)
    if any(lane.target_next < lane.target_end for lane in lanes):  # It was interrupted.
        is_compacted = await _is_compacted(cluster, view.name)
        for lane in lanes:
            lane.is_compacted = is_compacted
    return lanes


async def _is_compacted(cluster: Cluster, topic: str) -> bool:
    entries = await Configs(cluster).describe(Resource(ResourceType.TOPIC, topic))
    policies = [each.value or "" for each in entries if each.key == "cleanup.policy"]
    return any("compact" in each for each in policies)


async def _bounds(
    place: str | None,
    cluster: Cluster,
    other: Cluster,
    targets: Mapping[TopicPartition, TopicPartition],
) -> dict[TopicPartition, _Bounds]:
    sources = list(targets)
    starts = await _offsets(cluster, sources, EARLIEST)
    ends = await _offsets(cluster, sources, LATEST, read_committed=True)
    held = sum((await _offsets(cluster, sources, LATEST)).values()) - sum(ends.values())
    if held > 0:
        note(
            f"behind open transactions: {counted(held, 'offset')}; copy again when they have ended"
        )
    places = starts
    if place is not None:
        places = await start_offsets(cluster, sources, place, SystemClock())
    target_starts = await _offsets(other, list(targets.values()), EARLIEST)
    target_ends = await _offsets(other, list(targets.values()), LATEST)
    return {
        source: _Bounds(
            starts[source], places[source], ends[source], target_starts[to], target_ends[to]
        )
        for source, to in targets.items()
    }


def _new_lane(source: TopicPartition, to: TopicPartition, at: _Bounds, *, may_append: bool) -> Lane:
    records = at.target_end - at.target_start
    if records and not may_append:
        raise Failure(
            f"{to} holds {counted(records, 'offset')} not of this copy",
            fix="copy to a new topic, or --append",
        )
    return Lane.new(source, to, min(at.place, at.end), at.target_end)


def _check_known(lane: Lane, at: _Bounds) -> None:
    """Let a lane go on behind what the source has deleted. Raises Failure: so has the target."""
    if at.target_end < lane.target_next:
        why = f"it ends at {at.target_end}; the copy had come to {lane.target_next}"
        fix = "copy to a new topic"
        raise Failure(f"{lane.target} has lost records of the copy", why=why, fix=fix)
    if at.start > lane.source_next:
        note(f"{lane.source}: offsets {lane.source_next} to {at.start - 1} were deleted before")
        lane.deleted = at.start - lane.source_next
        lane.source_next = at.start


async def _offsets_of_groups(
    options: Namespace, cluster: Cluster, topic: str, other: Cluster
) -> dict[str, dict[int, int]]:
    """Return what the groups have committed, by partition. Raises Failure if they cannot be set."""
    found: dict[str, dict[int, int]] = {}
    for name in options.groups:
        groups = Groups(cluster)
        await existing_group(groups, name)
        await check_empty(Groups(other), name)
        committed = await groups.committed(name)
        found[name] = {
            each.partition: one.offset for each, one in committed.items() if each.topic == topic
        }
        if not found[name]:
            raise Failure(f"{name} has committed no offset of {topic}", code=Exit.NOT_FOUND)
    return found


async def _translate(
    cluster: Cluster, other: Cluster, name: str, offsets: Mapping[int, int], lanes: list[Lane]
) -> None:
    """Commit for the copy what a group has committed: before the same record."""
    translated: dict[TopicPartition, int] = {}
    for lane in lanes:
        offset = offsets.get(lane.source.partition)
        if offset is not None:
            before = await count_before(cluster, lane, offset)
            translated[lane.target] = lane.target_first + before
    await Groups(other).commit(name, translated)
    for each, offset in sorted(translated.items()):
        note(f"{name}: {each} at {offset}")


async def _offsets(
    cluster: Cluster,
    partitions: list[TopicPartition],
    place: int,
    *,
    read_committed: bool = False,
) -> dict[TopicPartition, int]:
    found = await cluster.list_offsets(
        dict.fromkeys(partitions, place), read_committed=read_committed
    )
    return {each: offset.offset for each, offset in found.items()}
