"""The groups of one partition of ``__consumer_offsets``, and their offsets: what is in memory.

One registry of the groups; what happens to those of each kind is carried out in ``classic_groups``,
``consumer_groups`` and ``classic_members``. Knows nothing of requests' formats.
Source: Kafka's GroupCoordinatorShard.
"""

from __future__ import annotations  # else those of inner functions are made at each call

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from ottla.coordinator.group import records, tables
from ottla.coordinator.group.classic import events
from ottla.coordinator.group.classic_groups import ClassicGroups
from ottla.coordinator.group.classic_members import ClassicMembers
from ottla.coordinator.group.commit_timeouts import CommitTimeouts
from ottla.coordinator.group.committing import CommitRequest, Written, take
from ottla.coordinator.group.consumer import records as consumer_records
from ottla.coordinator.group.consumer.targets import Topics
from ottla.coordinator.group.consumer_groups import ConsumerGroups
from ottla.coordinator.group.expiry import expired_offsets, is_of_former, offsets_of_former
from ottla.coordinator.group.group_line import GroupLine
from ottla.coordinator.group.offsets import CommittedOffset, OffsetKey, Offsets
from ottla.coordinator.group.registry import Group, GroupKind, Registry
from ottla.coordinator.group.settings import ConsumerSettingsByGroup, GroupSettings
from ottla.coordinator.records import CoordinatorRecord, EndMarker, StoredRecord
from ottla.coordinator.shard import Shard, ShardState
from ottla.errors import KafkaError
from ottla.pending import Pending
from ottla.sliced import Steps

logger = logging.getLogger(__name__)

GroupsShard: TypeAlias = "Shard[Groups]"
_EXPIRY_TIMER = "expiry"
FORGET_RETRY_MS = 1000
"""Until what could not be forgotten is tried again."""


class GroupsOfKind(Protocol):
    """What happens to the groups of one kind."""

    def loaded(self) -> Iterator[None]:
        """Give the members of every group a new session."""

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """Return what deletes a group, without its offsets."""


class ClassicRequests(Protocol):
    """Requests of the classic protocol to a group of one kind. In the group's turn."""

    def join(self, group_id: str, event: events.Join, pending: Pending[Any]) -> None:
        """Let a member join."""

    def sync(self, group_id: str, event: events.Sync, pending: Pending[Any]) -> None:
        """Take a leader's assignment, or hand one out."""

    def heartbeat(self, group_id: str, event: events.Heartbeat, pending: Pending[Any]) -> None:
        """Keep a member alive."""

    def leave(
        self, group_id: str, members: Sequence[events.LeavingMember], pending: Pending[Any]
    ) -> None:
        """Take members out."""

    def heard_of(self, group_id: str, member_id: str) -> None:
        """Hear that a member commits."""


class Groups:
    """A shard's state machine: groups of all kinds and committed offsets."""

    def __init__(
        self,
        shard: GroupsShard,
        settings: GroupSettings,
        topics: Topics,
        consumer_settings: ConsumerSettingsByGroup | None = None,
    ) -> None:
        """``consumer_settings`` None: those of ``settings`` hold for all."""
        by_group = consumer_settings or ConsumerSettingsByGroup(settings.consumer)
        self._shard = shard
        self._settings = settings
        self._topics = topics
        self.groups = Registry()
        self.line = GroupLine(shard, self._note_changed)
        """Use: of all groups: a classic one may be about to become another."""
        self.classic = ClassicGroups(shard, settings.classic, self.groups, self.line)
        self.consumers = ConsumerGroups(
            shard, by_group, topics, groups=self.groups, classic=self.classic, line=self.line
        )
        """Those of KIP-848."""
        self._kinds: Mapping[GroupKind, GroupsOfKind] = {
            GroupKind.CLASSIC: self.classic,
            GroupKind.CONSUMER: self.consumers,
        }
        self._requests: Mapping[GroupKind, ClassicRequests] = {
            GroupKind.CLASSIC: self.classic,
            GroupKind.CONSUMER: ClassicMembers(shard, by_group, topics, self.consumers),
        }
        self.offsets = Offsets()
        self._offset_keys = records.OffsetKeyReader()
        self.commit_timeouts = CommitTimeouts(shard.timers, shard.clock, settings.commit_timeout_ms)
        self._unknown_types: set[int] = set()

    # What the runtime calls.

    def replay(self, stored: StoredRecord) -> None:
        """Take a durable record. Kinds of records that this version does not know are left."""
        kind = records.key_type(stored)
        if kind in records.OFFSET_KEY_TYPES:
            self._replay_offset(stored)
        elif kind == tables.GROUP_METADATA:
            self.classic.replay(stored)
        elif kind in consumer_records.KEY_TYPES:
            self.consumers.replay(kind, stored)
        elif kind not in self._unknown_types:
            self._unknown_types.add(kind)
            logger.warning(
                "%s has records of type %d, which this version does not serve: they stay unread",
                self._shard.where,
                kind,
            )

    def _replay_offset(self, stored: StoredRecord) -> None:
        group, topic, partition = self._offset_keys.read(stored)
        if stored.value is None:
            self.offsets.remove(group, topic, partition)
            return
        value = records.read_offset_value(stored)
        self.offsets.put(group, topic, partition, value, stored.producer_id)
        self.classic.know(group)

    def take_commit(self, request: CommitRequest, written: Written, base_offset: int) -> None:
        """Take what a durable commit says: as a replay of its records, which begin there, would."""
        producer_id = -1 if request.producer is None else request.producer.producer_id
        take(self.offsets, request.group_id, written, base_offset, producer_id)
        self.classic.know(request.group_id)

    def end_transaction(self, marker: EndMarker) -> Iterator[None]:
        """Take or drop a transaction's offsets."""
        return self.offsets.end_transaction(marker.producer_id, committed=marker.is_committed)

    def _note_changed(self, group_id: str, names: Collection[str]) -> None:
        self.consumers.note_changed(group_id, names)

    def loaded(self) -> Iterator[None]:
        """Give the members of every group a new session."""
        for kind in self._kinds.values():
            yield from kind.loaded()
        self._schedule_expiry()

    def unloaded(self, error: KafkaError) -> None:
        """Answer everybody who waits."""
        self.line.unloaded(error)
        self.classic.unloaded(error)
        self.groups.clear()
        self.offsets = Offsets()

    def committed(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return a committed offset of the topic that there is; None when there is none.

        Not one that was committed for an earlier topic of the name.
        """
        found = self.offsets.get(group, topic, partition)
        return None if found is None or is_of_former(found, topic, self._topics) else found

    def requests_to(self, group_id: str) -> ClassicRequests:
        """Return who serves requests of the classic protocol to a group.

        A group without members is what those who join make of it.
        """
        group = self.groups.get(group_id)
        kind = GroupKind.CLASSIC if group is None or group.is_empty else group.kind
        return self._requests[kind]

    # What is forgotten.

    def tombstones_of_group(self, group_id: str) -> list[CoordinatorRecord]:
        """Return what deletes a group with all its offsets."""
        found = [
            records.offset_tombstone(OffsetKey(group_id, topic, partition))
            for topic, partition in self.offsets.all_of_group(group_id)
        ]
        return found + self._tombstones(self.groups.known(group_id))

    def _tombstones(self, group: Group) -> list[CoordinatorRecord]:
        return self._kinds[group.kind].tombstones(group.group_id)

    def forget_topics(self, names: Collection[str]) -> None:
        """Forget all offsets of topics that are gone, those included that are being written.

        What cannot be written now is tried again, until a name is another topic's: then it is for
        ``expire`` to find.
        """
        self._shard.execute(
            lambda: self._shard.in_steps(self._forget_topics(frozenset(names))), _forget, alone=True
        )

    def _forget_topics(self, names: frozenset[str]) -> Iterator[None]:
        def again(error: KafkaError | None) -> None:
            if error is not None and self._shard.state is ShardState.ACTIVE:
                self._shard.timers.schedule(("forget", names), FORGET_RETRY_MS, forget_if_gone)

        def forget_if_gone() -> None:
            gone = [name for name in names if self._topics.topic(name) is None]
            if gone:
                self.forget_topics(gone)

        found: list[CoordinatorRecord] = []
        for keys in self.offsets.of_topics(names):
            found += map(records.offset_tombstone, keys)
            yield
        if self._shard.state is ShardState.ACTIVE:
            self._delete(found, again)

    def expire(self) -> None:
        """Forget what has been kept for long enough, and empty groups that nothing is left of."""
        self._shard.in_steps(self._expire())

    def _expire(self) -> Steps[None]:
        now_ms, retention_ms = self._shard.clock.wall_ms(), self._settings.offsets_retention_ms
        found: list[CoordinatorRecord] = []
        keys: list[OffsetKey] = []
        for group in list(self.groups):
            yield None
            expired, is_all = yield from expired_offsets(group, self.offsets, now_ms, retention_ms)
            if is_all and group.is_empty:
                found += self._tombstones(group)
            keys += expired
            keys += offsets_of_former(self.offsets, group.group_id, self._topics)
        if self._shard.state is ShardState.ACTIVE:
            self._delete([*map(records.offset_tombstone, keys), *found])

    def _delete(
        self,
        tombstones: list[CoordinatorRecord],
        told: Callable[[KafkaError | None], None] = lambda _: None,
    ) -> None:
        def done(error: KafkaError | None) -> None:
            if error is not None:
                logger.warning("what is to be forgotten could not be written: %s", error)
            told(error)

        if tombstones:
            self._shard.append_each(tombstones, done)

    def _schedule_expiry(self) -> None:
        def again() -> None:
            self._shard.execute(self.expire, lambda _: None, alone=True)
            if self._shard.state is ShardState.ACTIVE:
                self._schedule_expiry()

        interval_ms = self._settings.offsets_retention_check_interval_ms
        self._shard.timers.schedule(_EXPIRY_TIMER, interval_ms, again)

    def check(self) -> None:
        """Assert the invariants; for tests."""
        self.offsets.check()
        for group in self.groups:
            group.check()


def _forget(_: KafkaError) -> None:
    """Whoever waited for it is gone with the shard."""
