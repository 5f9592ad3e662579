"""The committed offsets of a shard's groups, and those that wait for a transaction to end. Pure.

Holds what the log says and nothing else: every change comes by ``put``, ``remove`` and
``end_transaction``, in the order of the log. Knows nothing of members or of requests.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.ids import NULL_TOPIC_ID, TopicId

NEVER_EXPIRES = -1
TAKEN_PER_STEP = 256
"""Offsets of a transaction that count when it ends: some 0.2 ms of work."""
_NOTHING: Mapping[str, dict[int, "CommittedOffset"]] = {}


class CommittedOffset(NamedTuple):
    """How far a group has read one partition."""

    offset: int
    leader_epoch: int
    """Of the last record read; -1: not told."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NEVER_EXPIRES
    """When it expires if its client asked for a time of its own; else -1."""
    topic_id: TopicId = NULL_TOPIC_ID
    record_offset: int = -1
    """Where it stands in the log: of two, the later one counts."""


class OffsetKey(NamedTuple):
    """What a committed offset is of."""

    group: str
    topic: str
    partition: int


class PartitionOffset(NamedTuple):
    """A committed offset and what it is of."""

    topic: str
    partition: int
    committed: CommittedOffset


GroupOffsets = dict[str, dict[int, CommittedOffset]]
"""By topic and partition."""


class Offsets:
    """By group; see the module."""

    def __init__(self) -> None:
        self._committed: dict[str, GroupOffsets] = {}
        self._pending: dict[int, dict[str, GroupOffsets]] = {}
        """Of open transactions, by producer id. Invariant: no empty dictionary in it."""
        self._open: dict[str, set[int]] = {}
        """The producers with pending offsets of a group. Invariant: mirrors ``_pending``."""

    def put(
        self, group: str, topic: str, partition: int, value: CommittedOffset, producer_id: int = -1
    ) -> None:
        """Take a commit; in a transaction (``producer_id`` >= 0) it is pending."""
        if producer_id < 0:
            _put(self._committed, group, topic, partition, value)
        else:
            _put(self._pending.setdefault(producer_id, {}), group, topic, partition, value)
            self._open.setdefault(group, set()).add(producer_id)

    def put_all(
        self,
        group: str,
        topic: str,
        values: Sequence[tuple[int, CommittedOffset]],
        producer_id: int = -1,
    ) -> None:
        """Take a commit of partitions of one topic, as ``put`` takes each."""
        if producer_id >= 0:
            for partition, value in values:
                self.put(group, topic, partition, value, producer_id)
        elif values:
            self._committed.setdefault(group, {}).setdefault(topic, {}).update(values)

    def remove(self, group: str, topic: str, partition: int) -> None:
        """Forget an offset, pending ones too."""
        _remove(self._committed, group, topic, partition)
        for producer_id in list(self._open.get(group, ())):
            groups = self._pending[producer_id]
            _remove(groups, group, topic, partition)
            if group not in groups:
                self._close(group, producer_id)
                if not groups:
                    del self._pending[producer_id]

    def end_transaction(self, producer_id: int, *, committed: bool) -> Iterator[None]:
        """Take or drop what the producer wrote, in steps; nothing else may be put meanwhile.

        What is not taken yet is pending until then.
        """
        groups = self._pending.get(producer_id, {})
        while groups:
            group, topics = next(iter(groups.items()))
            while topics:
                topic, partitions = next(iter(topics.items()))
                if committed:
                    yield from self._take(group, topic, partitions)
                del topics[topic]
            del groups[group]
            self._close(group, producer_id)
            if not groups:
                del self._pending[producer_id]
            yield

    def _take(
        self, group: str, topic: str, partitions: Mapping[int, CommittedOffset]
    ) -> Iterator[None]:
        """Take what a transaction wrote of a topic, unless a later commit is there."""
        for count, (partition, value) in enumerate(partitions.items(), 1):
            known = self.get(group, topic, partition)
            if known is None or value.record_offset > known.record_offset:
                self.put(group, topic, partition, value)
            if not count % TAKEN_PER_STEP:
                yield

    def _close(self, group: str, producer_id: int) -> None:
        producers = self._open[group]
        producers.discard(producer_id)
        if not producers:
            del self._open[group]

    def get(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return a committed offset, None when there is none."""
        partitions = self._committed.get(group, _NOTHING).get(topic)
        return None if partitions is None else partitions.get(partition)

    def of_group(self, group: str) -> Mapping[str, dict[int, CommittedOffset]]:
        """Return what a group has committed, by topic and partition."""
        return self._committed.get(group, _NOTHING)

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        """Tell whether a transaction that has not ended commits an offset of the partition."""
        return any(
            partition in self._pending[producer_id].get(group, _NOTHING).get(topic, ())
            for producer_id in self._open.get(group, ())
        )

    def has_open_transaction(self, group: str) -> bool:
        """Tell whether any offset of the group is pending."""
        return group in self._open

    def all_of_group(self, group: str) -> list[tuple[str, int]]:
        """Return every partition that the group has an offset of, pending ones too."""
        found = {(one.topic, one.partition): None for one in _flat(self._committed.get(group, {}))}
        for producer_id in self._open.get(group, ()):
            for one in _flat(self._pending[producer_id].get(group, {})):
                found.setdefault((one.topic, one.partition))
        return list(found)

    def committed_of_group(self, group: str) -> Iterator[PartitionOffset]:
        """Yield every committed offset of the group."""
        return _flat(self._committed.get(group, {}))

    def of_topics(self, topics: Collection[str]) -> Iterator[list[OffsetKey]]:
        """Yield, group by group, what there is of ``topics``, pending ones too.

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
        producers = {
            (group, producer_id) for group, ids in self._open.items() for producer_id in ids
        }
        assert producers == {
            (group, producer_id)
            for producer_id, groups in self._pending.items()
            for group in groups
        }
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
