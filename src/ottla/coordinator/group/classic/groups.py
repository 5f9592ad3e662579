"""Carries out the effects of events on the classic groups of one shard.

Between the pure ``classic.machine`` and the runtime's shard. The memory of a classic group is ahead
of the log: the group is written as it is, and clients that wait for that are answered then. Source:
Kafka's GroupMetadataManager in its effect.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, cast

from ottla.coordinator.appends import Done
from ottla.coordinator.group.answering import Answering
from ottla.coordinator.group.classic import events, records
from ottla.coordinator.group.classic.group import CLASSIC, ClassicGroup, GroupState
from ottla.coordinator.group.classic.machine import step
from ottla.coordinator.group.classic.rebalance import answer_join, answer_sync, session_timer
from ottla.coordinator.group.group_line import GroupLine
from ottla.coordinator.group.record_bytes import written
from ottla.coordinator.group.registry import Group, Registry
from ottla.coordinator.operations import Refuse
from ottla.coordinator.records import CoordinatorRecord, StoredRecord
from ottla.coordinator.shard import Shard
from ottla.errors import ErrorCode, KafkaError
from ottla.pending import Pending

logger = logging.getLogger(__name__)

SOME = 64
"""Up to so many effects are carried out at once; of more, those that may wait take turns."""


class ClassicGroups:
    """The room of a shard's classic groups."""

    kind = CLASSIC
    key_types = records.KEY_TYPES

    def __init__(
        self,
        shard: Shard[Any],
        settings: events.ClassicSettings,
        groups: Registry,
        line: GroupLine,
        tombstones_of: Callable[[Group], list[CoordinatorRecord]],
    ) -> None:
        """``tombstones_of``: returns the records that delete a group of any kind."""
        self._shard = shard
        self._settings = settings
        self._groups = groups
        self._line = line
        self._tombstones_of = tombstones_of
        self._replaced: dict[str, Group] = {}
        """Use: empty groups of other kinds; a classic group that is not written yet replaces each.
       """
        self._rebalancing: set[str] = set()
        """Use: at a load, groups whose last record made a KIP-848 group a classic one: their first
        rebalance was under way."""
        self._on_their_way: dict[str, Pending[None]] = {}
        """Use: the last write of a group that has not ended, by group id."""
        self._answering = Answering(shard.turns)

    # What the shard calls.

    def replay(self, key_type: int, stored: StoredRecord) -> None:
        """Take a durable record. Raises KafkaError (CORRUPT_MESSAGE)."""
        del key_type  # There is only one.
        group_id = records.read_group_key(stored)
        known = self._groups.of(ClassicGroup, group_id)
        if stored.value is None or known is not None:
            self._rebalancing.discard(group_id)
        if stored.value is not None:
            self._groups.put(records.read_group(group_id, stored))
        elif known is not None:
            self._groups.remove(known)

    def know(self, group_id: str) -> None:
        """Make a group for committed offsets, unless there is a group of that id."""
        if group_id not in self._groups:
            self._groups.put(ClassicGroup(group_id, self._shard.clock.wall_ms()))

    def loaded(self) -> Iterator[None]:
        """Give the members of every group a new session, as Kafka does after a restart."""
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

    def topics_changed(self, names: Collection[str]) -> None:
        """Do nothing: the leader of a classic group follows the topics, and joins again."""

    # Requests.

    def is_new(self, group_id: str) -> bool:
        """Tell whether a JoinGroup will make the group: no classic group has that id."""
        return self._groups.of(ClassicGroup, group_id) is None

    def join(self, group_id: str, event: events.Join, pending: Pending[Any]) -> None:
        """Let a member join; the group replaces an empty one of another kind."""
        del pending  # It is the reply of the event.
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
        """Remove members."""
        self.happen(self._known(group_id), events.Leave(pending, members))

    def heard_of(self, group_id: str, member_id: str) -> None:
        """Extend the session of a member that commits, unless a SyncGroup of it is due."""
        group = self._groups.of(ClassicGroup, group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return
        if group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._carry_out(group, [session_timer(member)])

    def group(self, group_id: str) -> ClassicGroup:
        """Return a group. Raises KafkaError (GROUP_ID_NOT_FOUND), also for one of another kind."""
        group = self._groups.known(group_id)
        if not isinstance(group, ClassicGroup):
            why = f"Group {group_id} is not a classic group."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)
        return group

    def _known(self, group_id: str) -> ClassicGroup:
        group = self._groups.of(ClassicGroup, group_id)
        if group is None:
            raise _unknown(group_id)
        return group

    def make(self, group_id: str) -> ClassicGroup:
        """Make an empty group, which the caller has written.

        The group replaces one of another kind without members, if there is one.
        """
        replaced = self._groups.get(group_id)
        if replaced is not None:
            assert replaced.is_empty, "a group with members takes new ones itself"
            self._replaced[group_id] = replaced
        group = ClassicGroup(group_id, self._shard.clock.wall_ms())
        self._groups.put(group)
        return group

    def tombstones(self, group: Group) -> list[CoordinatorRecord]:
        """Return the records that delete a group, without its offsets."""
        return [records.group_tombstone(group.group_id)]

    # What comes of it.

    def happen(self, group: ClassicGroup, event: events.Event) -> None:
        """Let an event happen to a group, and carry out its effects."""
        now_ms = self._shard.clock.wall_ms()
        self._carry_out(group, step(group, event, now_ms, self._settings))

    def adopt(self, group: ClassicGroup, *, rejoin: bool) -> None:
        """Take over a group that was a KIP-848 one; ``rejoin``: its members have to join again."""
        self._groups.put(group)
        members = list(group.members.values())
        self._tell(group, events.Gradually(len(members), map(session_timer, members)))
        if rejoin:
            self.happen(group, events.RejoinAll())

    def left_behind(self, group_id: str) -> None:
        """Hear that the log deletes a KIP-848 group; the record of a classic one may follow."""
        if self._shard.is_loading:
            self._rebalancing.add(group_id)

    def dismiss(self, group: ClassicGroup) -> None:
        """Answer the members that wait in a group that is a KIP-848 one now; cancel its timers."""
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
        key = (group.group_id, effect.kind, effect.member_id)

        def fire() -> None:
            still_counts = self._shard.timers.rung(key)

            def run() -> None:
                if still_counts() and self._groups.get(group.group_id) is group:
                    self.happen(group, effect.event)

            self._line.later(group.group_id, run, _forget)

        self._shard.timers.schedule(key, effect.delay_ms, fire)

    def _store(self, group: ClassicGroup, effect: events.Store) -> None:
        stored = effect.stored

        def tell(code: ErrorCode) -> None:
            if stored is not None and self._groups.get(group.group_id) is group:
                self.happen(group, stored._replace(code=code))

        def refuse(error: KafkaError) -> None:
            logger.warning("the group %.249r could not be written: %s", group.group_id, error)
            tell(error.code)

        make = partial(records.group_record, group, effect.assignments)
        self._append(group, make, partial(tell, ErrorCode.NONE), refuse)

    def _store_new(self, group: ClassicGroup, reply: object) -> None:
        replaced = self._replaced.pop(group.group_id, None)
        tombstones = [] if replaced is None else self._tombstones_of(replaced)

        def refuse(error: KafkaError) -> None:
            if self._groups.get(group.group_id) is group:
                # No member has a generation yet: forget the group.
                self._groups.remove(group)
                effects: list[events.Effect] = []
                for member in group.members.values():
                    answer_join(group, member, events.JoinAnswer("", error.code), effects)
                self._carry_out(group, effects)
                _resolve(reply, events.JoinAnswer("", error.code))
            if replaced is not None and group.group_id not in self._groups:
                self._groups.put(replaced)

        make = partial(records.new_group_record, group)
        self._append(group, make, lambda: None, refuse, tombstones)

    def _append(
        self,
        group: ClassicGroup,
        make: Callable[[], CoordinatorRecord],
        done: Done,
        refuse: Refuse,
        tombstones: Sequence[CoordinatorRecord] = (),
    ) -> None:
        """Append a record of what is in memory already, after ``tombstones``."""
        try:
            record = written(make)
        except KafkaError as error:
            refuse(error)
            return
        write: Pending[None] = Pending()
        self._on_their_way[group.group_id] = write

        def over(tell: Callable[[], None]) -> None:
            try:
                tell()
            finally:
                if self._on_their_way.get(group.group_id) is write:
                    del self._on_their_way[group.group_id]
                if not write.is_done:
                    write.resolve(None)

        self._shard.append(
            [*tombstones, record],
            partial(over, done),
            lambda error: over(partial(refuse, error)),
            replayed=False,
        )

    def written(self, group_id: str) -> Pending[None] | None:
        """Return what resolves when the last write of a group has ended; None: it has.

        For a decision about the group, of which there is one at a time. Clients that waited for the
        write are answered by then.
        """
        return self._on_their_way.get(group_id)


def _unknown(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")


def _forget(_: KafkaError) -> None:
    """Do nothing: the timer ended with the shard."""


def _may_wait(effect: events.Effect) -> bool:
    """Tell whether an effect may come a few turns later without harm to others.

    A member's session is extended with its answer, and the member is silent until then. If the
    member has gone by then, its timer finds nothing to do.
    """
    is_session = isinstance(effect, events.SetTimer) and effect.kind is events.TimerKind.SESSION
    return is_session or isinstance(effect, events.Answer)


def _answer(effect: events.Effect) -> None:
    if isinstance(effect, events.Answer):
        _resolve(effect.reply, effect.answer)


def _resolve(reply: object, answer: object) -> None:
    """Answer a client that waits, unless it was answered when its group could not be made."""
    pending = cast("Pending[object]", reply)
    if not pending.is_done:
        pending.resolve(answer)
