"""``ottla config``: what is set where, since which layer, and what it means.

Of topics, brokers, groups and the whole cluster. Owns how such a thing is named on the command
line, and the words for DescribeConfigs' numbers. Source: KIP-226.
"""

from argparse import Namespace
from collections.abc import Iterable, Mapping

from ottla.cli import output as out
from ottla.cli.arguments import (
    Command,
    Commands,
    Parser,
    add_client_options,
    add_command,
    add_group,
    add_output_option,
    not_empty,
)
from ottla.cli.failure import Exit, Failure
from ottla.cli.near import did_you_mean, near_names
from ottla.cli.output import FORMATS, Format, Row, answer, note, write_object, write_rows
from ottla.cli.run import run
from ottla.cli.second_options import add_second_options
from ottla.cli.terminal import width
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.configs import ConfigEntry, Configs, Resource, ResourceType
from ottla.config.human import is_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ottla.config.option import Table

COLUMNS = ("key", "value", "source", "default")
LAYER_COLUMNS = ("source", "key", "value")
DIFF_COLUMNS = ("key", "first", "second")
HIDDEN = "(hidden)"
_DEFAULT = 5
_SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "file",
    _DEFAULT: "default",
    6: "logger",
    7: "metrics",
    8: "group",
}
_OWN = {ResourceType.TOPIC: (1,), ResourceType.BROKER: (2, 3, 4), ResourceType.GROUP: (8,)}
"""The sources that say: somebody set it for this very thing."""
_TYPES = ("", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")
_FORMS = "topic/NAME, broker/NUMBER, cluster or group/NAME"


def register(commands: Commands) -> None:
    """Declare the commands."""
    verbs = add_group(commands, "config", "Show and change configs; tell where they come from.")
    about = "Show configs: those that somebody set, or these keys, or all."
    parser = _declare(verbs, "get", about, get)
    parser.add_argument("keys", metavar="KEY", nargs="*")
    parser.add_argument("--all", action="store_true", help="also those that nobody set")
    add_output_option(parser, *FORMATS)
    add_client_options(parser)

    parser = _declare(verbs, "set", "Set configs; those that are not named stay.", set_configs)
    parser.add_argument("changes", metavar="KEY=VALUE", nargs="+", help="retention.ms=7d")
    _add_dry_run(parser)

    about = "Take configs away: what lies beneath them holds again."
    parser = _declare(verbs, "unset", about, unset)
    parser.add_argument("keys", metavar="KEY", nargs="+")
    _add_dry_run(parser)

    about = "Tell what a config means, its type, and its value in each layer."
    parser = _declare(verbs, "explain", about, explain)
    parser.add_argument("key", metavar="KEY")
    add_output_option(parser, *FORMATS)
    add_client_options(parser)

    about = "List configs in which two differ; 1 if any."
    parser = _declare(verbs, "diff", about, diff)
    parser.add_argument(
        "second", type=not_empty, metavar="SECOND", nargs="?", help="else the same one elsewhere"
    )
    add_output_option(parser, *FORMATS)
    add_second_options(parser)
    add_client_options(parser)


def _declare(verbs: Commands, name: str, about: str, command: Command) -> Parser:
    parser = add_command(verbs, name, about, command)
    parser.add_argument("resource", metavar="OF", help=_FORMS)
    return parser


def _add_dry_run(parser: Parser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="check only, and change nothing")
    add_client_options(parser)


def get(options: Namespace) -> None:
    """Show configs."""

    async def command(cluster: Cluster) -> None:
        resource = await _existing(cluster, options.resource)
        entries = await Configs(cluster).describe(resource, layers=True)
        shown = entries
        if options.keys:
            known = {each.key: each for each in entries}
            await _check_keys(cluster, resource, options.keys, known)
            shown = [known[each] for each in options.keys if each in known]
            for key in options.keys:
                if key not in known:
                    note(f"{key} is not set for {words(resource)}")
        elif not options.all:
            shown = [each for each in entries if each.source in _OWN[resource.kind]]
            if not shown:
                note(f"nobody set a config of {words(resource)}; --all shows what holds")
        rows = [_row(each) for each in shown]
        write_rows(rows, COLUMNS, out.chosen(options.output), header=not options.no_header)

    run(options, command)


def set_configs(options: Namespace) -> None:
    """Set configs."""
    from ottla.cli.config_texts import read_configs

    async def command(cluster: Cluster) -> None:
        resource = await _existing(cluster, options.resource)
        changes = read_configs(options.changes, _table(resource.kind), "KEY=VALUE")
        await _alter(cluster, resource, changes, options)

    run(options, command)


def unset(options: Namespace) -> None:
    """Take configs away."""

    async def command(cluster: Cluster) -> None:
        resource = await _existing(cluster, options.resource)
        await _alter(cluster, resource, dict.fromkeys(options.keys), options)

    run(options, command)


async def _alter(
    cluster: Cluster, resource: Resource, changes: Mapping[str, str | None], options: Namespace
) -> None:
    """Change configs (None: take away) and print old and new."""
    configs = Configs(cluster)
    before = {each.key: each for each in await configs.describe(resource)}
    await _check_keys(cluster, resource, changes, before)
    wanted = {key: value for key, value in changes.items() if value is not None}
    deleted = [key for key, value in changes.items() if value is None]
    await configs.alter(resource, configs=wanted, deleted=deleted, validate_only=options.dry_run)
    for key, value in changes.items():
        old = before.get(key)
        new = "unset" if value is None else shown_value(key, value)
        if old is not None and old.is_sensitive:
            new = "unset" if value is None else HIDDEN
        was = "unset" if old is None else _value(old)
        would = "  (--dry-run)" if options.dry_run else ""
        answer(f"{words(resource)} {key}  {was} -> {new}{would}")


def explain(options: Namespace) -> None:
    """Tell what a config means."""

    async def command(cluster: Cluster) -> None:
        resource = await _existing(cluster, options.resource)
        described = await Configs(cluster).describe(resource, layers=True, documentation=True)
        known = {each.key: each for each in described}
        await _check_keys(cluster, resource, [options.key], known)
        if options.key not in known:
            where = f"ottla config explain broker/NUMBER {options.key}"
            what = f"{options.key} is not set for {words(resource)}"
            raise Failure(what, fix=where, code=Exit.NOT_FOUND)
        entry = known[options.key]
        layers = _layers(entry)
        format_ = out.chosen(options.output)
        told: Row = {
            **_row(entry),
            "of": words(resource),
            "type": _type(entry),
            "read_only": entry.is_read_only,
            "documentation": _plain_text(entry.documentation),
            "layers": layers,
        }
        if format_ not in (Format.TABLE, Format.TSV):
            write_object(told, format_)
            return
        fixed = "  read-only" if entry.is_read_only else ""
        source = f"  from {told['source']}" if layers else "  by default"
        note(f"{entry.key} of {words(resource)}: {_value(entry)}{source}  {told['type']}{fixed}")
        if told["documentation"]:
            from textwrap import fill

            note(fill(str(told["documentation"]), width() - 1))
        write_rows(layers, LAYER_COLUMNS, format_, header=not options.no_header)

    run(options, command)


def diff(options: Namespace) -> None:
    """List configs in which two differ. Exits with 1 if there are any."""
    from ottla.cli.second_cluster import second_cluster

    async def command(cluster: Cluster) -> None:
        first = await _existing(cluster, options.resource)
        async with second_cluster(options, cluster) as other:
            if options.second is None and other is cluster:
                fix = "name a second one, or --other-bootstrap HOST:PORT"
                raise Failure("nothing to compare with", fix=fix, code=Exit.USAGE)
            second = await _existing(other, options.second or options.resource)
            rows = differences(
                await Configs(cluster).describe(first), await Configs(other).describe(second)
            )
        write_rows(rows, DIFF_COLUMNS, out.chosen(options.output), header=not options.no_header)
        if rows:
            count = len(rows)
            raise Failure("1 config differs" if count == 1 else f"{count} configs differ")
        note("no difference")

    run(options, command)


def differences(first: Iterable[ConfigEntry], second: Iterable[ConfigEntry]) -> list[Row]:
    """Return a row for each key whose value differs, or that only one has.

    Secrets are not known, and so never differ.
    """
    left = {each.key: each for each in first}
    right = {each.key: each for each in second}
    rows: list[Row] = []
    for key in sorted({*left, *right}):
        one, other = left.get(key), right.get(key)
        if one is not None and other is not None and one.value == other.value:
            continue
        rows.append(
            {
                "key": key,
                "first": None if one is None else _value(one),
                "second": None if other is None else _value(other),
            }
        )
    return rows


def parse_resource(text: str) -> Resource:
    """Return what ``topic/orders`` and the like name. Raises Failure."""
    kind, slash, name = text.partition("/")
    if text == "cluster" or (kind == "broker" and name == "default"):
        return Resource(ResourceType.BROKER, "")
    kinds = {each.name.lower(): each for each in ResourceType}
    if kind not in kinds or not slash or not name:
        near = near_names(kind, [*kinds, "cluster"])
        hint = f"; did you mean {near[0]}{'' if near[0] == 'cluster' else '/NAME'}?" if near else ""
        raise Failure(f"{text!r} has no configs{hint}", fix=_FORMS, code=Exit.USAGE)
    if kinds[kind] is ResourceType.BROKER and not is_whole(name):
        raise Failure(f"a broker has a number, not {name!r}", fix="broker/1", code=Exit.USAGE)
    return Resource(kinds[kind], name)


def words(resource: Resource) -> str:
    """Return how people call it."""
    if resource.kind is ResourceType.BROKER and not resource.name:
        return "the cluster"
    return f"{resource.kind.name.lower()} {resource.name}"


def shown_value(key: str, value: str) -> str:
    """Return a value; long times and sizes with the short form of it behind."""
    from ottla.config.human import human_text

    if not is_whole(value):
        return value
    for kind in ResourceType:
        table = _table(kind)
        if key in table:
            human = human_text(table[key], int(value))
            return f"{value} ({human})" if human else value
    return value


def _value(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return HIDDEN
    return "none" if entry.value is None else shown_value(entry.key, entry.value)


def _table(kind: ResourceType) -> "Table":
    if kind is ResourceType.TOPIC:
        from ottla.config.topic import TOPIC_TABLE

        return TOPIC_TABLE
    if kind is ResourceType.GROUP:
        from ottla.config.group import GROUP_TABLE

        return GROUP_TABLE
    from ottla.config.broker import BROKER_TABLE

    return BROKER_TABLE


async def _existing(cluster: Cluster, text: str) -> Resource:
    """Return what is named, if it is there. Raises Failure."""
    resource = parse_resource(text)
    if resource.kind is ResourceType.TOPIC:
        from ottla.cli.topic_choice import existing_topic

        await existing_topic(cluster, resource.name)
    elif resource.kind is ResourceType.BROKER and resource.name:
        from ottla.cli.cluster import check_broker

        await check_broker(cluster, int(resource.name))
    return resource


async def _check_keys(
    cluster: Cluster, resource: Resource, keys: Iterable[str], known: Iterable[str]
) -> None:
    """Raise Failure for a key that is none, with near ones.

    A broker takes keys that it does not list, such as a listener's own: with a note.
    """
    names = list(known)
    if resource.kind is ResourceType.BROKER and not resource.name:
        # Of the cluster only those that are set are told.
        view = await cluster.refresh([])
        broker = Resource(ResourceType.BROKER, str(min(view.brokers)))
        names += [each.key for each in await Configs(cluster).describe(broker)]
    for key in keys:
        if key in names:
            continue
        hint = did_you_mean(key, names, 3, likeness=0.7)
        is_open = resource.kind is ResourceType.BROKER
        if is_open and (not hint or key.startswith("listener.name.")):
            note(f"note: no broker lists {key}")
            continue
        what = f"{words(resource)} has no config {key}"
        raise Failure(what, fix=hint, code=Exit.NOT_FOUND)


def _row(entry: ConfigEntry) -> Row:
    default = _default_of(entry)
    return {
        "key": entry.key,
        "value": HIDDEN if entry.is_sensitive else entry.value,
        "source": _source(entry.source),
        "default": HIDDEN if entry.is_sensitive and default else default,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
    }


def _default_of(entry: ConfigEntry) -> str | None:
    """Return the default, in the unit of this key: a topic's ms may follow a broker's hours."""
    for each in entry.layers:
        if each.source == _DEFAULT and each.key.rpartition(".")[2] == entry.key.rpartition(".")[2]:
            return each.value
    return entry.value if entry.source == _DEFAULT else None


def _layers(entry: ConfigEntry) -> list[Row]:
    return [
        {
            "source": _source(each.source),
            "key": each.key,
            "value": HIDDEN if entry.is_sensitive else each.value,
        }
        for each in entry.layers
    ]


def _source(number: int) -> str:
    return _SOURCES.get(number, f"source {number}")


def _type(entry: ConfigEntry) -> str:
    return _TYPES[entry.type] if 0 <= entry.type < len(_TYPES) else f"type {entry.type}"


def _plain_text(documentation: str | None) -> str:
    """Return Kafka's documentation, which is HTML, as text."""
    from html import unescape
    from re import sub

    return " ".join(unescape(sub(r"<[^<>]+>", " ", documentation or "")).split())
