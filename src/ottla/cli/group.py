"""``ottla group``: list, describe, watch, reset and delete consumer groups.

Lag is a number and never negative. Where it is missing, a note says why: nothing was ever
committed, or the end of the partition is not known.
"""

import sys
from argparse import Namespace
from collections.abc import Iterable

from ottla.cli import output as out
from ottla.cli.arguments import (
    Commands,
    add_client_options,
    add_command,
    add_group,
    add_output_option,
    at_least_one,
    later,
    one_of,
    whole,
)
from ottla.cli.consent import add_consent_options, ask
from ottla.cli.failure import Exit, Failure
from ottla.cli.near import did_you_mean
from ottla.cli.output import (
    FORMATS,
    Format,
    Row,
    Value,
    answer,
    counted,
    fits,
    note,
    write_object,
    write_rows,
)
from ottla.cli.run import run
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.groups import Groups
from ottla.client.wire.coordination import Committed
from ottla.client.wire.group_description import GroupDescription, MemberDescription
from ottla.client.wire.offsets import LATEST
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition

NEVER_COMMITTED = "never committed"
NO_TOPIC = "the topic is gone"
NO_LEADER = "no leader: the end is not known"
BEYOND_END = "committed beyond the end"
_OFFSETS = "ottla.cli.group_offsets"
STATES = (
    *("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"),
    *("NotReady", "Dead"),
)
TYPES = ("classic", "consumer", "share", "streams")
"""Kafka's words, of all kinds of groups."""
COLUMNS: tuple[str, ...] = (
    *("topic", "partition", "committed", "end", "lag", "member", "host", "note"),
)


def register(commands: Commands) -> None:
    """Declare the commands."""
    about = "List, describe, watch, reset and delete consumer groups."
    verbs = add_group(commands, "group", about)
    parser = add_command(verbs, "list", "List groups.", list_groups)
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        type=one_of(*STATES),
        metavar="STATE",
        help="only Stable, Empty ...; may be given twice",
    )
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        type=one_of(*TYPES),
        metavar="TYPE",
        help="only classic or consumer groups",
    )
    add_output_option(parser, *FORMATS)
    add_client_options(parser)

    about = "Describe a group: members, committed offsets, lag."
    parser = add_command(verbs, "describe", about, describe)
    parser.add_argument("group", metavar="GROUP", nargs="?")
    parser.add_argument(
        "--all", "--all-groups", action="store_true", help="every group, a row for each partition"
    )
    add_output_option(parser, *FORMATS)
    add_client_options(parser)

    _declare_reset(verbs)
    _declare_offsets(verbs)
    _declare_watch(verbs)

    parser = add_command(verbs, "delete", "Delete groups and their offsets.", delete)
    parser.add_argument("groups", metavar="GROUP", nargs="+")
    parser.add_argument("--if-exists", action="store_true", help="a missing group is no error")
    add_consent_options(parser)
    add_client_options(parser)


def _declare_reset(verbs: Commands) -> None:
    parser = add_command(
        verbs, "reset", "Commit other offsets for a group.", later(_OFFSETS, "reset")
    )
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument(
        "--to",
        dest="place",
        metavar="PLACE",
        help="earliest, latest, an offset, -10, -5m or a time",
    )
    parser.add_argument(
        "--shift", type=whole, metavar="N", help="so many on, or back (-N), inside the log"
    )
    parser.add_argument(
        "--from-file", dest="file", metavar="FILE", help="lines of TOPIC,PARTITION,OFFSET"
    )
    parser.add_argument(
        "--topic",
        dest="topics",
        action="append",
        default=[],
        metavar="TOPIC[:N,N]",
        help="these only; else every partition with a committed offset",
    )
    add_output_option(parser, *FORMATS)
    add_consent_options(parser)
    add_client_options(parser)


def _declare_offsets(verbs: Commands) -> None:
    below = add_group(verbs, "offsets", "Take committed offsets away.")
    about = "Delete a group's offsets of topics that its members do not read."
    parser = add_command(below, "delete", about, later(_OFFSETS, "delete_offsets"))
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("topics", metavar="TOPIC[:N,N]", nargs="+")
    add_consent_options(parser)
    add_client_options(parser)


def _declare_watch(verbs: Commands) -> None:
    about = "Watch a group: its lag, how fast it reads, and when it will have read everything."
    parser = add_command(verbs, "watch", about, later("ottla.cli.group_watch", "watch"))
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("--every", default="2s", metavar="TIME", help="between two looks; 2s")
    parser.add_argument("-n", "--count", type=at_least_one, metavar="N", help="stop after N looks")
    parser.add_argument(
        "--until-empty", action="store_true", help="stop when it has read everything"
    )
    add_output_option(parser, *FORMATS)
    add_client_options(parser)


def list_groups(options: Namespace) -> None:
    """List groups."""

    async def command(cluster: Cluster) -> None:
        found = await Groups(cluster).list_groups(states=options.state, types=options.type)
        if not found:
            note("no such groups: ottla consume TOPIC --group NAME makes one")
        rows: list[Row] = [
            {
                "group": one.group,
                "type": one.type or None,
                "state": one.state or None,
                "protocol": one.protocol_type or None,
            }
            for one in found
        ]
        write_rows(
            rows,
            ("group", "type", "state", "protocol"),
            out.chosen(options.output),
            header=not options.no_header,
        )

    run(options, command)


def describe(options: Namespace) -> None:
    """Describe a group."""

    async def command(cluster: Cluster) -> None:
        if options.all == (options.group is not None):
            raise Failure("which group?", fix="name one, or --all", code=Exit.USAGE)
        groups, format_ = Groups(cluster), out.chosen(options.output)
        if options.group is not None:
            group, rows = await described(cluster, await existing_group(groups, options.group))
            _write_description(group, rows, format_, header=not options.no_header)
            return
        found = []
        for listed in await groups.list_groups():
            try:
                found.append(await described(cluster, await groups.describe(listed.group)))
            except KafkaError as error:  # It has gone meanwhile, or is of another kind.
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
        _write_all(found, format_, header=not options.no_header)

    run(options, command)


def _write_all(
    found: list[tuple[GroupDescription, list[Row]]], format_: Format, *, header: bool
) -> None:
    """Print several groups: on a terminal one below the other, for scripts as rows."""
    if format_ is Format.TABLE and sys.stdout.isatty():
        for number, (group, rows) in enumerate(found):
            if number:
                note("")
            _write_description(group, rows, format_, header=header)
    elif format_ in (Format.TABLE, Format.TSV):
        every: list[Row] = [{"group": group.group, **row} for group, rows in found for row in rows]
        write_rows(every, ("group", *COLUMNS), format_, header=header)
    else:
        write_rows([_description(group, rows) for group, rows in found], (), format_)
    if not found:
        note("no groups yet: ottla consume TOPIC --group NAME makes one")


async def described(
    cluster: Cluster, group: GroupDescription
) -> tuple[GroupDescription, list[Row]]:
    """Return the group with a row for each partition that it reads or has committed."""
    committed = await Groups(cluster).committed(group.group)
    owners = {each: member for member in group.members for each in member.partitions}
    ends = await partition_ends(cluster, {*committed, *owners})
    return group, [
        _offset_row(each, committed.get(each), ends[each], owners.get(each))
        for each in sorted({*committed, *owners})
    ]


def _write_description(
    group: GroupDescription, rows: list[Row], format_: Format, *, header: bool
) -> None:
    members = counted(len(group.members), "member")
    lags = [row["lag"] for row in rows if isinstance(row["lag"], int)]
    if format_ in (Format.TABLE, Format.TSV):
        how = f"  {group.assignor}" if group.assignor else ""
        lag = f"  lag {sum(lags):,}" if lags else ""
        note(f"{group.group}  {group.state}  {group.type}{how}  {members}{lag}")
        for one in group.members:
            if not one.partitions:
                note(f"  {one.member_id} at {one.host} has no partition")
        if not rows:
            note(
                f"  no offset was committed: ottla group reset {group.group} --topic TOPIC --to .."
            )
        columns = COLUMNS
        if format_ is Format.TABLE and group.members and not fits(rows, COLUMNS):
            columns = tuple(each for each in COLUMNS if each not in ("member", "host"))
            for one in group.members:
                if one.partitions:
                    places = ", ".join(map(str, one.partitions))
                    note(f"  {one.member_id} at {one.host} has {places}", indent=" " * 4)
        write_rows(rows, columns, format_, header=header)
        return
    write_object(_description(group, rows), format_)


def _description(group: GroupDescription, rows: list[Row]) -> Row:
    lags = [row["lag"] for row in rows if isinstance(row["lag"], int)]
    return {
        "group": group.group,
        "type": group.type,
        "state": group.state,
        "protocol": group.protocol_type,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator,
        "lag": sum(lags) if lags else None,
        "members": [
            {
                "member": one.member_id,
                "instance": one.instance_id,
                "client_id": one.client_id,
                "host": one.host,
                "partitions": [str(each) for each in one.partitions],
            }
            for one in group.members
        ],
        "partitions": rows,
    }


def _offset_row(
    where: TopicPartition,
    committed: Committed | None,
    end: int | str,
    owner: MemberDescription | None,
) -> Row:
    lag: Value = None
    why = ""
    if isinstance(end, str):
        why = end
    elif committed is None:
        why = NEVER_COMMITTED
    else:
        lag = max(end - committed.offset, 0)
        why = BEYOND_END if committed.offset > end else ""
    return {
        "topic": where.topic,
        "partition": where.partition,
        "committed": None if committed is None else committed.offset,
        "end": None if isinstance(end, str) else end,
        "lag": lag,
        "member": None if owner is None else owner.member_id,
        "host": None if owner is None else owner.host,
        "note": why,
    }


async def check_empty(groups: Groups, name: str) -> None:
    """Raise Failure if somebody is in the group; a group that is not there may be made so."""
    try:
        group = await groups.describe(name)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if not group.is_empty:
        who = ", ".join(sorted({f"{one.client_id} at {one.host}" for one in group.members}))
        fix = "stop them first: they would commit over it"
        raise Failure(f"{name} has members", why=who, fix=fix)


def delete(options: Namespace) -> None:
    """Delete groups and their offsets."""

    async def command(cluster: Cluster) -> None:
        groups = Groups(cluster)
        doomed: list[str] = []
        for name in options.groups:
            try:
                await existing_group(groups, name)
            except Failure as failure:
                if options.if_exists and failure.code is Exit.NOT_FOUND:
                    note(f"{name} does not exist")
                    continue
                raise
            await check_empty(groups, name)
            offsets = len(await groups.committed(name))
            note(f"delete {name}: {counted(offsets, 'committed offset')}")
            doomed.append(name)
        if options.dry_run or not doomed:
            return
        if not options.yes:
            ask(f"delete {', '.join(doomed)}? [y/N] ")
        for name in doomed:
            await groups.delete(name)
            answer(f"deleted {name}")

    run(options, command)


async def existing_group(groups: Groups, name: str) -> GroupDescription:
    """Return a group. Raises Failure, which names groups of similar names."""
    try:
        return await groups.describe(name)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        known = [one.group for one in await groups.list_groups()]
        hint = did_you_mean(name, known, 3) or "ottla group list"
        raise Failure(f"there is no group {name}", fix=hint, code=Exit.NOT_FOUND) from error


async def partition_ends(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int | str]:
    """Return where each partition ends, or why that is not known."""
    wanted = list(partitions)
    view = await cluster.refresh({topic for topic, _ in wanted}) if wanted else cluster.view
    ends: dict[TopicPartition, int | str] = {}
    led: list[TopicPartition] = []
    for each in wanted:
        topic = view.topics.get(each.topic)
        partition = None if topic is None else topic.partitions.get(each.partition)
        if partition is None:
            ends[each] = NO_TOPIC
        elif partition.leader < 0:
            ends[each] = NO_LEADER
        else:
            led.append(each)
    found = await cluster.list_offsets(dict.fromkeys(led, LATEST)) if led else {}
    return ends | {each: offset.offset for each, offset in found.items()}
