"""The classic groups of one partition of ``__consumer_offsets``: what comes of events, carried out.

Between the pure ``classic.machine`` and the runtime's shard. What is in memory of a classic group
is ahead of the log: it is written as it is, and who waits for that is told then. Source: Kafka's
GroupMetadataManager in its effect.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

from ottla.coordinator.group import records
from ottla.coordinator.group.answering import Answering
from ottla.coordinator.group.classic import events
from ottla.coordinator.group.classic.group import ClassicGroup, GroupState
from ottla.coordinator.group.classic.machine import step
from ottla.coordinator.group.classic.rebalance import answer_join, answer_sync, session_timer
from ottla.coordinator.group.consumer import records as consumer_records
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.group_line import GroupLine
from ottla.coordinator.group.registry import Registry
from ottla.coordinator.records import CoordinatorRecord, StoredRecord
from ottla.coordinator.shard import Shard
from ottla.errors import ErrorCode, KafkaError
from ottla.pending import Pending

logger = logging.getLogger(__name__)

SOME = 64
"""Effects carried out at once; of more, those that may wait have turns with everybody else."""


class ClassicGroups:
    """Carries out what happens to a shard's classic groups."""

    def __init__(
        self,
        shard: Shard[Any],
        settings: events.ClassicSettings,
        groups: Registry,
        line: GroupLine,
    ) -> None:
        self._shard = shard
        self._settings = settings
        self._groups = groups
        self._line = line
        self._replaced: dict[str, ConsumerGroup] = {}
        """Use: empty KIP-848 groups whose place a classic one takes that is not written yet."""
        self._rebalancing: set[str] = set()
        """Use: at a load, groups that were KIP-848 ones and whose last record is the one that ended
        that: their first rebalance was under way."""
        self._answering = Answering(shard.turns)

    # What the shard calls.

    def replay(self, stored: StoredRecord) -> None:
        """Take a durable record. Raises KafkaError (CORRUPT_MESSAGE)."""
        group_id = records.read_group_key(stored)
        known = self._groups.of(ClassicGroup, group_id)
        if stored.value is None or known is not None:
            self._rebalancing.discard(group_id)
        if stored.value is not None:
            self._groups.put(records.read_group(group_id, stored))
        elif known is not None:
            self._groups.remove(known)

    def know(self, group_id: str) -> None:
        """Take note that a group has offsets: if there is none of that id, there is one now."""
        if group_id not in self._groups:
            self._groups.put(ClassicGroup(group_id, self._shard.clock.wall_ms()))

    def loaded(self) -> Iterator[None]:
        """Give the members of every group a new session, as after a restart of Kafka's."""
        for group in self._groups.all_of(ClassicGroup):
            yield
            for member in list(group.members.values()):
                self._carry_out(group, [session_timer(member)])
                yield
            is_due = group.members and group.group_id in self._rebalancing
            if is_due or len(group.members) > self._settings.members_max:
                self.happen(group, events.RejoinAll())
        self._rebalancing.clear()

    def unloaded(self, error: KafkaError) -> None:
        """Answer the members that wait."""
        effects: list[events.Effect] = []
        for group in self._groups.all_of(ClassicGroup):
            for member in group.members.values():
                answer_join(group, member, events.JoinAnswer(member.member_id, error.code), effects)
                answer_sync(member, events.SyncAnswer(error.code), effects)
        self._answering.take(_answer, effects)

    # Requests.

    def is_new(self, group_id: str) -> bool:
        """Tell whether a member that joins finds no classic group of that id."""
        return self._groups.of(ClassicGroup, group_id) is None

    def join(self, group_id: str, event: events.Join, pending: Pending[Any]) -> None:
        """Let a member join; an empty group of another kind gives its place."""
        del pending  # The event has it.
        group = self._groups.of(ClassicGroup, group_id)
        if group is None and event.member_id:
            raise _unknown(group_id)
        self.happen(self.make(group_id) if group is None else group, event)

    def sync(self, group_id: str, event: events.Sync, pending: Pending[Any]) -> None:
        """Take a leader's assignment, or hand one out."""
        del pending
        self.happen(self._known(group_id), event)

    def heartbeat(self, group_id: str, event: events.Heartbeat, pending: Pending[Any]) -> None:
        """Keep a member alive."""
        del pending
        self.happen(self._known(group_id), event)

    def leave(
        self, group_id: str, members: Sequence[events.LeavingMember], pending: Pending[Any]
    ) -> None:
        """Take members out."""
        self.happen(self._known(group_id), events.Leave(pending, members))

    def heard_of(self, group_id: str, member_id: str) -> None:
        """Let a member live on that commits, unless it is to sync."""
        group = self._groups.of(ClassicGroup, group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return
        if group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._carry_out(group, [session_timer(member)])

    def group(self, group_id: str) -> ClassicGroup:
        """Return a group. Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        group = self._groups.of(ClassicGroup, group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def _known(self, group_id: str) -> ClassicGroup:
        group = self._groups.of(ClassicGroup, group_id)
        if group is None:
            raise _unknown(group_id)
        return group

    def make(self, group_id: str) -> ClassicGroup:
        """Put an empty group there; whoever asks for that has it written.

        It takes the place of a KIP-848 one without members, if there is one.
        """
        replaced = self._groups.of(ConsumerGroup, group_id)
        if replaced is not None:
            assert not replaced.members, "a group with members takes new ones itself"
            self._replaced[group_id] = replaced
        group = ClassicGroup(group_id, self._shard.clock.wall_ms())
        self._groups.put(group)
        return group

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """Return what deletes a group, without its offsets."""
        return [records.group_tombstone(group_id)]

    # What comes of it.

    def happen(self, group: ClassicGroup, event: events.Event) -> None:
        """Let an event happen to a group, and carry out what comes of it."""
        now_ms = self._shard.clock.wall_ms()
        self._carry_out(group, step(group, event, now_ms, self._settings))

    def adopt(self, group: ClassicGroup, *, rejoin: bool) -> None:
        """Take over a group that was a KIP-848 one; ``rejoin``: its members have to come again."""
        self._groups.put(group)
        members = list(group.members.values())
        self._tell(group, events.Gradually(len(members), map(session_timer, members)))
        if rejoin:
            self.happen(group, events.RejoinAll())

    def left_behind(self, group_id: str) -> None:
        """Hear that the log deletes a KIP-848 group; a classic one may follow."""
        if self._shard.is_loading:
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
            self._line.later(group.group_id, run, _forget)

        def run() -> None:
            if self._groups.get(group.group_id) is group:
                self.happen(group, effect.event)

        key = (group.group_id, effect.kind, effect.member_id)
        self._shard.timers.schedule(key, effect.delay_ms, fire)

    def _store(self, group: ClassicGroup, effect: events.Store) -> None:
        stored = effect.stored

        def done(error: KafkaError | None) -> None:
            if error is not None:
                logger.warning("the group %.249r could not be written: %s", group.group_id, error)
            if stored is not None and self._groups.get(group.group_id) is group:
                code = ErrorCode.NONE if error is None else error.code
                self.happen(group, stored._replace(code=code))

        self._append(partial(records.group_record, group, effect.assignments), done)

    def _store_new(self, group: ClassicGroup, reply: object) -> None:
        replaced = self._replaced.pop(group.group_id, None)
        tombstones = [] if replaced is None else consumer_records.group_tombstones(replaced)

        def done(error: KafkaError | None) -> None:
            if error is not None and self._groups.get(group.group_id) is group:
                # Nobody has a generation yet: it is as if the group had never been.
                self._groups.remove(group)
                effects: list[events.Effect] = []
                for member in group.members.values():
                    answer_join(group, member, events.JoinAnswer("", error.code), effects)
                self._carry_out(group, effects)
                _resolve(reply, events.JoinAnswer("", error.code))
            if error is not None and replaced is not None and group.group_id not in self._groups:
                self._groups.put(replaced)

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


def _unknown(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")


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
