"""``ottla topic move`` and ``ottla topic elect``: other brokers, other directories, other leaders.

Source: KIP-455, KIP-113, KIP-460.
"""

from argparse import Namespace
from collections.abc import Callable, Mapping

from ottla.cli import output as out
from ottla.cli.failure import Exit, Failure, explain
from ottla.cli.output import Row, note, write_rows
from ottla.cli.partition_choice import chosen_partitions
from ottla.cli.run import run
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.moves import Moves, Outcomes, Reassignment
from ottla.client.asyncio.partitions import Partitions
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition

MOVE_COLUMNS = ("topic", "partition", "from", "to", "note")
STATUS_COLUMNS = ("topic", "partition", "replicas", "adding", "removing")
LEADER_COLUMNS = ("topic", "partition", "leader", "preferred", "note")


def move(options: Namespace) -> None:
    """Move replicas, or tell what is on its way."""

    async def command(cluster: Cluster) -> None:
        chosen = [options.brokers is not None, options.log_dir is not None, options.cancel]
        if sum(chosen) > 1:
            what = "--brokers, --log-dir and --cancel exclude each other"
            raise Failure(what, code=Exit.USAGE)
        partitions = None
        if options.topic is not None:
            partitions = await chosen_partitions(cluster, options.topic)
        if not any(chosen):
            _show_moves(await Moves(cluster).reassignments(partitions), options)
            return
        if partitions is None:
            fix = "ottla topic move TOPIC[:0,3]; without --brokers and the like it lists moves"
            raise Failure("no topic is named", fix=fix, code=Exit.USAGE)
        if options.log_dir is not None:
            rows, outcomes = await _to_directory(cluster, partitions, options)
        else:
            rows, outcomes = await _to_brokers(cluster, partitions, options)
        _finish(rows, outcomes, MOVE_COLUMNS, options, _refused)

    run(options, command)


def elect(options: Namespace) -> None:
    """Let preferred replicas lead."""

    async def command(cluster: Cluster) -> None:
        partitions = await chosen_partitions(cluster, options.topic)
        outcomes = await Moves(cluster).elect(partitions, is_unclean=options.unclean)
        view = await cluster.refresh([options.topic.partition(":")[0]])
        rows: dict[TopicPartition, Row] = {}
        for each in partitions:
            there = view.topic(each.topic).partitions[each.partition]
            preferred = there.replicas[0] if there.replicas else None
            rows[each] = {
                "topic": each.topic,
                "partition": each.partition,
                "leader": there.leader if there.leader >= 0 else None,
                "preferred": preferred,
            }
        _finish(rows, outcomes, LEADER_COLUMNS, options, _refused_election)

    run(options, command)


async def _to_brokers(
    cluster: Cluster, partitions: list[TopicPartition], options: Namespace
) -> tuple[dict[TopicPartition, Row], Outcomes]:
    target = None if options.cancel else options.brokers
    view = await cluster.refresh([partitions[0].topic])
    for each in target or ():
        if each not in view.brokers:
            there = ", ".join(map(str, sorted(view.brokers)))
            why = f"the cluster has {there}"
            raise Failure(f"there is no broker {each}", why=why, code=Exit.NOT_FOUND)
    rows: dict[TopicPartition, Row] = {}
    for each in partitions:
        replicas = view.topic(each.topic).partitions[each.partition].replicas
        rows[each] = {
            "topic": each.topic,
            "partition": each.partition,
            "from": _numbers(replicas),
            "to": "as before" if target is None else _numbers(target),
        }
    if options.dry_run:
        return rows, {}
    return rows, await Moves(cluster).reassign(dict.fromkeys(partitions, target))


async def _to_directory(
    cluster: Cluster, partitions: list[TopicPartition], options: Namespace
) -> tuple[dict[TopicPartition, Row], Outcomes]:
    dirs = await Partitions(cluster).log_dirs(partitions)
    brokers = {each.broker_id for each in dirs}
    broker_id = options.broker
    if broker_id is None:
        if len(brokers) > 1:
            fix = "--broker N says whose directory it is"
            raise Failure("the cluster has several brokers", fix=fix, code=Exit.USAGE)
        broker_id = min(brokers)
    if broker_id not in brokers:
        raise Failure(f"there is no broker {broker_id}", code=Exit.NOT_FOUND)
    paths = [each.path for each in dirs if each.broker_id == broker_id]
    if options.log_dir not in paths:
        why = f"broker {broker_id} has {', '.join(paths)}"
        raise Failure(f"there is no {options.log_dir}", why=why, code=Exit.NOT_FOUND)
    rows: dict[TopicPartition, Row] = {}
    for log_dir in dirs:
        for each in log_dir.replicas:
            if log_dir.broker_id == broker_id and not each.is_future:
                rows[each.partition] = {
                    "topic": each.partition.topic,
                    "partition": each.partition.partition,
                    "from": log_dir.path,
                    "to": options.log_dir,
                }
    if not rows:
        raise Failure(f"broker {broker_id} has no replica of that", code=Exit.NOT_FOUND)
    if options.dry_run:
        return rows, {}
    return rows, await Moves(cluster).move_to_directory(broker_id, options.log_dir, sorted(rows))


def _show_moves(found: Mapping[TopicPartition, Reassignment], options: Namespace) -> None:
    rows: list[Row] = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "replicas": _numbers(reassignment.replicas),
            "adding": _numbers(reassignment.adding),
            "removing": _numbers(reassignment.removing),
        }
        for each, reassignment in sorted(found.items())
    ]
    write_rows(rows, STATUS_COLUMNS, out.chosen(options.output), header=not options.no_header)
    if not rows:
        note("no replica is on its way")


def _finish(
    rows: dict[TopicPartition, Row],
    outcomes: Outcomes,
    columns: tuple[str, ...],
    options: Namespace,
    word: Callable[[KafkaError | None], str],
) -> None:
    """Print the rows, each with what came of it. Raises Failure if something was refused."""
    told: list[Row] = [
        {**row, "note": word(outcomes.get(each))} for each, row in sorted(rows.items())
    ]
    write_rows(told, columns, out.chosen(options.output), header=not options.no_header)
    if getattr(options, "dry_run", False):
        note("nothing was moved (--dry-run)")
    failed = [
        error
        for error in outcomes.values()
        if error is not None and error.code is not ErrorCode.ELECTION_NOT_NEEDED
    ]
    if failed:
        first = explain(failed[0])
        what = f"{len(failed)} of {len(outcomes)} partitions were refused: {first.what}"
        raise Failure(what, why=first.why, code=first.code)


def _refused(error: KafkaError | None) -> str:
    return "" if error is None else error.code.name


def _refused_election(error: KafkaError | None) -> str:
    if error is None:
        return "elected"
    return "leads already" if error.code is ErrorCode.ELECTION_NOT_NEEDED else error.code.name


def _numbers(brokers: tuple[int, ...] | list[int]) -> str:
    return ",".join(map(str, brokers))
