"""``ottla topic``: create, list, describe, delete, add-partitions."""

import sys
from difflib import get_close_matches
from typing import Annotated

import typer

from ottla.cli import output as out
from ottla.cli.failure import Exit, Failure
from ottla.cli.output import Format, Output, Row, note, write_object, write_rows
from ottla.cli.run import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    CommandConfig,
    Settings,
    Timeout,
    run,
)
from ottla.client.admin import CLUSTER_DEFAULT, Admin, ResourceType
from ottla.client.cluster import Cluster
from ottla.client.offsets import EARLIEST, LATEST
from ottla.client.view import TopicView
from ottla.config.human import human_text, plain
from ottla.config.option import InvalidConfig, Source
from ottla.config.topic import TOPIC_TABLE
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition, topic_id_text

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do it without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]

topics = typer.Typer(help="Create, list, describe and delete topics.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(topics, name="topic")


@topics.command("create")
def create(
    topic: Topic,
    *,
    partitions: Annotated[
        int, typer.Option("-p", "--partitions", help="How many; the broker's default if not given.")
    ] = CLUSTER_DEFAULT,
    replicas: Annotated[
        int, typer.Option("-r", "--replication-factor", help="How many copies of each partition.")
    ] = CLUSTER_DEFAULT,
    config: Annotated[
        list[str] | None,
        typer.Option("-c", "--config", metavar="KEY=VALUE", help="retention.ms=7d and the like."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="An existing topic is no error.")
    ] = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    settings: Settings = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Create a topic."""

    async def command(cluster: Cluster) -> None:
        configs = read_topic_configs(config or [])
        admin = Admin(cluster)
        try:
            created = await admin.create_topic(
                topic,
                partition_count=partitions,
                replication_factor=replicas,
                configs=configs,
                validate_only=dry_run,
            )
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
                note(f"{topic} exists")
                return
            raise _with_hint(error, configs) from error
        count, factor = created.partition_count, created.replication_factor
        verb = "would create" if dry_run else "created"
        size = f"  {_count(count, 'partition')}  replicas {factor}" if count > 0 else ""
        print(f"{verb} {topic}{size}")
        for key, value in configs.items():
            human = _human(key, value)
            print(f"  {key}  {value}" + (f" ({human})" if human else ""))

    run(command, bootstrap, settings, command_config, timeout)


@topics.command("list")
def list_(
    *,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also topics of the cluster itself.")
    ] = False,
    output: Output = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    settings: Settings = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """List topics."""

    async def command(cluster: Cluster) -> None:
        found = await Admin(cluster).list_topics()
        rows = [_topic_row(each) for each in found if internal or not each.is_internal]
        write_rows(rows, ("name", "partitions", "replicas"), output)
        if not rows and sys.stdout.isatty():
            note("no topics yet: ottla produce hello")

    run(command, bootstrap, settings, command_config, timeout)


@topics.command("describe")
def describe(
    topic: Topic,
    *,
    configs: Annotated[
        bool, typer.Option("--configs", help="All configs, not only those that were set.")
    ] = False,
    output: Output = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    settings: Settings = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Describe a topic: partitions, leaders, replicas, offsets, configs."""

    async def command(cluster: Cluster) -> None:
        view = await existing_topic(cluster, topic)
        rows = await _partition_rows(cluster, view)
        entries = await Admin(cluster).describe_configs(ResourceType.TOPIC, topic)
        shown: dict[str, out.Value] = {
            each.key: each.value for each in entries if configs or each.source == Source.TOPIC
        }
        format_ = out.chosen(output)
        if format_ in (Format.TABLE, Format.TSV):
            if format_ is Format.TABLE:
                count = _count(len(rows), "partition")
                note(f"{topic}  {count}  id {topic_id_text(view.topic_id)}")
                for key, value in shown.items():
                    human = _human(key, str(value))
                    note(f"  {key}  {value}" + (f" ({human})" if human else ""))
            columns = ("partition", "leader", "replicas", "isr", "start", "end", "records")
            write_rows(rows, columns, format_)
            return
        described: Row = {
            "name": topic,
            "topic_id": topic_id_text(view.topic_id),
            "internal": view.is_internal,
            "partitions": rows,
            "configs": shown,
        }
        write_object(described, format_)

    run(command, bootstrap, settings, command_config, timeout)


@topics.command("delete")
def delete(
    names: Topics,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A missing topic is no error.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    settings: Settings = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Delete topics and all their records."""

    async def command(cluster: Cluster) -> None:
        doomed: list[str] = []
        for name in names:
            try:
                view = await existing_topic(cluster, name)
            except Failure as failure:
                if if_exists and failure.code is Exit.NOT_FOUND:
                    note(f"{name} does not exist")
                    continue
                raise
            rows = await _partition_rows(cluster, view)
            records = sum(row["records"] for row in rows if isinstance(row["records"], int))
            note(f"delete {name}: {_count(len(rows), 'partition')}, {records:,} offsets")
            doomed.append(name)
        if dry_run or not doomed:
            return
        if not yes:
            _ask(f"delete {', '.join(doomed)}? [y/N] ")
        await Admin(cluster).delete_topics(doomed)
        for name in doomed:
            print(f"deleted {name}")

    run(command, bootstrap, settings, command_config, timeout)


@topics.command("add-partitions")
def add_partitions(
    topic: Topic,
    count: Annotated[int, typer.Argument(metavar="COUNT", min=1, help="How many to add.")],
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    settings: Settings = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Add partitions to a topic. Keys move: equal keys may be in two partitions from then on."""

    async def command(cluster: Cluster) -> None:
        before = len((await existing_topic(cluster, topic)).partitions)
        total = before + count
        note(f"{topic}: {before} -> {total} partitions; keys will map to other partitions")
        if not dry_run and not yes and sys.stdin.isatty():
            _ask("go on? [y/N] ")
        await Admin(cluster).create_partitions(topic, total, validate_only=dry_run)
        print(f"{topic} {'would have' if dry_run else 'has'} {total} partitions")

    run(command, bootstrap, settings, command_config, timeout)


async def existing_topic(cluster: Cluster, name: str) -> TopicView:
    """Return a topic. Raises Failure, which names topics of similar names."""
    admin = Admin(cluster)
    try:
        return await admin.describe_topic(name)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        known = [each.name for each in await admin.list_topics() if not each.is_internal]
        near = get_close_matches(name, known, 3, 0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else f"ottla topic create {name}"
        raise Failure(f"there is no topic {name}", fix=hint, code=Exit.NOT_FOUND) from error


def read_topic_configs(texts: list[str]) -> dict[str, str]:
    """Return the configs of ``key=value`` texts, durations and sizes made plain. Raises Failure."""
    configs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise Failure(f"-c {text!r} is not of the form key=value", code=Exit.USAGE)
        try:
            configs[key] = plain(TOPIC_TABLE[key], value) if key in TOPIC_TABLE else value
        except InvalidConfig as error:
            raise Failure(str(error), code=Exit.USAGE) from error
    return configs


def _with_hint(error: KafkaError, configs: dict[str, str]) -> Exception:
    if error.code is not ErrorCode.INVALID_CONFIG:
        return error
    unknown = [key for key in configs if key not in TOPIC_TABLE]
    near = [name for key in unknown for name in TOPIC_TABLE.nearest(key)]
    hint = f"did you mean {' or '.join(near)}?" if near else ""
    return Failure(error.why or error.code.text, fix=hint, code=Exit.USAGE)


async def _partition_rows(cluster: Cluster, view: TopicView) -> list[dict[str, out.Value]]:
    led = [TopicPartition(view.name, each.partition) for each in view.partitions.values()
           if each.leader >= 0]  # fmt: skip
    if len(led) == len(view.partitions):
        starts = await cluster.list_offsets(dict.fromkeys(led, EARLIEST))
        ends = await cluster.list_offsets(dict.fromkeys(led, LATEST))
    else:
        starts, ends = {}, {}  # asking would wait for leaders
    rows: list[dict[str, out.Value]] = []
    for each in view.partitions.values():
        here = TopicPartition(view.name, each.partition)
        start = starts[here].offset if here in starts else None
        end = ends[here].offset if here in ends else None
        rows.append(
            {
                "partition": each.partition,
                "leader": each.leader if each.leader >= 0 else None,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "start": start,
                "end": end,
                "records": end - start if start is not None and end is not None else None,
            }
        )
    return rows


def _topic_row(topic: TopicView) -> Row:
    replicas = max((len(each.replicas) for each in topic.partitions.values()), default=0)
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "replicas": replicas,
        "internal": topic.is_internal,
        "topic_id": topic_id_text(topic.topic_id),
    }


def _human(key: str, text: str) -> str:
    return human_text(TOPIC_TABLE[key], int(text)) if key in TOPIC_TABLE and text.isdigit() else ""


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _ask(question: str) -> None:
    """Return if the person agrees. Raises Failure otherwise, and when there is nobody to ask."""
    if not sys.stdin.isatty():
        raise Failure("not done: nobody to ask", fix="add --yes", code=Exit.USAGE)
    sys.stderr.write(question)
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Failure("not done")
