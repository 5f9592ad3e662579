"""``ottla group``: list, describe, reset and delete consumer groups.

Lag is a number and never negative. Where it is missing, a note says why: nothing was ever
committed, or the end of the partition is not known.
"""

from argparse import Namespace
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from ottla.cli import output as out
from ottla.cli.arguments import (
    Commands,
    Parser,
    add_client_options,
    add_command,
    add_group,
    add_output_option,
)
from ottla.cli.consent import add_consent_options, ask
from ottla.cli.failure import Exit, Failure
from ottla.cli.output import FORMATS, Format, Row, Value, note, write_object, write_rows
from ottla.cli.run import run
from ottla.cli.start import start_offsets
from ottla.cli.topic import existing_topic
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.groups import Groups
from ottla.client.wire.coordination import Committed
from ottla.client.wire.group_description import GroupDescription, MemberDescription
from ottla.client.wire.offsets import LATEST
from ottla.env.clock import SystemClock
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition

NEVER_COMMITTED = "never committed"
NO_TOPIC = "the topic is gone"
NO_LEADER = "no leader: the end is not known"
BEYOND_END = "committed beyond the end"
COLUMNS = ("topic", "partition", "committed", "end", "lag", "member", "host", "note")


def register(commands: Commands) -> None:
    """Declare the commands."""
    about = "List, describe, reset and delete consumer groups."
    verbs = add_group(commands, "group", about)
    parser = add_command(verbs, "list", "List groups.", list_groups)
    parser.add_argument(
        "--state", action="append", default=[], help="only Stable, Empty ...; may be given twice"
    )
    parser.add_argument(
        "--type", action="append", default=[], help="only classic or consumer groups"
    )
    add_output_option(parser, *FORMATS)
    add_client_options(parser)

    about = "Describe a group: members, committed offsets, lag."
    parser = add_command(verbs, "describe", about, describe)
    parser.add_argument("group", metavar="GROUP")
    add_output_option(parser, *FORMATS)
    add_client_options(parser)

    _declare_reset(add_command(verbs, "reset", "Commit other offsets for a group.", reset))

    parser = add_command(verbs, "delete", "Delete groups and their offsets.", delete)
    parser.add_argument("groups", metavar="GROUP", nargs="+")
    parser.add_argument("--if-exists", action="store_true", help="a missing group is no error")
    add_consent_options(parser)
    add_client_options(parser)


def _declare_reset(parser: Parser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument(
        "--to",
        dest="place",
        required=True,
        metavar="PLACE",
        help="earliest, latest, an offset, -10, -5m or a time",
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
        groups = Groups(cluster)
        group = await existing_group(groups, options.group)
        committed = await groups.committed(group.group)
        owners = {each: member for member in group.members for each in member.partitions}
        ends = await _ends(cluster, {*committed, *owners})
        rows = [
            _offset_row(each, committed.get(each), ends[each], owners.get(each))
            for each in sorted({*committed, *owners})
        ]
        _write_description(group, rows, out.chosen(options.output), header=not options.no_header)

    run(options, command)


def _write_description(
    group: GroupDescription, rows: list[Row], format_: Format, *, header: bool
) -> None:
    members = f"{len(group.members)} member" + ("" if len(group.members) == 1 else "s")
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
        # A script finds the same columns each time.
        has_notes = format_ is Format.TSV or any(row["note"] for row in rows)
        write_rows(rows, COLUMNS if has_notes else COLUMNS[:-1], format_, header=header)
        return
    described: Row = {
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
    write_object(described, format_)


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


def reset(options: Namespace) -> None:
    """Commit other offsets for a group."""

    async def command(cluster: Cluster) -> None:
        groups = Groups(cluster)
        name: str = options.group
        await _check_empty(groups, name)
        committed = await groups.committed(name)
        partitions = await _chosen_partitions(cluster, options.topics, committed)
        if not partitions:
            why = f"{name} has committed no offset"
            raise Failure("nothing to reset", why=why, fix="name the topic: --topic TOPIC")
        try:
            wanted = await start_offsets(cluster, partitions, options.place, SystemClock())
        except ValueError as error:
            raise Failure(str(error), code=Exit.USAGE) from error
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
            ask(f"reset {len(rows)} offsets of {name}? [y/N] ")
        await groups.commit(name, wanted)
        kept = await groups.committed(name, wanted)
        for each, offset in wanted.items():
            if each not in kept or kept[each].offset != offset:
                raise Failure(f"{each} is not at {offset}: somebody else committed meanwhile")
        note(f"reset {name}")

    run(options, command)


async def _chosen_partitions(
    cluster: Cluster, topics: list[str], committed: Mapping[TopicPartition, Committed]
) -> list[TopicPartition]:
    if not topics:
        known = await _ends(cluster, committed)
        return [each for each in committed if known[each] != NO_TOPIC]
    chosen: list[TopicPartition] = []
    for text in topics:
        name, colon, numbers = text.partition(":")
        view = await existing_topic(cluster, name)
        indexes = list(view.partitions)
        if colon:
            if not all(each.isdigit() for each in numbers.split(",")):
                raise Failure(f"--topic {text!r} is not TOPIC or TOPIC:0,1", code=Exit.USAGE)
            indexes = [int(each) for each in numbers.split(",")]
        for index in indexes:
            if index not in view.partitions:
                raise Failure(f"{name} has no partition {index}", code=Exit.NOT_FOUND)
        chosen += [TopicPartition(name, index) for index in indexes]
    return chosen


async def _check_empty(groups: Groups, name: str) -> None:
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
            await _check_empty(groups, name)
            offsets = len(await groups.committed(name))
            note(f"delete {name}: {offsets} committed offset" + ("" if offsets == 1 else "s"))
            doomed.append(name)
        if options.dry_run or not doomed:
            return
        if not options.yes:
            ask(f"delete {', '.join(doomed)}? [y/N] ")
        for name in doomed:
            await groups.delete(name)
            print(f"deleted {name}")

    run(options, command)


async def existing_group(groups: Groups, name: str) -> GroupDescription:
    """Return a group. Raises Failure, which names groups of similar names."""
    try:
        return await groups.describe(name)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        known = [one.group for one in await groups.list_groups()]
        near = get_close_matches(name, known, 3, 0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else "ottla group list"
        raise Failure(f"there is no group {name}", fix=hint, code=Exit.NOT_FOUND) from error


async def _ends(
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
