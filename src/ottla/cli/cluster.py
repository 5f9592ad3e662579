"""``ottla cluster``: brokers, their versions, disks and health; to wait for them, and balance them.

Of any Kafka cluster. Changes nothing, but for ``balance`` and ``drain`` with ``--execute``.
"""

import asyncio
from argparse import Namespace
from collections import Counter

from ottla.cli import output as out
from ottla.cli.arguments import (
    Commands,
    add_client_options,
    add_command,
    add_group,
    add_output_option,
    whole,
)
from ottla.cli.failure import Exit, Failure, explain
from ottla.cli.output import FORMATS, Format, Row, Value, note, write_object, write_rows
from ottla.cli.run import run
from ottla.client.asyncio.admin import Admin
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.partitions import LogDir, Partitions
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.view import TopicView
from ottla.config.human import parse_duration_ms, size_text
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis import ApiKey

BROKER_COLUMNS = ("broker_id", "host", "port", "rack", "controller", "leads", "replicas")
LOG_DIR_COLUMNS = ("broker_id", "log_dir", "partitions", "size", "free", "total", "note")
HEALTH_COLUMNS = ("topic", "partition", "leader", "replicas", "isr", "what")
WAIT_SECONDS = 0.2
"""Between two looks at a cluster that is waited for."""


def register(commands: Commands) -> None:
    """Declare the commands."""
    about = "Look at a cluster: its brokers, versions, disks and health; wait for it."
    verbs = add_group(commands, "cluster", about)
    for name, text, command in (
        ("info", "Tell the cluster's id, brokers, topics and partitions.", info),
        ("brokers", "List brokers, with what each leads.", brokers),
        (
            "status",
            "List nodes, up or down: what each leads, what is offline.",
            status,
        ),
        ("apis", "List the requests that a broker takes, and in which versions.", apis),
        ("logdirs", "List log directories with their sizes.", logdirs),
        ("health", "List partitions without a leader or with replicas missing; 1 if any.", health),
    ):
        parser = add_command(verbs, name, text, command)
        if name == "apis":
            parser.add_argument("--broker", type=whole, metavar="ID", help="of this one; else any")
        add_output_option(parser, *FORMATS)
        add_client_options(parser)
    _register_moves(verbs)
    about = "Wait until the cluster answers, or a topic has leaders. For scripts."
    parser = add_command(verbs, "wait", about, wait)
    parser.add_argument("--topic", action="append", default=[], help="for it, too; repeatable")
    parser.add_argument(
        "--for", dest="patience", default="60s", metavar="TIME", help="how long; 60s"
    )
    add_client_options(parser)


def _register_moves(verbs: Commands) -> None:
    about = "Plan moves after which nodes have, and lead, equally many partitions."
    balancing = add_command(verbs, "balance", about, balance)
    about = "Plan moves after which one node, or each of several, has no replica."
    draining = add_command(verbs, "drain", about, drain)
    draining.add_argument(
        "nodes", type=whole, metavar="NODE", nargs="+", help="ids; name them together"
    )
    for parser in (balancing, draining):
        parser.add_argument("--execute", action="store_true", help="move; else only print")
        parser.add_argument("--no-wait", action="store_true", help="return while they move")
        add_output_option(parser, *FORMATS)
        add_client_options(parser)


def balance(options: Namespace) -> None:
    """Spread replicas and leaders."""
    from ottla.cli.cluster_moves import balance as spread

    spread(options)


def drain(options: Namespace) -> None:
    """Let nodes have no replica."""
    from ottla.cli.cluster_moves import drain as empty

    empty(options)


def info(options: Namespace) -> None:
    """Tell the cluster's id, brokers, topics and partitions."""

    async def command(cluster: Cluster) -> None:
        topics = await Admin(cluster).list_topics()
        view = cluster.view
        troubles = sum(len(_troubles(each)) for each in topics)
        facts: dict[str, Value] = {
            "cluster_id": view.cluster_id,
            "brokers": len(view.brokers),
            "controller_id": view.controller_id if view.controller_id >= 0 else None,
            "topics": sum(not each.is_internal for each in topics),
            "internal_topics": sum(each.is_internal for each in topics),
            "partitions": sum(len(each.partitions) for each in topics),
            "partitions_in_trouble": troubles,
        }
        format_ = out.chosen(options.output)
        if format_ in (Format.TABLE, Format.TSV):
            write_rows([facts], tuple(facts), format_, header=not options.no_header)
            return
        write_object(facts, format_)

    run(options, command)


def brokers(options: Namespace) -> None:
    """List brokers."""

    async def command(cluster: Cluster) -> None:
        topics = await Admin(cluster).list_topics()
        view = cluster.view
        partitions = [each for topic in topics for each in topic.partitions.values()]
        leads = Counter(each.leader for each in partitions)
        replicas = Counter(node_id for each in partitions for node_id in each.replicas)
        rows: list[Row] = [
            {
                "broker_id": node_id,
                "host": address.host,
                "port": address.port,
                "rack": view.racks.get(node_id),
                "controller": node_id == view.controller_id,
                "leads": leads[node_id],
                "replicas": replicas[node_id],
            }
            for node_id, address in sorted(view.brokers.items())
        ]
        write_rows(rows, BROKER_COLUMNS, out.chosen(options.output), header=not options.no_header)

    run(options, command)


def status(options: Namespace) -> None:
    """List nodes, also those that are down."""
    from ottla.cli.cluster_status import status as list_nodes

    list_nodes(options)


def apis(options: Namespace) -> None:
    """List the requests that a broker takes."""

    async def command(cluster: Cluster) -> None:
        if options.broker is None:
            connection = await cluster.any()
        else:
            await check_broker(cluster, options.broker)
            connection = await cluster.connection(options.broker)
        rows: list[Row] = [
            {"api": _name(key), "api_id": key, "first": first, "last": last}
            for key, (first, last) in sorted(connection.exchange.versions.items())
        ]
        columns = ("api", "api_id", "first", "last")
        write_rows(rows, columns, out.chosen(options.output), header=not options.no_header)

    run(options, command)


async def check_broker(cluster: Cluster, node_id: int) -> None:
    """Raise Failure, which names those there are, if there is no such broker."""
    await cluster.refresh([])
    if node_id not in cluster.view.brokers:
        there = ", ".join(map(str, sorted(cluster.view.brokers)))
        fix = f"the cluster has {there}"
        raise Failure(f"there is no broker {node_id}", fix=fix, code=Exit.NOT_FOUND)


def _name(key: int) -> str:
    try:
        return ApiKey(key).name
    except ValueError:
        return f"unknown {key}"


def logdirs(options: Namespace) -> None:
    """List log directories."""

    async def command(cluster: Cluster) -> None:
        rows = [_log_dir_row(each) for each in await Partitions(cluster).log_dirs()]
        write_rows(rows, LOG_DIR_COLUMNS, out.chosen(options.output), header=not options.no_header)

    run(options, command)


def _log_dir_row(found: LogDir) -> Row:
    size_bytes = sum(each.size_bytes for each in found.replicas)
    return {
        "broker_id": found.broker_id,
        "log_dir": found.path,
        "partitions": len(found.replicas),
        "size": size_text(size_bytes),
        "size_bytes": size_bytes,
        "free": None if found.free_bytes is None else size_text(found.free_bytes),
        "free_bytes": found.free_bytes,
        "total": None if found.total_bytes is None else size_text(found.total_bytes),
        "total_bytes": found.total_bytes,
        "note": "" if found.error is ErrorCode.NONE else found.error.text,
    }


def health(options: Namespace) -> None:
    """List partitions that are not as they should be. Exits with 1 if there are any."""

    async def command(cluster: Cluster) -> None:
        topics = await Admin(cluster).list_topics()
        rows = [row for each in topics for row in _troubles(each)]
        write_rows(rows, HEALTH_COLUMNS, out.chosen(options.output), header=not options.no_header)
        partitions = sum(len(each.partitions) for each in topics)
        if rows:
            raise Failure(f"{len(rows)} of {partitions} partitions are in trouble")
        count = len(cluster.view.brokers)
        note(f"healthy: {partitions} partitions on {count} broker{'' if count == 1 else 's'}")

    run(options, command)


def _troubles(topic: TopicView) -> list[Row]:
    """Return a row for each partition that has no leader, or too few replicas in sync."""
    rows: list[Row] = []
    for each in topic.partitions.values():
        missing = sorted({*each.replicas} - {*each.isr})
        if each.leader < 0:
            what = "no leader"
        elif missing:
            what = f"out of sync: {', '.join(map(str, missing))}"
        else:
            continue
        rows.append(
            {
                "topic": topic.name,
                "partition": each.partition,
                "leader": each.leader if each.leader >= 0 else None,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "what": what,
            }
        )
    return rows


def wait(options: Namespace) -> None:
    """Wait until the cluster answers, and the topics have leaders."""

    async def command(cluster: Cluster) -> None:
        patience_ms = _milliseconds(options.patience)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_ms / 1000
        while (error := await _not_ready(cluster, options.topic)) is not None:
            if loop.time() >= deadline:
                failure = explain(error)
                what = f"not ready within {options.patience}"
                raise Failure(what, why=failure.what, code=failure.code)
            cluster.trouble.retrying(error)
            await asyncio.sleep(WAIT_SECONDS)
        cluster.trouble.answered()

    run(options, command)


async def _not_ready(cluster: Cluster, topics: list[str]) -> KafkaError | ConnectionFailed | None:
    """Return what is missing yet. Raises KafkaError for what waiting does not cure."""
    try:
        view = await cluster.refresh(topics)
        for name in topics:
            for partition in view.topic(name).partitions:
                view.partition(name, partition)
    except ConnectionFailed as error:
        return error
    except KafkaError as error:
        if not error.code.retriable:
            raise
        return error
    return None


def _milliseconds(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise Failure(f"--for {text}: {error}", fix="30s, 5m", code=Exit.USAGE) from error
