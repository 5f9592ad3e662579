"""The memory of one partition of ``__consumer_offsets``: groups, and committed offsets.

One registry has all groups; the room of each kind (``kinds``) carries out what happens to its
groups. Knows nothing of the formats of requests. Source: Kafka's GroupCoordinatorShard.
"""

from __future__ import annotations  # else those of inner functions are made at each call

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeAlias, TypeVar

from ottla.coordinator.group.classic.groups import ClassicGroups
from ottla.coordinator.group.classic.requests import ClassicRequests
from ottla.coordinator.group.consumer.settings import ConsumerSettingsByGroup
from ottla.coordinator.group.group_line import GroupLine
from ottla.coordinator.group.kinds import Common, Kind, MakeKinds, kinds_of
from ottla.coordinator.group.offsets import records
from ottla.coordinator.group.offsets.commit_timeouts import CommitTimeouts
from ottla.coordinator.group.offsets.committed import CommittedOffset, OffsetKey, Offsets
from ottla.coordinator.group.offsets.committing import CommitRequest, Written, take
from ottla.coordinator.group.offsets.expiry import expired_offsets, is_of_former, offsets_of_former
from ottla.coordinator.group.record_bytes import key_type
from ottla.coordinator.group.registry import Group, GroupKind, Registry
from ottla.coordinator.group.settings import GroupSettings
from ottla.coordinator.group.topics import Topics
from ottla.coordinator.operations import Refuse
from ottla.coordinator.records import CoordinatorRecord, EndMarker, StoredRecord
from ottla.coordinator.shard import Shard, ShardState
from ottla.errors import KafkaError
from ottla.sliced import Steps

logger = logging.getLogger(__name__)

Room = TypeVar("Room")
GroupsShard: TypeAlias = "Shard[Groups]"
_EXPIRY_TIMER = "expiry"
FORGET_RETRY_MS = 1000
"""The pause until tombstones that could not be written are tried again."""


class Groups:
    """A shard's state machine: groups of all kinds and committed offsets."""

    def __init__(
        self,
        shard: GroupsShard,
        settings: GroupSettings,
        topics: Topics,
        consumer_settings: ConsumerSettingsByGroup | None = None,
        make_kinds: MakeKinds = kinds_of,
    ) -> None:
        """``consumer_settings`` None: the settings in ``settings`` hold for all groups."""
        by_group = consumer_settings or ConsumerSettingsByGroup(settings.consumer)
        self._shard = shard
        self._settings = settings
        self._topics = topics
        self.groups = Registry()
        self.line = GroupLine(shard, self._note_changed)
        """Use: one line for all kinds: a group may be about to become one of another kind."""
        common = Common(shard, settings, by_group, topics, self.groups, self.line, self._tombstones)
        self.kinds: Mapping[GroupKind, Kind] = {
            kind.groups.kind: kind for kind in make_kinds(common)
        }
        self.classic = self.room(ClassicGroups)
        """Use: a group that has offsets and never had a member is a classic one."""
        self.offsets = Offsets()
        self._offset_keys = records.OffsetKeyReader()
        self._readers: dict[int, Callable[[int, StoredRecord], None]] = dict.fromkeys(
            records.OFFSET_KEY_TYPES, self._replay_offset
        )
        """Use: what replays a record, by the type of its key."""
        for kind in self.kinds.values():
            self._readers |= dict.fromkeys(kind.groups.key_types, kind.groups.replay)
        self.commit_timeouts = CommitTimeouts(
            shard.timers, shard.clock, settings.offset_commit_timeout_ms
        )
        self._unknown_types: set[int] = set()

    def room(self, of: type[Room]) -> Room:
        """Return the room of one kind of group, for requests that only that kind serves."""
        return next(kind.groups for kind in self.kinds.values() if isinstance(kind.groups, of))

    # What the runtime calls.

    def replay(self, stored: StoredRecord) -> None:
        """Take a durable record. Records of types that this version does not know are skipped."""
        number = key_type(stored)
        reader = self._readers.get(number)
        if reader is not None:
            reader(number, stored)
        elif number not in self._unknown_types:
            self._unknown_types.add(number)
            logger.warning(
                "%s has records of type %d, which this version does not serve: they stay unread",
                self._shard.where,
                number,
            )

    def _replay_offset(self, _: int, stored: StoredRecord) -> None:
        group, topic, partition = self._offset_keys.read(stored)
        if stored.value is None:
            self.offsets.remove(group, topic, partition)
            return
        value = records.read_offset_value(stored)
        self.offsets.put(group, topic, partition, value, stored.producer_id)
        self.classic.know(group)

    def take_commit(self, request: CommitRequest, written: Written, base_offset: int) -> None:
        """Take a durable offset commit, with the effect of a replay of its records.

        ``base_offset``: the offset of the first of them in the log.
        """
        producer_id = -1 if request.producer is None else request.producer.producer_id
        take(self.offsets, request.group_id, written, base_offset, producer_id)
        self.classic.know(request.group_id)

    def end_transaction(self, marker: EndMarker) -> Iterator[None]:
        """Take or drop a transaction's offsets."""
        return self.offsets.end_transaction(marker.producer_id, is_commit=marker.is_commit)

    def topics_changed(self, names: Collection[str]) -> None:
        """Let groups hear of topics that were made, deleted or resized."""
        self.line.topics_changed(names)
        for kind in self.kinds.values():
            kind.groups.topics_changed(names)

    def _note_changed(self, group_id: str, names: Collection[str]) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            group.topics_changed(names)

    def loaded(self) -> Iterator[None]:
        """Give the members of every group a new session."""
        for kind in self.kinds.values():
            yield from kind.groups.loaded()
        self._schedule_expiry()

    def unloaded(self, error: KafkaError) -> None:
        """Answer every client that waits."""
        self.line.unloaded(error)
        for kind in self.kinds.values():
            kind.groups.unloaded(error)
        self.groups.clear()
        self.offsets = Offsets()

    def committed(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return the committed offset of a partition; None: there is none.

        An offset that was committed for an earlier topic of the name does not count.
        """
        found = self.offsets.get(group, topic, partition)
        return None if found is None or is_of_former(found, topic, self._topics) else found

    def requests_to(self, group_id: str) -> ClassicRequests:
        """Return what serves requests of the classic protocol for a group, or makes the group."""
        group = self.groups.get(group_id)
        return self.classic if group is None else self.kinds[group.kind].requests_to(group)

    def heard_of(self, group_id: str, member_id: str) -> None:
        """Extend the session of a member that commits, if its kind of group does that."""
        self.requests_to(group_id).heard_of(group_id, member_id)

    # What is forgotten.

    def tombstones_of_group(self, group_id: str) -> list[CoordinatorRecord]:
        """Return the records that delete a group with all its offsets."""
        found = [
            records.offset_tombstone(OffsetKey(group_id, topic, partition))
            for topic, partition in self.offsets.all_of_group(group_id)
        ]
        return found + self._tombstones(self.groups.known(group_id))

    def _tombstones(self, group: Group) -> list[CoordinatorRecord]:
        return self.kinds[group.kind].groups.tombstones(group)

    def forget_topics(self, names: Collection[str]) -> None:
        """Delete all offsets of deleted topics, commits on their way included.

        Tombstones that cannot be written now are tried again, until another topic has the name:
        then ``expire`` finds the offsets.
        """
        self._shard.execute(
            lambda: self._shard.in_steps(self._forget_topics(frozenset(names))), _forget, alone=True
        )

    def _forget_topics(self, names: frozenset[str]) -> Iterator[None]:
        def again(error: KafkaError) -> None:
            _note(error)
            if self._shard.state is ShardState.ACTIVE:
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
        """Delete offsets that have been kept for long enough, and empty groups without offsets."""
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
            self._delete([*map(records.offset_tombstone, keys), *found], _note)

    def _delete(self, tombstones: list[CoordinatorRecord], refuse: Refuse) -> None:
        if tombstones:
            self._shard.append_each(tombstones, lambda: None, refuse)

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


def _note(error: KafkaError) -> None:
    """Log that tombstones could not be written."""
    logger.warning("what is to be forgotten could not be written: %s", error)


def _forget(_: KafkaError) -> None:
    """Do nothing: the operation ended with the shard."""
