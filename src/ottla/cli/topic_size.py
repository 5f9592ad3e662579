"""``ottla topic size``: how many bytes topics take, on which brokers and disks."""

from argparse import Namespace
from collections.abc import Iterable

from ottla.cli import output as out
from ottla.cli.output import Row, note, write_rows
from ottla.cli.run import run
from ottla.cli.topic_choice import existing_topic
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.partitions import LogDir, Partitions, ReplicaLog
from ottla.config.human import size_text
from ottla.ids import TopicPartition

TOPIC_COLUMNS = ("topic", "partitions", "replicas", "size", "on_disks", "largest")
REPLICA_COLUMNS = ("topic", "partition", "broker_id", "log_dir", "size", "offset_lag", "note")


def size(options: Namespace) -> None:
    """Tell how many bytes topics take."""

    async def command(cluster: Cluster) -> None:
        wanted = [
            TopicPartition(name, index)
            for name in options.topics
            for index in (await existing_topic(cluster, name)).partitions
        ]
        found = await Partitions(cluster).log_dirs(wanted if options.topics else None)
        is_of_replicas = options.replicas or len(options.topics) == 1
        rows = replica_rows(found) if is_of_replicas else topic_rows(found)
        columns = REPLICA_COLUMNS if is_of_replicas else TOPIC_COLUMNS
        write_rows(rows, columns, out.chosen(options.output), header=not options.no_header)
        note(f"{size_text(_total(found))} in all")

    run(options, command)


def topic_rows(found: Iterable[LogDir]) -> list[Row]:
    """Return a row for each topic, the largest first.

    ``size`` counts the largest replica of each partition, ``on_disks`` every replica.
    """
    replicas: dict[str, list[ReplicaLog]] = {}
    for log_dir in found:
        for each in log_dir.replicas:
            replicas.setdefault(each.partition.topic, []).append(each)
    rows: list[tuple[int, Row]] = []
    for topic, all_of_it in replicas.items():
        largest: dict[int, int] = {}
        for each in all_of_it:
            index = each.partition.partition
            largest[index] = max(each.size_bytes, largest.get(index, 0))
        size_bytes = sum(largest.values())
        disk_bytes = sum(each.size_bytes for each in all_of_it)
        row: Row = {
            "topic": topic,
            "partitions": len(largest),
            "replicas": len(all_of_it),
            "size": size_text(size_bytes),
            "size_bytes": size_bytes,
            "on_disks": size_text(disk_bytes),
            "on_disks_bytes": disk_bytes,
            "largest": size_text(max(largest.values())),
            "largest_bytes": max(largest.values()),
        }
        rows.append((size_bytes, row))
    rows.sort(key=lambda each: (-each[0], str(each[1]["topic"])))
    return [row for _, row in rows]


def replica_rows(found: Iterable[LogDir]) -> list[Row]:
    """Return a row for each replica, by topic and partition."""
    placed = [(each, log_dir) for log_dir in found for each in log_dir.replicas]
    placed.sort(key=lambda pair: (pair[0].partition, pair[1].broker_id))
    return [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "broker_id": log_dir.broker_id,
            "log_dir": log_dir.path,
            "size": size_text(each.size_bytes),
            "size_bytes": each.size_bytes,
            "offset_lag": each.offset_lag,
            "note": "moving here" if each.is_future else "",
        }
        for each, log_dir in placed
    ]


def _total(found: Iterable[LogDir]) -> int:
    return sum(each.size_bytes for log_dir in found for each in log_dir.replicas)
