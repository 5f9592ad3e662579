"""Counts partitions and leaders by following the metadata image, and finds names that collide.

Thus the creation of a topic costs the same whether there are ten topics or ten thousand. Decides
nothing. Source: Kafka's rule that ``.`` and ``_`` are the same character in names of metrics.
"""

from collections import Counter

from ottla.cluster.topics import collision_key
from ottla.ids import NodeId
from ottla.metadata.image import MetadataDelta, MetadataImage


class TopicCensus:
    """The counts. Invariant: the same as a walk over the whole image would find."""

    def __init__(self, image: MetadataImage) -> None:
        self.partition_count = 0
        """Partitions of all topics."""
        self.leads: Counter[NodeId] = Counter()
        """Of how many partitions each node is the preferred leader: the first of its replicas."""
        self._names: dict[str, dict[str, None]] = {}
        """Topic names by their collision key; only names that contain ``.`` or ``_``."""
        for topic in image.topics.values():
            self.partition_count += len(topic.partitions)
            self.leads.update(state.replicas[0] for state in topic.partitions if state.replicas)
            self._enter(topic.name)

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Update the counts after a change of the image; a listener of the image's follower."""
        del image
        counts = Counter((change.old is None) - (change.new is None) for change in delta.partitions)
        self.partition_count += counts[1] - counts[-1]
        for change in delta.partitions:
            old, new = change.old, change.new
            if new is not None and new.replicas:
                self.leads[new.replicas[0]] += 1
            if old is not None and old.replicas:
                self.leads[old.replicas[0]] -= 1
        for topic in delta.topics_deleted:
            self._leave(topic.name)
        for topic in delta.topics_created:
            self._enter(topic.name)

    def twin(self, name: str) -> str | None:
        """Return a topic whose name differs from ``name`` only by ``.`` and ``_``, or None."""
        if not _may_collide(name):
            return None
        return next(iter(self._names.get(collision_key(name), ())), None)

    def _enter(self, name: str) -> None:
        if _may_collide(name):
            self._names.setdefault(collision_key(name), {})[name] = None

    def _leave(self, name: str) -> None:
        if _may_collide(name):
            key = collision_key(name)
            names = self._names.get(key, {})
            names.pop(name, None)
            if not names:
                self._names.pop(key, None)


def _may_collide(name: str) -> bool:
    return "." in name or "_" in name
