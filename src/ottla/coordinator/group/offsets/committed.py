"""The committed offsets of a shard's groups, and the pending offsets of open transactions. Pure.

Holds what the log says and nothing else: ``put``, ``remove`` and ``end_transaction`` make every
change, in the order of the log. Knows nothing of members or of requests.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.ids import NULL_TOPIC_ID, TopicId

NEVER_EXPIRES = -1
TAKEN_PER_STEP = 256
"""Offsets of a transaction that are taken in one step: some 0.2 ms of work."""
_NOTHING: Mapping[str, dict[int, "CommittedOffset"]] = {}
_NOBODY: Mapping[tuple[str, int], set[int]] = {}


class CommittedOffset(NamedTuple):
    """How far a group has read a partition."""

    offset: int
    leader_epoch: int
    """The epoch of the last record read; -1: not told."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NEVER_EXPIRES
    """When the offset expires, if its client asked for a retention of its own; else -1."""
    topic_id: TopicId = NULL_TOPIC_ID
    record_offset: int = -1
    """The offset of its record in the log: of two commits, the later one counts."""


class OffsetKey(NamedTuple):
    """The group and partition of a committed offset."""

    group: str
    topic: str
    partition: int


class PartitionOffset(NamedTuple):
    """A committed offset and its partition."""

    topic: str
    partition: int
    committed: CommittedOffset


GroupOffsets = dict[str, dict[int, CommittedOffset]]
"""A group's offsets by topic and partition."""


class Offsets:
    """The offsets of all groups of a shard."""

    def __init__(self) -> None:
        self._committed: dict[str, GroupOffsets] = {}
        self._pending: dict[int, dict[str, GroupOffsets]] = {}
        """Pending offsets of open transactions, by producer id. Invariant: no empty dictionary."""
        self._open: dict[str, dict[tuple[str, int], set[int]]] = {}
        """The producers with pending offsets, by group and partition. A look at each producer of a
        group took long where there are thousands. Invariant: mirrors ``_pending``."""

    def put(
        self, group: str, topic: str, partition: int, value: CommittedOffset, producer_id: int = -1
    ) -> None:
        """Take a commit; a commit in a transaction (``producer_id`` >= 0) is pending."""
        if producer_id < 0:
            _put(self._committed, group, topic, partition, value)
        else:
            _put(self._pending.setdefault(producer_id, {}), group, topic, partition, value)
            producers = self._open.setdefault(group, {}).setdefault((topic, partition), set())
            producers.add(producer_id)

    def put_all(
        self,
        group: str,
        topic: str,
        values: Sequence[tuple[int, CommittedOffset]],
        producer_id: int = -1,
    ) -> None:
        """Take a commit of several partitions of one topic, each as ``put`` does."""
        if producer_id >= 0:
            for partition, value in values:
                self.put(group, topic, partition, value, producer_id)
        elif values:
            self._committed.setdefault(group, {}).setdefault(topic, {}).update(values)

    def remove(self, group: str, topic: str, partition: int) -> None:
        """Remove an offset, and pending ones of the partition."""
        _remove(self._committed, group, topic, partition)
        for producer_id in list(self._open.get(group, _NOBODY).get((topic, partition), ())):
            self._settle(producer_id, group, topic, partition)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> Iterator[None]:
        """Take or drop a producer's pending offsets, in steps; no other change may come between.

        Offsets that are not taken yet stay pending.
        """
        groups = self._pending.get(producer_id, {})
        count = 0
        while groups:
            group, topics = next(iter(groups.items()))
            while topics:
                topic, partitions = next(iter(topics.items()))
                for partition, value in list(partitions.items()):
                    if is_commit:
                        self._take(group, topic, partition, value)
                    self._settle(producer_id, group, topic, partition)
                    count += 1
                    if not count % TAKEN_PER_STEP:
                        yield
            yield

    def _take(self, group: str, topic: str, partition: int, value: CommittedOffset) -> None:
        """Take an offset of a transaction, unless a later commit counts."""
        known = self.get(group, topic, partition)
        if known is None or value.record_offset > known.record_offset:
            self.put(group, topic, partition, value)

    def _settle(self, producer_id: int, group: str, topic: str, partition: int) -> None:
        """Forget a pending offset."""
        groups = self._pending[producer_id]
        _remove(groups, group, topic, partition)
        if not groups:
            del self._pending[producer_id]
        places = self._open[group]
        producers = places[topic, partition]
        producers.remove(producer_id)
        if not producers:
            del places[topic, partition]
            if not places:
                del self._open[group]

    def get(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return a committed offset; None: there is none."""
        partitions = self._committed.get(group, _NOTHING).get(topic)
        return None if partitions is None else partitions.get(partition)

    def of_group(self, group: str) -> Mapping[str, dict[int, CommittedOffset]]:
        """Return a group's committed offsets, by topic and partition."""
        return self._committed.get(group, _NOTHING)

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        """Tell whether an open transaction has a pending offset of the partition."""
        return (topic, partition) in self._open.get(group, _NOBODY)

    def has_open_transaction(self, group: str) -> bool:
        """Tell whether any offset of the group is pending."""
        return group in self._open

    def all_of_group(self, group: str) -> list[tuple[str, int]]:
        """Return every partition of which the group has an offset, pending offsets included."""
        found = {(one.topic, one.partition): None for one in _flat(self._committed.get(group, {}))}
        found.update(dict.fromkeys(self._open.get(group, ())))
        return list(found)

    def committed_of_group(self, group: str) -> Iterator[PartitionOffset]:
        """Yield every committed offset of the group."""
        return _flat(self._committed.get(group, {}))

    def of_topics(self, topics: Collection[str]) -> Iterator[list[OffsetKey]]:
        """Yield, group by group, the offsets of ``topics``, pending ones included.

        The groups are those of the first step; a group may come more than once.
        """
        for groups in (self._committed, *self._pending.values()):
            for group in list(groups):
                of_group = groups.get(group, _NOTHING)
                yield [
                    OffsetKey(group, topic, partition)
                    for topic in of_group.keys() & topics
                    for partition in of_group[topic]
                ]

    def check(self) -> None:
        """Assert the invariants; for tests."""
        opened = {
            (group, *place, producer_id)
            for group, places in self._open.items()
            for place, producers in places.items()
            for producer_id in producers
        }
        assert opened == {
            (group, one.topic, one.partition, producer_id)
            for producer_id, groups in self._pending.items()
            for group, topics in groups.items()
            for one in _flat(topics)
        }
        assert all(places and all(places.values()) for places in self._open.values())
        for groups in (self._committed, *self._pending.values()):
            assert all(topics and all(topics.values()) for topics in groups.values())


def _put(
    groups: dict[str, GroupOffsets], group: str, topic: str, partition: int, value: CommittedOffset
) -> None:
    topics = groups.get(group)
    if topics is None:
        topics = groups[group] = {}
    partitions = topics.get(topic)
    if partitions is None:
        partitions = topics[topic] = {}
    partitions[partition] = value


def _remove(groups: dict[str, GroupOffsets], group: str, topic: str, partition: int) -> None:
    topics = groups.get(group)
    partitions = None if topics is None else topics.get(topic)
    if topics is None or partitions is None or partition not in partitions:
        return
    del partitions[partition]
    if not partitions:
        del topics[topic]
        if not topics:
            del groups[group]


def _flat(topics: GroupOffsets) -> Iterator[PartitionOffset]:
    for topic, partitions in topics.items():
        for partition, value in partitions.items():
            yield PartitionOffset(topic, partition, value)
