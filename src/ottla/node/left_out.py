"""Which partitions nobody would serve, because their nodes are not started.

Several nodes of one host have one set of data: whoever starts fewer of them has to be told. Pure.
"""

from collections.abc import Collection

from ottla.ids import NodeId, TopicPartition
from ottla.metadata.image import MetadataImage

NAMED_MAX = 5


def left_out(
    image: MetadataImage, started: Collection[NodeId]
) -> dict[NodeId, list[TopicPartition]]:
    """Return, by node that is not among ``started``, the partitions that have a replica there."""
    found: dict[NodeId, list[TopicPartition]] = {}
    for name in sorted(image.topics):
        for partition, state in enumerate(image.topics[name].partitions):
            for node in state.replicas:
                if node not in started:
                    found.setdefault(node, []).append(TopicPartition(name, partition))
    return dict(sorted(found.items()))


def tell(found: dict[NodeId, list[TopicPartition]]) -> str:
    """Return a text that names the nodes with some of their partitions."""
    return "; ".join(
        f"node {node} has {_count(partitions)} ({_some(partitions)})"
        for node, partitions in found.items()
    )


def _count(partitions: list[TopicPartition]) -> str:
    return "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"


def _some(partitions: list[TopicPartition]) -> str:
    names = ", ".join(map(str, partitions[:NAMED_MAX]))
    return names if len(partitions) <= NAMED_MAX else f"{names}, ..."
