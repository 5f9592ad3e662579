"""Writes and answers the decisions of the KIP-848 groups of one shard.

Between the pure ``consumer.machine`` and the runtime's shard. A group decides and writes one thing
at a time (``GroupLine``), also on its way from a group of another kind to one of these, which is in
``migration`` as are members that speak the classic protocol. A heartbeat that changes nothing costs
look-ups only. Source: Kafka's GroupMetadataManager in its effect.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from ottla.coordinator.appends import Done
from ottla.coordinator.group.classic.events import LeaveAnswer, LeavingMember
from ottla.coordinator.group.consumer import machine
from ottla.coordinator.group.consumer import records as consumer_records
from ottla.coordinator.group.consumer.group import CONSUMER, ConsumerGroup, no_consumer_group
from ottla.coordinator.group.consumer.machine import Heartbeat, HeartbeatAnswer
from ottla.coordinator.group.consumer.member import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
)
from ottla.coordinator.group.consumer.settings import ConsumerSettingsByGroup
from ottla.coordinator.group.consumer.tables import GROUP
from ottla.coordinator.group.group_line import GroupLine
from ottla.coordinator.group.registry import Group, Registry
from ottla.coordinator.group.topics import Topics
from ottla.coordinator.operations import Refuse
from ottla.coordinator.records import CoordinatorRecord, StoredRecord
from ottla.coordinator.shard import Shard
from ottla.errors import ErrorCode, KafkaError
from ottla.pending import Pending
from ottla.sliced import Steps

logger = logging.getLogger(__name__)

SESSION = "consumer session"
REBALANCE = "consumer rebalance"
JOIN = "classic join"
SYNC = "classic sync"
"""Timers of a member; the last two of one that speaks the classic protocol."""
_ASSIGNMENT = "consumer assignment"


class Opening(NamedTuple):
    """A group as a joining member meets it."""

    group: ConsumerGroup
    records: Sequence[CoordinatorRecord] = ()
    """The records that make it of another group, or delete that group."""
    replace: Callable[[], None] | None = None
    """Called when the records are durable: ends the group whose members this one took over."""


class Departure(NamedTuple):
    """The records of members' departure."""

    records: Sequence[CoordinatorRecord]
    give_up: Callable[[], None] | None = None
    """Called when the records are durable: the group has become one of another kind."""


class Converting(Protocol):
    """The port for conversions between this kind of group and others."""

    def settled(self, group: Group) -> Steps[None]:
        """Wait until a group of another kind may become one of these; it may be gone then."""

    def from_other(self, group: Group) -> Steps[Opening]:
        """Return the KIP-848 group that ``group`` becomes. Raises KafkaError if it may not."""

    def to_other(self, group: ConsumerGroup, gone: Collection[str]) -> Steps[Departure | None]:
        """Return what makes ``group`` another when these members are ``gone``; None: it stays."""

    def left_behind(self, group_id: str) -> None:
        """Hear that the log deletes a KIP-848 group; another one may follow."""


class _Heard(NamedTuple):
    """The outcome of a heartbeat."""

    opening: Opening
    decision: machine.Decision
    was_classic: bool
    """The member spoke the classic protocol until now."""


class ConsumerGroups:
    """The room of a shard's KIP-848 groups."""

    kind = CONSUMER
    key_types = consumer_records.KEY_TYPES

    def __init__(
        self,
        shard: Shard[Any],
        settings: ConsumerSettingsByGroup,
        topics: Topics,
        *,
        groups: Registry,
        conversions: Converting,
        line: GroupLine,
    ) -> None:
        self._shard = shard
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._conversions = conversions
        self.line = line

    # What the shard calls.

    def replay(self, key_type: int, stored: StoredRecord) -> None:
        """Take a durable record. Raises KafkaError (CORRUPT_MESSAGE)."""
        group_id, name = consumer_records.read_key(key_type, stored)
        if key_type == GROUP and stored.value is None:
            self._conversions.left_behind(group_id)
        group = self._groups.of(ConsumerGroup, group_id)
        if group is None:
            if stored.value is None:
                return
            group = ConsumerGroup(group_id)
            self._groups.put(group)
        if not consumer_records.replay(group, key_type, name, stored):
            self._groups.remove(group)

    def loaded(self) -> Iterator[None]:
        """Give every member a new session, and new time to give up partitions."""
        for group in self._groups.all_of(ConsumerGroup):
            for member in list(group.members.values()):
                yield
                self.keep_alive(group.group_id, member)
                if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                    self._await_revocation(group, member.member_id, member.rebalance_timeout_ms)

    def unloaded(self, error: KafkaError) -> None:
        """Do nothing: members wait in the group's line only."""

    def topics_changed(self, names: Collection[str]) -> None:
        """Let groups that may read these topics look at them at their next heartbeat."""
        self._shard.in_steps(self._topics_changed(frozenset(names)))

    def _topics_changed(self, names: frozenset[str]) -> Iterator[None]:
        for group in self._groups.all_of(ConsumerGroup):
            yield
            group.topics_changed(names)

    # Requests.

    def heartbeat(self, group_id: str, beat: Heartbeat, pending: Pending[HeartbeatAnswer]) -> None:
        """Answer a heartbeat, in its turn, when its changes are durable."""
        if beat.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            self._depart(self.group(group_id), beat, pending)
            return

        def done(heard: _Heard) -> None:
            opening, decision, was_classic = heard
            if opening.replace is not None:
                opening.replace()
                self._shard.in_steps(self._keep_all_alive(self.group(group_id)))
            if was_classic:
                self._forget_timers(group_id, beat.member_id)
            self.keep_alive(group_id, self.group(group_id).members[beat.member_id])
            self._await_step(group_id, beat.member_id, decision.rebalance_timeout_ms)
            self.await_assignment(group_id, decision.assignment_delay_ms)
            assert decision.answer is not None, "a heartbeat is answered"
            pending.resolve(decision.answer)

        def decided(heard: _Heard) -> None:
            group = heard.opening.group

            def refuse(error: KafkaError) -> None:
                group.is_stale, group.changed_topics = True, None
                pending.fail(error)

            group.looked(self._shard.clock.wall_ms())
            found = [*heard.opening.records, *heard.decision.records]
            self.line.write(group_id, found, partial(done, heard), refuse)

        self.line.decide(group_id, self._hear(group_id, beat), decided, pending.fail)

    def _hear(self, group_id: str, beat: Heartbeat) -> Steps[_Heard]:
        now_ms, settings = self._shard.clock.wall_ms(), self._settings.of(group_id)
        opening = yield from self._group_for(group_id, may_make=beat.epoch == 0)
        known = opening.group.members.get(beat.member_id)
        if beat.may_describe is not None:
            opening.group.look_again(now_ms)
        decision = yield from machine.hear(opening.group, beat, self._topics, now_ms, settings)
        return _Heard(opening, decision, known is not None and known.classic is not None)

    def _depart(
        self, group: ConsumerGroup, beat: Heartbeat, pending: Pending[HeartbeatAnswer]
    ) -> None:
        """Let a member go, for good or (a static one) for a while."""
        member = machine.leaving(group, beat)
        done = partial(pending.resolve, HeartbeatAnswer(beat.member_id, beat.epoch))
        if beat.instance_id is not None and beat.epoch == LEAVE_STATIC_EPOCH:
            self._shard.timers.cancel((group.group_id, REBALANCE, member.member_id))
            self.line.write(group.group_id, machine.away(group, member).records, done, pending.fail)
        else:
            self.take_out(group, [member], done, pending.fail)

    def leave(
        self,
        group: ConsumerGroup,
        members: Sequence[LeavingMember],
        pending: Pending[tuple[LeaveAnswer, ...]],
    ) -> None:
        """Remove members for LeaveGroup, which tools send to groups of any kind."""
        gone: dict[str, ConsumerMember] = {}
        answers = []
        for leaving in members:
            member, code = _leaving(group, leaving)
            if member is not None:
                gone[member.member_id] = member
            answers.append(LeaveAnswer(leaving, code))
        done = partial(pending.resolve, tuple(answers))
        self.take_out(group, list(gone.values()), done, pending.fail)

    def group(self, group_id: str) -> ConsumerGroup:
        """Return a group. Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        group = self._groups.known(group_id)
        if not isinstance(group, ConsumerGroup):
            raise no_consumer_group(group_id)
        return group

    def _group_for(self, group_id: str, *, may_make: bool) -> Steps[Opening]:
        """Return a group: a present one, a new one, or what a group of another kind becomes."""
        known = self._groups.get(group_id)
        if may_make and known is not None and not isinstance(known, ConsumerGroup):
            yield from self._conversions.settled(known)
            known = self._groups.get(group_id)
        if not may_make or isinstance(known, ConsumerGroup):
            return Opening(self.group(group_id))
        if known is None:
            return Opening(ConsumerGroup(group_id))
        return (yield from self._conversions.from_other(known))

    def _keep_all_alive(self, group: ConsumerGroup) -> Iterator[None]:
        for member_id in list(group.members):
            yield
            member = group.members.get(member_id)
            if member is not None and self._groups.get(group.group_id) is group:
                self.keep_alive(group.group_id, member)

    # Members that go.

    def take_out(
        self, group: ConsumerGroup, gone: Sequence[ConsumerMember], done: Done, refuse: Refuse
    ) -> None:
        """Remove members; the group may become one of another kind by that."""
        group_id = group.group_id

        def written(found: Departure) -> None:
            for member in gone:
                self._forget_timers(group_id, member.member_id)
            if found.give_up is not None:
                self.let_go(group)
                found.give_up()
            done()

        def decided(found: Departure) -> None:
            self.line.write(group_id, found.records, partial(written, found), refuse)

        self.line.decide(group_id, self._taking_out(group, gone), decided, refuse)

    def _taking_out(self, group: ConsumerGroup, gone: Sequence[ConsumerMember]) -> Steps[Departure]:
        if not gone:
            return Departure([])
        found = yield from self._conversions.to_other(group, {one.member_id for one in gone})
        if found is None:
            fenced = yield from machine.fence(group, gone, self._topics)
            found = Departure(fenced.records)
        return found

    def let_go(self, group: ConsumerGroup) -> None:
        """Forget the timers of a group that has become one of another kind."""
        self._shard.in_steps(self._forget_all_timers(group))

    def _forget_all_timers(self, group: ConsumerGroup) -> Iterator[None]:
        for member_id in list(group.members):
            yield
            back = self._groups.of(ConsumerGroup, group.group_id)
            if back is None or member_id not in back.members:
                self._forget_timers(group.group_id, member_id)
            else:  # It is a KIP-848 group again, and the member has a new session.
                self._forget_waits(group.group_id, member_id)

    def tombstones(self, group: Group) -> list[CoordinatorRecord]:
        """Return the records that delete a group, without its offsets."""
        assert isinstance(group, ConsumerGroup), "each kind deletes its own"
        return consumer_records.group_tombstones(group)

    # Time.

    def keep_alive(self, group_id: str, member: ConsumerMember) -> None:
        """Extend a member's session by its timeout."""
        timeout_ms = self._settings.of(group_id).session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.fence_after(group_id, SESSION, member.member_id, timeout_ms, "its session is over")

    def _await_step(self, group_id: str, member_id: str, timeout_ms: int | None) -> None:
        if timeout_ms == 0:
            self._shard.timers.cancel((group_id, REBALANCE, member_id))
        elif timeout_ms is not None:
            self._await_revocation(self.group(group_id), member_id, timeout_ms)

    def _await_revocation(self, group: ConsumerGroup, member_id: str, timeout_ms: int) -> None:
        epoch = group.members[member_id].epoch
        why = f"it has not left epoch {epoch} within {timeout_ms} ms"
        self.fence_after(group.group_id, REBALANCE, member_id, timeout_ms, why, epoch=epoch)

    def await_assignment(self, group_id: str, delay_ms: int | None) -> None:
        """Compute the targets after this delay; None: they need not be computed."""
        key = (group_id, _ASSIGNMENT)
        if delay_ms is not None and key not in self._shard.timers:
            self._shard.timers.schedule(key, delay_ms, lambda: self._assign(group_id))

    def fence_after(
        self,
        group_id: str,
        kind: str,
        member_id: str,
        timeout_ms: int,
        why: str,
        *,
        epoch: int | None = None,
    ) -> None:
        """Remove a member after a time; with ``epoch``, only if it is still in that epoch.

        Not if its timer was set anew or cancelled before the removal's turn came.
        """
        key = (group_id, kind, member_id)

        def fire() -> None:
            still_counts = self._shard.timers.rung(key)

            def run() -> None:
                if still_counts():
                    self._fence(group_id, member_id, why, epoch)

            self.line.later(group_id, run, _note)

        self._shard.timers.schedule(key, timeout_ms, fire)

    def _forget_timers(self, group_id: str, member_id: str) -> None:
        self._shard.timers.cancel((group_id, SESSION, member_id))
        self._forget_waits(group_id, member_id)

    def _forget_waits(self, group_id: str, member_id: str) -> None:
        for kind in (REBALANCE, JOIN, SYNC):
            self._shard.timers.cancel((group_id, kind, member_id))

    def _fence(self, group_id: str, member_id: str, why: str, epoch: int | None) -> None:
        group = self._groups.of(ConsumerGroup, group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or epoch not in (None, member.epoch):
            return
        logger.info("member %s leaves group %s: %s", member_id, group_id, why)

        def refuse(error: KafkaError) -> None:
            _note(error)
            if self._groups.of(ConsumerGroup, group_id) is group:
                self.keep_alive(group_id, member)

        self.take_out(group, [member], lambda: None, refuse)

    def _assign(self, group_id: str) -> None:
        def run() -> None:
            group = self._groups.of(ConsumerGroup, group_id)
            if group is not None:
                steps = machine.assign(group, self._topics, self._shard.clock.wall_ms())
                self.line.decide(
                    group_id,
                    steps,
                    lambda made: self.line.write(group_id, made.records, lambda: None, _note),
                    _note,
                )

        self.line.later(group_id, run, _note)


def _leaving(
    group: ConsumerGroup, leaving: LeavingMember
) -> tuple[ConsumerMember | None, ErrorCode]:
    """Return the member that leaves; None and a code if it may not."""
    member_id, instance_id = leaving
    if instance_id is not None:
        known = group.static_members.get(instance_id)
        if known is None:
            return None, ErrorCode.UNKNOWN_MEMBER_ID
        if member_id and member_id != known:
            return None, ErrorCode.FENCED_INSTANCE_ID
        member_id = known
    member = group.members.get(member_id)
    return member, ErrorCode.NONE if member is not None else ErrorCode.UNKNOWN_MEMBER_ID


def _note(error: KafkaError) -> None:
    """Log why something that nobody waits for did not work. A timer will try it again."""
    logger.warning("a group could not be changed: %s", error)
