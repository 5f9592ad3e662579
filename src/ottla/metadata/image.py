"""The cluster as this node knows it: topics, partitions, configs, brokers, controller.

Owns what the metadata store's keys mean to readers; decides nothing. A Mirror feeds it; handlers
and ReplicaManager read it by O(1) lookups. Source: design D9, cluster design 4.2-4.3.

The image is one object that changes in place, one whole commit at a time. Its values (TopicImage,
PartitionState, BrokerImage) are immutable and may be kept. (A new image per commit would copy every
table; trees that share parts would make each lookup slower.) It never changes while a reader runs
without an await, so read what belongs together without one.

A topic is visible when ``topics/<name>`` exists, with its partitions ``[0, count)``. So a creation
or deletion that takes several commits appears as one step.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ottla.env.clock import Clock
from ottla.ids import NodeId, QuotaEntity, TopicId, TopicPartition
from ottla.metadata.keys import ConfigType, KeyKind, Keys, Place
from ottla.metadata.mirror import Mirror
from ottla.metadata.store import Change, ChangeSet, Entry, MetadataStore
from ottla.metadata.values import (
    NO_LEADER,
    NO_STATE,
    BrokerValue,
    PartitionState,
    TopicValue,
    UnreadableValue,
    decode_broker,
    decode_config,
    decode_controller,
    decode_meta,
    decode_partition,
    decode_quota,
    decode_scram,
    decode_topic,
)
from ottla.security.credentials import ScramCredentials

if TYPE_CHECKING:
    from ottla.security.acl import Acl

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
_EMPTY: Mapping[str, str] = MappingProxyType({})


class TopicImage(NamedTuple):
    """A topic at one moment. ``partitions[n]`` is partition ``n`` (NO_STATE: it has no key)."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionState, ...]
    grown_from: int = 0
    """See ``TopicValue``."""

    @property
    def first_count(self) -> int:
        """The number of partitions that the topic was created with."""
        return self.grown_from or len(self.partitions)


def state_of(topics: Mapping[str, TopicImage], where: TopicPartition) -> PartitionState | None:
    """Return what ``topics``, by name, say of a partition; None: they have none of that name."""
    topic = topics.get(where.topic)
    partitions = () if topic is None else topic.partitions
    return partitions[where.partition] if 0 <= where.partition < len(partitions) else None


class BrokerImage(NamedTuple):
    """A live broker. ``epoch`` is its registration's create revision."""

    node: NodeId
    epoch: int
    registration: BrokerValue


class PartitionChange(NamedTuple):
    """A partition before and after a change. ``old`` None: it is new; ``new`` None: deleted."""

    topic: str
    topic_id: TopicId
    partition: int
    old: PartitionState | None
    new: PartitionState | None


class AclChange(NamedTuple):
    """An ACL before and after a change; None: there is none. Its hash has no other ACL, ever."""

    old: Acl | None
    new: Acl | None


class MetadataDelta(NamedTuple):
    """What one change set changed in the image.

    ``partitions`` includes those of created and deleted topics. A topic that was replaced by one
    with the same name and another id counts as deleted and created.
    """

    revision: int
    topics_created: tuple[TopicImage, ...] = ()
    topics_deleted: tuple[TopicImage, ...] = ()
    partitions: tuple[PartitionChange, ...] = ()
    configs: tuple[tuple[ConfigType, str], ...] = ()
    brokers: tuple[NodeId, ...] = ()
    """Nodes that registered, registered again, or left."""
    controller_changed: bool = False
    quotas: tuple[QuotaEntity, ...] = ()
    """Entities whose quotas were set, changed or removed."""
    acls: tuple[AclChange, ...] = ()

    def __bool__(self) -> bool:
        return bool(
            self.topics_created
            or self.topics_deleted
            or self.partitions
            or self.configs
            or self.brokers
            or self.controller_changed
            or self.quotas
            or self.acls
        )


class UnsupportedMetadata(UnreadableValue):
    """The store has a format that this version does not know."""


class _Touched:
    """What one change set touches, before the touched topics are rebuilt."""

    __slots__ = ("acls", "brokers", "configs", "controller", "partitions", "quotas", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, None] = {}  # A set that keeps its order.
        self.partitions: dict[TopicId, set[int]] = {}
        self.configs: dict[tuple[ConfigType, str], None] = {}
        self.brokers: dict[NodeId, None] = {}
        self.controller = False
        self.quotas: dict[QuotaEntity, None] = {}
        self.acls: list[AclChange] = []


class MetadataImage:
    """The cluster's metadata in memory. Only ``ImageFollower`` calls ``apply``."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._topics: dict[str, TopicImage] = {}
        self._names: dict[TopicId, str] = {}
        self._values: dict[str, TopicValue] = {}
        # Also of topics that are not visible: partitions may be committed before or after a topic.
        self._states: dict[TopicId, dict[int, PartitionState]] = {}
        self._configs: dict[tuple[ConfigType, str], Mapping[str, str]] = {}
        self._configured: Counter[ConfigType] = Counter()
        """Invariant: how many names of each type are in ``_configs``."""
        self._brokers: dict[NodeId, BrokerImage] = {}
        self._unreadable: dict[str, str] = {}
        self.known: set[NodeId] = set()
        """The nodes that belong to the cluster, whether they run or not; live, read-only."""
        self.revision = 0
        """The revision that the image shows. *Invariant:* never falls."""
        self.cluster_id = ""
        """Empty until ``meta`` is written."""
        self.controller = NO_LEADER
        """The controller's node id, -1 when there is none."""
        self.controller_since = 0
        """The revision that made it the controller; 0 when there is none."""
        self.credentials = ScramCredentials()
        """What users log in with; live, read-only."""
        self._quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        self.quotas: Mapping[QuotaEntity, Mapping[str, float]] = MappingProxyType(self._quotas)
        """Bounds by key, for each entity that has a quota; a read-only view."""
        self._acls: dict[str, Acl] = {}
        self.acls: Mapping[str, Acl] = MappingProxyType(self._acls)
        """All ACLs, by their hash; a read-only view."""
        self.topics: Mapping[str, TopicImage] = MappingProxyType(self._topics)
        """All topics by name; a read-only view."""
        self.brokers: Mapping[NodeId, BrokerImage] = MappingProxyType(self._brokers)
        """The live brokers by id; a read-only view."""
        self.unreadable: Mapping[str, str] = MappingProxyType(self._unreadable)
        """Keys whose value this version cannot read, and why; their last readable value counts."""

    def topic(self, name: str) -> TopicImage | None:
        """Return the topic with this name, or None."""
        return self._topics.get(name)

    def topic_by_id(self, topic_id: TopicId) -> TopicImage | None:
        """Return the topic with this id, or None."""
        name = self._names.get(topic_id)
        return None if name is None else self._topics.get(name)

    def partition(self, partition: TopicPartition) -> PartitionState | None:
        """Return the state of a partition, or None when the topic has no such partition."""
        return state_of(self._topics, partition)

    def racks(self, topic: TopicImage) -> tuple[tuple[str, ...], ...]:
        """Return for each partition the racks of its replicas on live brokers that have a rack."""
        racks = {
            node: broker.registration.rack
            for node, broker in self._brokers.items()
            if broker.registration.rack is not None
        }
        if not racks:
            return ((),) * len(topic.partitions)
        return tuple(
            tuple(racks[node] for node in partition.replicas if node in racks)
            for partition in topic.partitions
        )

    def config(self, config_type: ConfigType, name: str) -> Mapping[str, str]:
        """Return the configs set for ``name`` ("": the type's default); empty if there are none."""
        return self._configs.get((config_type, name), _EMPTY)

    def configured(self, config_type: ConfigType) -> list[str]:
        """Return the names of this type that have a config, sorted."""
        return sorted(name for of_type, name in self._configs if of_type is config_type)

    def configured_count(self, config_type: ConfigType) -> int:
        """Return how many names of this type have a config."""
        return self._configured[config_type]

    def apply(self, change_set: ChangeSet) -> MetadataDelta:
        """Apply one change set; return what it changed. The cost depends on the touched topics.

        Raises UnsupportedMetadata when the store has an unknown format.
        """
        touched = _Touched()
        for change in change_set.changes:
            self._take(change, touched)
        self.revision = change_set.rev
        return self._settle(touched)

    def _take(self, change: Change, touched: _Touched) -> None:
        place = self._keys.place(change.key)
        take = _TAKERS.get(place.kind)
        if take is None:
            return
        try:
            take(self, place, change.entry, touched)
        except UnsupportedMetadata:
            raise
        except UnreadableValue as error:
            self._unreadable[change.key] = str(error)
            logger.error("metadata key %s is unreadable and ignored: %s", change.key, error)  # noqa: TRY400 - the values are in it
        else:
            self._unreadable.pop(change.key, None)

    def _take_meta(self, place: Place, entry: Entry | None, touched: _Touched) -> None:
        if entry is None:
            return
        try:
            meta = decode_meta(entry.value)
        except UnreadableValue as error:
            raise UnsupportedMetadata(f"{entry.key}: {error}") from error
        if meta.format_version != FORMAT_VERSION:
            raise UnsupportedMetadata(
                f"{entry.key}: format {meta.format_version}; this Ottla reads {FORMAT_VERSION}"
            )
        self.cluster_id = meta.cluster_id

    def _take_controller(self, place: Place, entry: Entry | None, touched: _Touched) -> None:
        self.controller = NO_LEADER if entry is None else decode_controller(entry.value)
        self.controller_since = 0 if entry is None else entry.create_rev
        touched.controller = True

    def _take_broker(self, place: Place, entry: Entry | None, touched: _Touched) -> None:
        node = NodeId(place.number)
        if entry is None:
            self._brokers.pop(node, None)
        else:
            registration = decode_broker(entry.value)
            self._brokers[node] = BrokerImage(node, entry.create_rev, registration)
        touched.brokers[node] = None

    def _take_known(self, place: Place, entry: Entry | None, touched: _Touched) -> None:
        node = NodeId(place.number)
        if entry is None:
            self.known.discard(node)
        else:
            self.known.add(node)

    def _take_config(self, place: Place, entry: Entry | None, touched: _Touched) -> None:
        assert place.config_type is not None
        which = (place.config_type, place.name)
        if entry is None:
            if self._configs.pop(which, None) is not None:
                self._configured[place.config_type] -= 1
        else:
            if which not in self._configs:
                self._configured[place.config_type] += 1
            self._configs[which] = MappingProxyType(dict(decode_config(entry.value)))
        touched.configs[which] = None

    def _take_scram(self, place: Place, entry: Entry | None, touched: _Touched) -> None:
        if entry is None:
            self.credentials.remove(place.mechanism, place.name)
        else:
            self.credentials.set(place.mechanism, place.name, decode_scram(entry.value))

    def _take_quota(self, place: Place, entry: Entry | None, touched: _Touched) -> None:
        assert place.entity is not None
        if entry is None:
            self._quotas.pop(place.entity, None)
        else:
            self._quotas[place.entity] = MappingProxyType(dict(decode_quota(entry.value)))
        touched.quotas[place.entity] = None

    def _take_acl(self, place: Place, entry: Entry | None, touched: _Touched) -> None:
        new = None
        if entry is not None:
            from ottla.metadata.acl_values import decode_acl  # noqa: PLC0415 - few have ACLs

            try:
                new = decode_acl(entry.value)
            except UnreadableValue as error:  # To go on without it might allow what it denies.
                raise UnsupportedMetadata(f"{entry.key}: {error}") from error
        old = self._acls.pop(place.name, None)
        if new is not None:
            self._acls[place.name] = new
        touched.acls.append(AclChange(old, new))

    def _take_topic(self, place: Place, entry: Entry | None, touched: _Touched) -> None:
        if entry is None:
            self._values.pop(place.name, None)
        else:
            self._values[place.name] = decode_topic(entry.value)
        touched.topics[place.name] = None

    def _take_partition(self, place: Place, entry: Entry | None, touched: _Touched) -> None:
        assert place.topic_id is not None
        if entry is not None:
            state = decode_partition(entry.value)
            self._states.setdefault(place.topic_id, {})[place.number] = state
        elif place.topic_id in self._states:
            states = self._states[place.topic_id]
            states.pop(place.number, None)
            if not states:
                del self._states[place.topic_id]
        touched.partitions.setdefault(place.topic_id, set()).add(place.number)

    def _settle(self, touched: _Touched) -> MetadataDelta:
        """Rebuild the touched topics and return what changed."""
        for topic_id in touched.partitions:
            name = self._names.get(topic_id)
            if name is not None:
                touched.topics.setdefault(name)
        created: list[TopicImage] = []
        deleted: list[TopicImage] = []
        partitions: list[PartitionChange] = []
        for name in touched.topics:
            old = self._topics.get(name)
            new = self._build(name, old, touched.partitions)
            same = old is not None and new is not None and old.topic_id == new.topic_id
            if old is not None and not same:
                deleted.append(old)
                self._names.pop(old.topic_id, None)
            if new is None:
                self._topics.pop(name, None)
            else:
                self._topics[name] = new
                self._names[new.topic_id] = name
                if not same:
                    created.append(new)
            if same and old is not None and new is not None:
                partitions += _compare(old, new, touched.partitions.get(new.topic_id, set()))
            else:
                partitions += _all_gone(old)
                partitions += _all_new(new)
        return MetadataDelta(
            revision=self.revision,
            topics_created=tuple(created),
            topics_deleted=tuple(deleted),
            partitions=tuple(partitions),
            configs=tuple(touched.configs),
            brokers=tuple(touched.brokers),
            controller_changed=touched.controller,
            quotas=tuple(touched.quotas),
            acls=tuple(touched.acls),
        )

    def _build(
        self, name: str, old: TopicImage | None, touched: Mapping[TopicId, set[int]]
    ) -> TopicImage | None:
        value = self._values.get(name)
        if value is None:
            return None
        states = self._states.get(value.topic_id, {})
        count = value.partition_count
        if old is None or old.topic_id != value.topic_id:
            partitions = [states.get(n, NO_STATE) for n in range(count)]
        else:
            # One fast copy, then only the touched partitions: a large topic costs little more.
            partitions = list(old.partitions[:count])
            partitions += [states.get(n, NO_STATE) for n in range(len(partitions), count)]
            for n in touched.get(value.topic_id, ()):
                if n < count:
                    partitions[n] = states.get(n, NO_STATE)
        return TopicImage(name, value.topic_id, tuple(partitions), value.grown_from)


_TAKERS: dict[KeyKind, Callable[[MetadataImage, Place, Entry | None, _Touched], None]] = {
    KeyKind.META: MetadataImage._take_meta,  # noqa: SLF001 - the table is part of the class.
    KeyKind.CONTROLLER: MetadataImage._take_controller,  # noqa: SLF001
    KeyKind.LIVE_BROKER: MetadataImage._take_broker,  # noqa: SLF001
    KeyKind.KNOWN_BROKER: MetadataImage._take_known,  # noqa: SLF001
    KeyKind.TOPIC: MetadataImage._take_topic,  # noqa: SLF001
    KeyKind.PARTITION: MetadataImage._take_partition,  # noqa: SLF001
    KeyKind.CONFIG: MetadataImage._take_config,  # noqa: SLF001
    KeyKind.SCRAM: MetadataImage._take_scram,  # noqa: SLF001
    KeyKind.QUOTA: MetadataImage._take_quota,  # noqa: SLF001
    KeyKind.ACL: MetadataImage._take_acl,  # noqa: SLF001
}


def _compare(old: TopicImage, new: TopicImage, touched: set[int]) -> list[PartitionChange]:
    old_count, new_count = len(old.partitions), len(new.partitions)
    numbers = touched | set(range(min(old_count, new_count), max(old_count, new_count)))
    changes = []
    for n in sorted(numbers):
        before = old.partitions[n] if n < old_count else None
        after = new.partitions[n] if n < new_count else None
        if before != after:
            changes.append(PartitionChange(new.name, new.topic_id, n, before, after))
    return changes


def _all_gone(topic: TopicImage | None) -> list[PartitionChange]:
    if topic is None:
        return []
    return [
        PartitionChange(topic.name, topic.topic_id, n, state, None)
        for n, state in enumerate(topic.partitions)
    ]


def _all_new(topic: TopicImage | None) -> list[PartitionChange]:
    if topic is None:
        return []
    return [
        PartitionChange(topic.name, topic.topic_id, n, None, state)
        for n, state in enumerate(topic.partitions)
    ]


MetadataListener = Callable[[MetadataImage, MetadataDelta], None]


class ImageFollower:
    """Keeps a MetadataImage up to date with a store and tells listeners of each change."""

    def __init__(self, store: MetadataStore, keys: Keys, clock: Clock) -> None:
        self.image = MetadataImage(keys)
        self.mirror = Mirror(store, keys.prefix, clock, self._apply)
        """The entries behind the image."""
        self._listeners: list[MetadataListener] = []

    def add_listener(self, listener: MetadataListener) -> None:
        """Call ``listener(image, delta)`` on the loop after each change.

        Listeners are called in the order in which they were added; the image is already changed. A
        listener that is added before ``start`` gets the whole image as its first delta. A listener
        must not raise: that would end the follower.
        """
        self._listeners.append(listener)

    async def start(self) -> None:
        """Read the store and follow it. Raises Unavailable, UnsupportedMetadata."""
        await self.mirror.start()

    async def reached(self, revision: int) -> None:
        """Wait until the image has reached ``revision`` and its listeners were told."""
        await self.mirror.reached(revision)

    async def catch_up(self) -> None:
        """Wait until the image has all that anybody committed before. Raises MetadataError.

        Whoever decides by the image what a change has to do asks for that first: the administrator
        may have heard from another node that it is otherwise.
        """
        await self.mirror.catch_up()

    async def close(self) -> None:
        """Stop following. The image stays as it is."""
        await self.mirror.close()

    def _apply(self, change_set: ChangeSet) -> None:
        delta = self.image.apply(change_set)
        if delta:
            for listener in self._listeners:
                listener(self.image, delta)
