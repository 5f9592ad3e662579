"""``ottla cluster status``: each node, whether it is up, what it leads and what is offline with it.

Of any Kafka cluster. A node that is down is known by the partitions that are placed on it. One that
has none is told by clusters that name fenced brokers (Kafka from 4.0 on, and Ottla).
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from ottla.cli import output as out
from ottla.cli.output import Row, Value, write_rows
from ottla.cli.run import run
from ottla.client.asyncio.admin import Admin
from ottla.client.asyncio.cluster import Cluster
from ottla.client.wire.settings import Address
from ottla.client.wire.view import NO_LEADER, PartitionView, TopicView

STATUS_COLUMNS = (
    "node_id", "state", "host", "port", "rack", "controller", "leads", "replicas", "offline",
)  # fmt: skip


def status(options: Namespace) -> None:
    """List the nodes, those that are down too."""

    async def command(cluster: Cluster) -> None:
        admin = Admin(cluster)
        fenced = await admin.fenced_brokers()
        topics = await admin.list_topics()
        view = cluster.view
        rows = nodes_of(view.brokers, view.racks, view.controller_id, topics, fenced)
        write_rows(rows, STATUS_COLUMNS, out.chosen(options.output), header=not options.no_header)

    run(options, command)


def nodes_of(
    brokers: Mapping[int, Address],
    racks: Mapping[int, str | None],
    controller_id: int,
    topics: Iterable[TopicView],
    fenced: Collection[int] = (),
) -> list[Row]:
    """Return a row for each node that is up, ``fenced`` or has a replica, by id."""
    partitions = [(topic.name, each) for topic in topics for each in topic.partitions.values()]
    leads = Counter(each.leader for _, each in partitions)
    replicas = Counter(node for _, each in partitions for node in each.replicas)
    offline: dict[int, list[Value]] = {}
    for topic, each in partitions:
        for node in each.replicas if each.leader == NO_LEADER else ():
            offline.setdefault(node, []).append(_name(topic, each))
    rows: list[Row] = []
    for node in sorted({*brokers, *replicas, *fenced}):
        address = brokers.get(node)
        rows.append(
            {
                "node_id": node,
                "state": "down" if address is None else "up",
                "host": None if address is None else address.host,
                "port": None if address is None else address.port,
                "rack": racks.get(node),
                "controller": node == controller_id,
                "leads": leads[node],
                "replicas": replicas[node],
                "offline": len(offline.get(node, ())),
                "offline_partitions": offline.get(node, []),
            }
        )
    return rows


def _name(topic: str, partition: PartitionView) -> str:
    return f"{topic}-{partition.partition}"
