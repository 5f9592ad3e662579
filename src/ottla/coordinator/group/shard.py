"""The groups of one partition of ``__consumer_offsets``: what is in memory, and effects done.

Between the pure machine (``classic.machine``), the offsets and the runtime's shard, which writes
and tells what is durable. Knows nothing of requests' formats.
Source: Kafka's GroupCoordinatorShard.
"""

from __future__ import annotations  # else those of inner functions are made at each call

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TypeAlias, cast

from ottla.coordinator.group import records, tables
from ottla.coordinator.group.answering import Answering
from ottla.coordinator.group.classic import events
from ottla.coordinator.group.classic.group import ClassicGroup, GroupState
from ottla.coordinator.group.classic.machine import step
from ottla.coordinator.group.classic.rebalance import answer_join, answer_sync, session_timer
from ottla.coordinator.group.classic_members import ClassicMembers
from ottla.coordinator.group.commit_timeouts import CommitTimeouts
from ottla.coordinator.group.committing import CommitRequest, Written, take
from ottla.coordinator.group.consumer import records as consumer_records
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.targets import Topics
from ottla.coordinator.group.consumer_groups import ConsumerGroups
from ottla.coordinator.group.expiry import expired_offsets, is_of_former, offsets_of_former
from ottla.coordinator.group.offsets import CommittedOffset, OffsetKey, Offsets
from ottla.coordinator.group.settings import ConsumerSettingsByGroup, GroupSettings
from ottla.coordinator.records import CoordinatorRecord, EndMarker, StoredRecord
from ottla.coordinator.shard import Shard, ShardState
from ottla.errors import ErrorCode, KafkaError
from ottla.pending import Pending

logger = logging.getLogger(__name__)

GroupsShard: TypeAlias = "Shard[Groups]"
_EXPIRY_TIMER = "expiry"
SOME = 64
"""Effects carried out at once; of more, those that may wait have turns with everybody else."""
FORGET_RETRY_MS = 1000
"""Until what could not be forgotten is tried again."""


class Groups:
    """A shard's state machine: classic groups and committed offsets."""

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
        self.groups: dict[str, ClassicGroup] = {}
        self.consumers = ConsumerGroups(shard, by_group, topics, self)
        """Those of KIP-848."""
        self.classic_members = ClassicMembers(shard, by_group, topics, self.consumers)
        """Those of such groups that speak the classic protocol."""
        self.offsets = Offsets()
        self._offset_keys = records.OffsetKeyReader()
        self.commit_timeouts = CommitTimeouts(shard.timers, shard.clock, settings.commit_timeout_ms)
        self._replaced: dict[str, ConsumerGroup] = {}
        """Use: empty KIP-848 groups whose place a classic one takes that is not written yet."""
        self._rebalancing: set[str] = set()
        """Use: at a load, groups that were KIP-848 ones and whose last record is the one that ended
        that: their first rebalance was under way."""
        self._unknown_types: set[int] = set()
        self._answering = Answering(shard.turns)

    # What the runtime calls.

    def replay(self, stored: StoredRecord) -> None:
        """Take a durable record. Kinds of records that this version does not know are left."""
        kind = records.key_type(stored)
        if kind in records.OFFSET_KEY_TYPES:
            self._replay_offset(stored)
        elif kind == tables.GROUP_METADATA:
            self._replay_group(stored)
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
        self._know(group)

    def take_commit(self, request: CommitRequest, written: Written, base_offset: int) -> None:
        """Take what a durable commit says: as a replay of its records, which begin there, would."""
        producer_id = -1 if request.producer is None else request.producer.producer_id
        take(self.offsets, request.group_id, written, base_offset, producer_id)
        self._know(request.group_id)

    def _know(self, group: str) -> None:
        """Whoever has offsets is a group."""
        if group not in self.groups and group not in self.consumers.groups:
            self.groups[group] = ClassicGroup(group, self._shard.clock.wall_ms())

    def _replay_group(self, stored: StoredRecord) -> None:
        group_id = records.read_group_key(stored)
        if stored.value is None or group_id in self.groups:
            self._rebalancing.discard(group_id)
        if stored.value is None:
            self.groups.pop(group_id, None)
        else:
            self.consumers.groups.pop(group_id, None)
            self.groups[group_id] = records.read_group(group_id, stored)

    def end_transaction(self, marker: EndMarker) -> None:
        """Take or drop a transaction's offsets."""
        self.offsets.end_transaction(marker.producer_id, committed=marker.is_committed)

    def loaded(self) -> Iterator[None]:
        """Give the members of every group a new session, as after a restart of Kafka's."""
        for group in list(self.groups.values()):
            yield
            for member in list(group.members.values()):
                self._carry_out(group, [session_timer(member)])
                yield
            is_due = group.members and group.group_id in self._rebalancing
            if is_due or len(group.members) > self._settings.classic.members_max:
                self.happen(group, events.RejoinAll())
        self._rebalancing.clear()
        yield from self.consumers.loaded()
        self._schedule_expiry()

    def unloaded(self, error: KafkaError) -> None:
        """Answer the members that wait."""
        self.consumers.unloaded(error)
        groups, self.groups = self.groups, {}
        self.offsets = Offsets()
        effects: list[events.Effect] = []
        for group in groups.values():
            for member in group.members.values():
                answer_join(group, member, events.JoinAnswer(member.member_id, error.code), effects)
                answer_sync(member, events.SyncAnswer(error.code), effects)
        self._answering.take(_answer, effects)

    def committed(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return a committed offset of the topic that there is; None when there is none.

        Not one that was committed for an earlier topic of the name.
        """
        found = self.offsets.get(group, topic, partition)
        return None if found is None or is_of_former(found, topic, self._topics) else found

    # Groups.

    def group(self, group_id: str) -> ClassicGroup:
        """Return a group. Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def knows(self, group_id: str) -> bool:
        """Tell whether there is a group of that id, of whatever kind."""
        return group_id in self.groups or group_id in self.consumers.groups

    def make_group(self, group_id: str) -> ClassicGroup:
        """Put an empty group there; whoever asks for that has it written.

        It takes the place of a KIP-848 one without members, if there is one.
        """
        replaced = self.consumers.groups.pop(group_id, None)
        if replaced is not None:
            assert not replaced.members, "a group with members takes new ones itself"
            self._replaced[group_id] = replaced
        group = self.groups[group_id] = ClassicGroup(group_id, self._shard.clock.wall_ms())
        return group

    def happen(self, group: ClassicGroup, event: events.Event) -> None:
        """Let an event happen to a group, and carry out what comes of it."""
        now_ms = self._shard.clock.wall_ms()
        self._carry_out(group, step(group, event, now_ms, self._settings.classic))

    def adopt(self, group: ClassicGroup, *, rejoin: bool) -> None:
        """Take over a group that was a KIP-848 one; ``rejoin``: its members have to come again."""
        self.groups[group.group_id] = group
        self._carry_out(group, [session_timer(member) for member in group.members.values()])
        if rejoin:
            self.happen(group, events.RejoinAll())

    def left_behind(self, group_id: str) -> None:
        """Hear that the log deletes a KIP-848 group; a classic one may follow."""
        if self._shard.state is ShardState.LOADING:
            self._rebalancing.add(group_id)

    def dismiss(self, group: ClassicGroup) -> None:
        """Let go of a group that is a KIP-848 one now, and of its members that wait."""
        effects: list[events.Effect] = []
        code = ErrorCode.REBALANCE_IN_PROGRESS
        for member in group.members.values():
            answer_join(group, member, events.JoinAnswer(member.member_id, code), effects)
            answer_sync(member, events.SyncAnswer(code), effects)
            effects.append(events.CancelTimer(events.TimerKind.SESSION, member.member_id))
        effects.append(events.CancelTimer(events.TimerKind.JOIN))
        effects.append(events.CancelTimer(events.TimerKind.SYNC))
        self._carry_out(group, effects)

    def keep_alive(self, group: ClassicGroup, member_id: str) -> None:
        """Let a member live on that was heard of by other ways than a heartbeat."""
        member = group.members.get(member_id)
        if member is not None:
            self._carry_out(group, [session_timer(member)])

    def _carry_out(self, group: ClassicGroup, effects: Sequence[events.Effect]) -> None:
        if len(effects) > SOME:
            later = [one for one in effects if _may_wait(one)]
            effects = [one for one in effects if not _may_wait(one)]
            self._answering.take(partial(self._carry_out_one, group), later)
        for effect in effects:
            self._carry_out_one(group, effect)

    def _carry_out_one(self, group: ClassicGroup, effect: events.Effect) -> None:
        if isinstance(effect, events.SetTimer):
            self._set_timer(group, effect)
        elif isinstance(effect, events.Answer):
            _answer(effect)
        elif isinstance(effect, events.Gradually):
            self._tell(group, effect)
        elif isinstance(effect, events.CancelTimer):
            self._shard.timers.cancel((group.group_id, effect.kind, effect.member_id))
        elif isinstance(effect, events.Store):
            self._store(group, effect)
        else:
            self._store_new(group, effect.reply)

    def _tell(self, group: ClassicGroup, told: events.Gradually) -> None:
        carry_out = partial(self._carry_out_one, group)
        if told.members > SOME:
            self._answering.take(carry_out, told.effects)
        else:
            for effect in told.effects:
                carry_out(effect)

    def _set_timer(self, group: ClassicGroup, effect: events.SetTimer) -> None:
        def fire() -> None:
            self._shard.execute(
                lambda: self.consumers.in_turn(group.group_id, run, _forget), _forget
            )

        def run() -> None:
            if self.groups.get(group.group_id) is group:
                self.happen(group, effect.event)

        key = (group.group_id, effect.kind, effect.member_id)
        self._shard.timers.schedule(key, effect.delay_ms, fire)

    def _store(self, group: ClassicGroup, effect: events.Store) -> None:
        stored = effect.stored

        def done(error: KafkaError | None) -> None:
            if error is not None:
                logger.warning("the group %.249r could not be written: %s", group.group_id, error)
            if stored is not None and self.groups.get(group.group_id) is group:
                code = ErrorCode.NONE if error is None else error.code
                self.happen(group, stored._replace(code=code))

        self._append(partial(records.group_record, group, effect.assignments), done)

    def _store_new(self, group: ClassicGroup, reply: object) -> None:
        replaced = self._replaced.pop(group.group_id, None)
        tombstones = [] if replaced is None else consumer_records.group_tombstones(replaced)

        def done(error: KafkaError | None) -> None:
            if error is not None and replaced is not None:
                self.consumers.groups.setdefault(group.group_id, replaced)
            if error is not None and self.groups.get(group.group_id) is group:
                # Nobody has a generation yet: it is as if the group had never been.
                del self.groups[group.group_id]
                effects: list[events.Effect] = []
                for member in group.members.values():
                    answer_join(group, member, events.JoinAnswer("", error.code), effects)
                self._carry_out(group, effects)
                _resolve(reply, events.JoinAnswer("", error.code))

        self._append(partial(records.new_group_record, group), done, tombstones)

    def _append(
        self,
        make: Callable[[], CoordinatorRecord],
        done: Callable[[KafkaError | None], None],
        tombstones: Sequence[CoordinatorRecord] = (),
    ) -> None:
        """Append a record of what is in memory already, behind what it makes obsolete."""
        try:
            record = records.written(make)
        except KafkaError as error:
            done(error)
        else:
            self._shard.append([*tombstones, record], done, replayed=False)

    # What is forgotten.

    def tombstones_of_group(self, group_id: str) -> list[CoordinatorRecord]:
        """Return what deletes a group with all its offsets."""
        found = [
            records.offset_tombstone(OffsetKey(group_id, topic, partition))
            for topic, partition in self.offsets.all_of_group(group_id)
        ]
        consumers = self.consumers.groups.get(group_id)
        if consumers is not None:
            return found + consumer_records.group_tombstones(consumers)
        return [*found, records.group_tombstone(group_id)]

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

    def _expire(self) -> Iterator[None]:
        now_ms, retention_ms = self._shard.clock.wall_ms(), self._settings.offsets_retention_ms
        found: list[CoordinatorRecord] = []
        keys: list[OffsetKey] = []
        groups: list[ClassicGroup | ConsumerGroup]
        groups = [*self.groups.values(), *self.consumers.groups.values()]
        for group in groups:
            yield
            if isinstance(group, ClassicGroup):
                expired, is_all = expired_offsets(group, self.offsets, now_ms, retention_ms)
                if is_all and group.state is GroupState.EMPTY:
                    found.append(records.group_tombstone(group.group_id))
            else:
                expired, tombstones = self.consumers.expired(
                    group, self.offsets, now_ms, retention_ms
                )
                found += tombstones
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
        for group in self.groups.values():
            group.check()
        self.consumers.check()


def _forget(_: KafkaError) -> None:
    """Whoever waited for it is gone with the shard."""


def _may_wait(effect: events.Effect) -> bool:
    """Tell whether it does not matter to others if something is done a few turns later.

    A member's session is extended with its answer, behind which it is heard of again. If it has
    gone by then, the timer finds nobody.
    """
    is_session = isinstance(effect, events.SetTimer) and effect.kind is events.TimerKind.SESSION
    return is_session or isinstance(effect, events.Answer)


def _answer(effect: events.Effect) -> None:
    if isinstance(effect, events.Answer):
        _resolve(effect.reply, effect.answer)


def _resolve(reply: object, answer: object) -> None:
    """Answer whoever waits; it may have been answered already when its group's making failed."""
    pending = cast("Pending[object]", reply)
    if not pending.is_done:
        pending.resolve(answer)
