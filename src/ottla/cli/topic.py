"""``ottla topic``: create, list, describe, alter, delete, add-partitions; see ``topic_data``."""

from argparse import Namespace

from ottla.cli import output as out
from ottla.cli import topic_data
from ottla.cli.arguments import (
    Commands,
    Parser,
    add_client_options,
    add_command,
    add_group,
    add_output_option,
    at_least_one,
)
from ottla.cli.config_texts import read_configs
from ottla.cli.consent import add_consent_options, ask
from ottla.cli.failure import Exit, Failure
from ottla.cli.output import FORMATS, Format, Row, answer, counted, note, write_object, write_rows
from ottla.cli.run import run
from ottla.cli.topic_choice import existing_topic
from ottla.client.asyncio.admin import CLUSTER_DEFAULT, Admin
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.configs import Configs, Resource, ResourceType
from ottla.client.wire.offsets import EARLIEST, LATEST
from ottla.client.wire.view import TopicView
from ottla.config.human import human_text, is_whole
from ottla.config.option import Source
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition, topic_id_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ottla.config.option import Table


def register(commands: Commands) -> None:
    """Declare the commands."""
    about = "Create, list, describe, alter, measure, trim and delete topics."
    verbs = add_group(commands, "topic", about)
    _declare_create(add_command(verbs, "create", "Create a topic.", create))

    parser = add_command(verbs, "list", "List topics.", list_topics)
    parser.add_argument("--internal", action="store_true", help="also the cluster's own topics")
    add_output_option(parser, *FORMATS)
    add_client_options(parser)

    about = "Describe a topic: partitions, leaders, replicas, offsets, configs."
    parser = add_command(verbs, "describe", about, describe)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--configs", action="store_true", help="all configs, not only those set")
    add_output_option(parser, *FORMATS)
    add_client_options(parser)

    parser = add_command(verbs, "alter", "Change a topic's configs; they hold at once.", alter)
    parser.add_argument("topic", metavar="TOPIC")
    _add_config_option(parser)
    parser.add_argument(
        "--delete-config",
        dest="deleted",
        action="append",
        default=[],
        metavar="KEY",
        help="back to the broker's default",
    )
    parser.add_argument("--dry-run", action="store_true", help="check only, and change nothing")
    add_client_options(parser)

    parser = add_command(verbs, "delete", "Delete topics and all their records.", delete)
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument("--if-exists", action="store_true", help="a missing topic is no error")
    add_consent_options(parser)
    add_client_options(parser)

    about = "Add partitions to a topic. Equal keys may be in two partitions from then on."
    parser = add_command(verbs, "add-partitions", about, add_partitions)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("count", metavar="COUNT", type=at_least_one, help="how many to add")
    add_consent_options(parser)
    add_client_options(parser)
    topic_data.register(verbs)


def _declare_create(parser: Parser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "-p",
        "--partitions",
        type=at_least_one,
        default=CLUSTER_DEFAULT,
        metavar="N",
        help="how many; else the broker's default",
    )
    parser.add_argument(
        "-r",
        "--replication-factor",
        dest="replicas",
        type=at_least_one,
        default=CLUSTER_DEFAULT,
        metavar="N",
        help="how many copies of each",
    )
    _add_config_option(parser)
    parser.add_argument("--if-not-exists", action="store_true", help="one that exists is no error")
    parser.add_argument("--dry-run", action="store_true", help="check only, and create nothing")
    add_client_options(parser)


def _add_config_option(parser: Parser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="retention.ms=7d and the like",
    )


def create(options: Namespace) -> None:
    """Create a topic."""
    topic: str = options.topic

    async def command(cluster: Cluster) -> None:
        configs = read_configs(options.config, _table(), "key=value", "-c ")
        try:
            created = await Admin(cluster).create_topic(
                topic,
                partition_count=options.partitions,
                replication_factor=options.replicas,
                configs=configs,
                validate_only=options.dry_run,
            )
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and options.if_not_exists:
                note(f"{topic} exists")
                return
            raise _with_hint(error, configs) from error
        count, factor = created.partition_count, created.replication_factor
        verb = "would create" if options.dry_run else "created"
        size = f"  {counted(count, 'partition')}  replicas {factor}" if count > 0 else ""
        answer(f"{verb} {topic}{size}")
        for key, value in configs.items():
            answer(f"  {key}  {value}{_human(key, value)}")

    run(options, command)


def list_topics(options: Namespace) -> None:
    """List topics."""

    async def command(cluster: Cluster) -> None:
        found = await Admin(cluster).list_topics()
        rows = [_topic_row(each) for each in found if options.internal or not each.is_internal]
        write_rows(
            rows,
            ("name", "partitions", "replicas"),
            out.chosen(options.output),
            header=not options.no_header,
        )
        if not rows:
            note("no topics yet: ottla produce hello")

    run(options, command)


def describe(options: Namespace) -> None:
    """Describe a topic."""
    topic: str = options.topic

    async def command(cluster: Cluster) -> None:
        view = await existing_topic(cluster, topic)
        rows = await _partition_rows(cluster, view)
        entries = await Configs(cluster).describe(Resource(ResourceType.TOPIC, topic))
        configs = {
            each.key: each.value
            for each in entries
            if options.configs or each.source == Source.TOPIC
        }
        _write_description(
            view, rows, configs, out.chosen(options.output), header=not options.no_header
        )

    run(options, command)


def _write_description(
    view: TopicView,
    rows: list[dict[str, out.Value]],
    configs: dict[str, str | None],
    format_: Format,
    *,
    header: bool,
) -> None:
    if format_ in (Format.TABLE, Format.TSV):
        count = counted(len(rows), "partition")
        note(f"{view.name}  {count}  id {topic_id_text(view.topic_id)}")
        for key, value in configs.items():
            note(f"  {key}  {value}{_human(key, value or '')}")
        columns = ("partition", "leader", "replicas", "isr", "start", "end", "stable", "offsets")
        write_rows(rows, columns, format_, header=header)
        return
    described: Row = {
        "name": view.name,
        "topic_id": topic_id_text(view.topic_id),
        "internal": view.is_internal,
        "partitions": rows,
        "configs": configs,
    }
    write_object(described, format_)


def alter(options: Namespace) -> None:
    """Change a topic's configs."""
    topic: str = options.topic

    async def command(cluster: Cluster) -> None:
        configs = read_configs(options.config, _table(), "key=value", "-c ")
        if not configs and not options.deleted:
            fix = "add -c KEY=VALUE or --delete-config KEY"
            raise Failure("nothing to change", fix=fix, code=Exit.USAGE)
        await existing_topic(cluster, topic)
        try:
            await Configs(cluster).alter(
                Resource(ResourceType.TOPIC, topic),
                configs=configs,
                deleted=options.deleted,
                validate_only=options.dry_run,
            )
        except KafkaError as error:
            raise _with_hint(error, configs) from error
        answer(f"{'would alter' if options.dry_run else 'altered'} {topic}")
        for key, value in configs.items():
            answer(f"  {key}  {value}{_human(key, value)}")
        for key in options.deleted:
            answer(f"  {key}  as the broker's")

    run(options, command)


def delete(options: Namespace) -> None:
    """Delete topics and all their records."""

    async def command(cluster: Cluster) -> None:
        doomed: list[str] = []
        for name in options.topics:
            try:
                view = await existing_topic(cluster, name)
            except Failure as failure:
                if options.if_exists and failure.code is Exit.NOT_FOUND:
                    note(f"{name} does not exist")
                    continue
                raise
            rows = await _partition_rows(cluster, view)
            offsets = sum(row["offsets"] for row in rows if isinstance(row["offsets"], int))
            note(f"delete {name}: {counted(len(rows), 'partition')}, {counted(offsets, 'offset')}")
            doomed.append(name)
        if options.dry_run or not doomed:
            return
        if not options.yes:
            ask(f"delete {', '.join(doomed)}? [y/N] ")
        await Admin(cluster).delete_topics(doomed)
        for name in doomed:
            answer(f"deleted {name}")

    run(options, command)


def add_partitions(options: Namespace) -> None:
    """Add partitions to a topic."""
    topic: str = options.topic

    async def command(cluster: Cluster) -> None:
        before = len((await existing_topic(cluster, topic)).partitions)
        total = before + options.count
        note(f"{topic}: {before} -> {total} partitions; keys will map to other partitions")
        if not options.dry_run and not options.yes:
            ask(f"make {options.count} more, {total} in all? [y/N] ")
        await Admin(cluster).create_partitions(topic, total, validate_only=options.dry_run)
        answer(f"{topic} {'would have' if options.dry_run else 'has'} {total} partitions")

    run(options, command)


def _with_hint(error: KafkaError, configs: dict[str, str]) -> Exception:
    if error.code is not ErrorCode.INVALID_CONFIG:
        return error
    table = _table()
    unknown = [key for key in configs if key not in table]
    near = [name for key in unknown for name in table.nearest(key)]
    hint = f"did you mean {' or '.join(near)}?" if near else ""
    return Failure(error.why or error.code.text, fix=hint, code=Exit.USAGE)


async def _partition_rows(cluster: Cluster, view: TopicView) -> list[dict[str, out.Value]]:
    led = [TopicPartition(view.name, each.partition) for each in view.partitions.values()
           if each.leader >= 0]  # fmt: skip
    if len(led) == len(view.partitions):
        starts = await cluster.list_offsets(dict.fromkeys(led, EARLIEST))
        ends = await cluster.list_offsets(dict.fromkeys(led, LATEST))
        stable = await cluster.list_offsets(dict.fromkeys(led, LATEST), read_committed=True)
    else:
        starts, ends, stable = {}, {}, {}  # asking would wait for leaders
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
                # The last stable offset: an open transaction holds it, and who reads committed.
                "stable": stable[here].offset if here in stable else None,
                # Not records: compaction leaves gaps, and transactions have markers.
                "offsets": end - start if start is not None and end is not None else None,
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
    """Return `` (7d)`` behind a value that says it in milliseconds."""
    table = _table()
    if key not in table or not is_whole(text):
        return ""
    human = human_text(table[key], int(text))
    return f" ({human})" if human else ""


def _table() -> "Table":
    """Return the options of topics, which no command but those about them needs: 5 ms."""
    from ottla.config.topic import TOPIC_TABLE

    return TOPIC_TABLE
