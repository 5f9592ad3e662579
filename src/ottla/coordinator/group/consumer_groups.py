"""The KIP-848 groups of one partition of ``__consumer_offsets``: decisions written and answered.

Between the pure ``consumer.machine`` and the runtime's shard. A group decides and writes one thing
at a time (``GroupLine``), also on its way from a classic group to one of these. A heartbeat that
changes nothing costs look-ups only. Members that speak the classic protocol are in
``classic_members``. Source: Kafka's GroupMetadataManager in its effect.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from ottla.coordinator.group.classic.events import LeaveAnswer, LeavingMember
from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.consumer import machine
from ottla.coordinator.group.consumer import records as consumer_records
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.machine import Heartbeat, HeartbeatAnswer
from ottla.coordinator.group.consumer.member import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
)
from ottla.coordinator.group.consumer.tables import GROUP
from ottla.coordinator.group.consumer.targets import Topics
from ottla.coordinator.group.group_line import Answered, GroupLine
from ottla.coordinator.group.migration import conversion as migration
from ottla.coordinator.group.records import group_tombstone
from ottla.coordinator.group.registry import Registry
from ottla.coordinator.group.settings import ConsumerSettingsByGroup
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


class Adopting(Protocol):
    """What is asked of the room of classic groups."""

    def adopt(self, group: ClassicGroup, *, rejoin: bool) -> None:
        """Take over a group; ``rejoin``: its members have to come again."""

    def left_behind(self, group_id: str) -> None:
        """Hear that the log deletes a KIP-848 group; a classic one may follow."""

    def dismiss(self, group: ClassicGroup) -> None:
        """Let go of a group, and send its members away that wait for something."""


class _Opening(NamedTuple):
    """A group as a joining member finds it."""

    group: ConsumerGroup
    records: Sequence[CoordinatorRecord] = ()
    """What makes it of a classic one, or deletes that."""
    classic: ClassicGroup | None = None
    """The one that becomes it."""


class _Heard(NamedTuple):
    """What a heartbeat leads to."""

    opening: _Opening
    decision: machine.Decision
    was_classic: bool
    """The member spoke the classic protocol until now."""


class _Departure(NamedTuple):
    """What it takes that members go."""

    records: Sequence[CoordinatorRecord]
    downgrade: migration.Downgrade | None
    """The group becomes a classic one."""


class ConsumerGroups:
    """Carries out what happens to a shard's KIP-848 groups."""

    def __init__(
        self,
        shard: Shard[Any],
        settings: ConsumerSettingsByGroup,
        topics: Topics,
        *,
        groups: Registry,
        classic: Adopting,
        line: GroupLine,
    ) -> None:
        self._shard = shard
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._classic = classic
        self.line = line

    # What the shard calls.

    def replay(self, kind: int, stored: StoredRecord) -> None:
        """Take a durable record. Raises KafkaError (CORRUPT_MESSAGE)."""
        group_id, name = consumer_records.read_key(kind, stored)
        if kind == GROUP and stored.value is None:
            self._classic.left_behind(group_id)
        group = self._groups.of(ConsumerGroup, group_id)
        if group is None:
            if stored.value is None:
                return
            group = ConsumerGroup(group_id)
            self._groups.put(group)
        if not consumer_records.replay(group, kind, name, stored):
            self._groups.remove(group)

    def loaded(self) -> Iterator[None]:
        """Give every member a new session, and its time to give up what it must."""
        for group in self._groups.all_of(ConsumerGroup):
            for member in list(group.members.values()):
                yield
                self.keep_alive(group.group_id, member)
                if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                    self._await_revocation(group, member.member_id, member.rebalance_timeout_ms)

    def topics_changed(self, names: Collection[str]) -> None:
        """Let groups that may read these topics look at them at their next heartbeat."""
        self.line.topics_changed(names)
        self._shard.in_steps(self._note_changed(frozenset(names)))

    def _note_changed(self, names: frozenset[str]) -> Iterator[None]:
        for group in self._groups.all_of(ConsumerGroup):
            yield
            _note_stale(group, names)

    def note_changed(self, group_id: str, names: Collection[str]) -> None:
        """Let a group look at these topics at its next heartbeat, if it may read them."""
        group = self._groups.of(ConsumerGroup, group_id)
        if group is not None:
            _note_stale(group, names)

    # Requests.

    def heartbeat(
        self, group_id: str, beat: Heartbeat, pending: Pending[HeartbeatAnswer | KafkaError]
    ) -> None:
        """Answer a heartbeat, when what it changes is durable. In its turn."""
        if beat.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            self._depart(self.group(group_id), beat, pending)
            return

        def done(heard: _Heard, error: KafkaError | None) -> None:
            opening, decision, was_classic = heard
            if error is not None:
                opening.group.is_stale, opening.group.topics_changed = True, None
                pending.resolve(error)
                return
            if opening.classic is not None:
                self._opened(group_id, opening.classic)
            if was_classic:
                self._forget_timers(group_id, beat.member_id)
            self.keep_alive(group_id, self.group(group_id).members[beat.member_id])
            self._await_step(group_id, beat.member_id, decision.rebalance_timeout_ms)
            self.await_assignment(group_id, decision.assignment_delay_ms)
            assert decision.answer is not None, "a heartbeat is answered"
            pending.resolve(decision.answer)

        def decided(heard: _Heard) -> None:
            group = heard.opening.group
            group.is_stale, group.topics_changed = False, set()
            found = [*heard.opening.records, *heard.decision.records]
            self.line.write(group_id, found, partial(done, heard))

        self.line.decide(group_id, self._hear(group_id, beat), decided, pending.resolve)

    def _hear(self, group_id: str, beat: Heartbeat) -> Steps[_Heard]:
        now_ms, settings = self._shard.clock.wall_ms(), self._settings.of(group_id)
        opening = yield from self._group_for(group_id, may_make=beat.epoch == 0)
        known = opening.group.members.get(beat.member_id)
        decision = yield from machine.hear(opening.group, beat, self._topics, now_ms, settings)
        return _Heard(opening, decision, known is not None and known.classic is not None)

    def _depart(
        self, group: ConsumerGroup, beat: Heartbeat, pending: Pending[HeartbeatAnswer | KafkaError]
    ) -> None:
        """Let a member go, for good or (a static one) for a while."""
        member = machine.leaving(group, beat)
        answer = HeartbeatAnswer(beat.member_id, beat.epoch)

        def done(error: KafkaError | None) -> None:
            pending.resolve(answer if error is None else error)

        if beat.instance_id is not None and beat.epoch == LEAVE_STATIC_EPOCH:
            self._shard.timers.cancel((group.group_id, REBALANCE, member.member_id))
            self.line.write(group.group_id, machine.away(group, member).records, done)
        else:
            self.take_out(group, [member], done)

    def leave(
        self,
        group: ConsumerGroup,
        members: Sequence[LeavingMember],
        pending: Pending[tuple[LeaveAnswer, ...] | KafkaError],
    ) -> None:
        """Take members out on behalf of LeaveGroup, which tools send to groups of any kind."""
        gone: dict[str, ConsumerMember] = {}
        answers = []
        for leaving in members:
            member, code = _leaving(group, leaving)
            if member is not None:
                gone[member.member_id] = member
            answers.append(LeaveAnswer(leaving, code))
        self.take_out(
            group,
            list(gone.values()),
            lambda error: pending.resolve(tuple(answers) if error is None else error),
        )

    def group(self, group_id: str) -> ConsumerGroup:
        """Return a group. Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        group = self._groups.known(group_id)
        if not isinstance(group, ConsumerGroup):
            why = f"Group {group_id} is not a consumer group."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)
        return group

    def _group_for(self, group_id: str, *, may_make: bool) -> Steps[_Opening]:
        """Return a group, maybe a new one, or one that a classic group is to become."""
        classic = self._groups.of(ClassicGroup, group_id)
        if not may_make or (classic is None and group_id in self._groups):
            return _Opening(self.group(group_id))
        if classic is None:
            return _Opening(ConsumerGroup(group_id))
        if classic.is_empty:
            return _Opening(ConsumerGroup(group_id), [group_tombstone(group_id)])
        settings = self._settings.of(group_id)
        migration.check_upgrade(
            classic, settings.migration_policy, members_max=settings.members_max
        )
        upgrade = yield from migration.upgraded(classic, self._topics)
        return _Opening(upgrade.group, upgrade.records, classic)

    def _opened(self, group_id: str, classic: ClassicGroup) -> None:
        """Let a classic group go that has become this one."""
        logger.info("group %.249r uses the consumer protocol from now on", group_id)
        self._classic.dismiss(classic)
        self._shard.in_steps(self._keep_all_alive(self.group(group_id)))

    def _keep_all_alive(self, group: ConsumerGroup) -> Iterator[None]:
        for member_id in list(group.members):
            yield
            member = group.members.get(member_id)
            if member is not None and self._groups.get(group.group_id) is group:
                self.keep_alive(group.group_id, member)

    # Members that go.

    def take_out(
        self, group: ConsumerGroup, gone: Sequence[ConsumerMember], answered: Answered
    ) -> None:
        """Take members out; a group that only classic ones are left in becomes a classic one."""
        group_id = group.group_id

        def done(found: _Departure, error: KafkaError | None) -> None:
            if error is None:
                for member in gone:
                    self._forget_timers(group_id, member.member_id)
                if found.downgrade is not None:
                    self.become_classic(group, found.downgrade)
            answered(error)

        def decided(found: _Departure) -> None:
            self.line.write(group_id, found.records, partial(done, found))

        self.line.decide(group_id, self._taking_out(group, gone), decided, answered)

    def _taking_out(
        self, group: ConsumerGroup, gone: Sequence[ConsumerMember]
    ) -> Steps[_Departure]:
        settings, ids = self._settings.of(group.group_id), {one.member_id for one in gone}
        if not ids:
            return _Departure([], None)
        downgrade = None
        if migration.may_downgrade(
            group, ids, settings.migration_policy, members_max=settings.classic_members_max
        ):
            now_ms = self._shard.clock.wall_ms()
            downgrade = yield from migration.downgraded(group, ids, None, self._topics, now_ms)
        if downgrade is not None:
            return _Departure(downgrade.records, downgrade)
        fenced = yield from machine.fence(group, gone, self._topics)
        return _Departure(fenced.records, None)

    def become_classic(self, group: ConsumerGroup, downgrade: migration.Downgrade) -> None:
        """Hand a group over, whose records are durable."""
        logger.info("group %.249r uses the classic protocol from now on", group.group_id)
        self._shard.in_steps(self._forget_all_timers(group))
        self._classic.adopt(downgrade.group, rejoin=not downgrade.is_settled)

    def _forget_all_timers(self, group: ConsumerGroup) -> Iterator[None]:
        for member_id in list(group.members):
            yield
            back = self._groups.of(ConsumerGroup, group.group_id)
            if back is None or member_id not in back.members:
                self._forget_timers(group.group_id, member_id)
            else:  # It is a KIP-848 group again, which its members joined with new sessions.
                self._forget_waits(group.group_id, member_id)

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """Return what deletes a group, without its offsets. Raises KafkaError."""
        return consumer_records.group_tombstones(self.group(group_id))

    # Time.

    def keep_alive(self, group_id: str, member: ConsumerMember) -> None:
        """Let a member live for its session timeout more."""
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
        """Compute the targets so much later; None: they are as they should be."""
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
        """Take a member out after a time; with ``epoch``, only if it is there still."""

        def fire() -> None:
            self.line.later(group_id, lambda: self._fence(group_id, member_id, why, epoch), _note)

        self._shard.timers.schedule((group_id, kind, member_id), timeout_ms, fire)

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

        def done(error: KafkaError | None) -> None:
            _note(error)
            if error is not None and self._groups.of(ConsumerGroup, group_id) is group:
                self.keep_alive(group_id, member)

        self.take_out(group, [member], done)

    def _assign(self, group_id: str) -> None:
        def run() -> None:
            group = self._groups.of(ConsumerGroup, group_id)
            if group is not None:
                steps = machine.assign(group, self._topics, self._shard.clock.wall_ms())
                self.line.decide(
                    group_id,
                    steps,
                    lambda made: self.line.write(group_id, made.records, _note),
                    _note,
                )

        self.line.later(group_id, run, _note)


def _note_stale(group: ConsumerGroup, names: Collection[str]) -> None:
    """Let the group look at these topics at its next heartbeat, if it may read them."""
    if group.may_be_concerned(names):
        group.is_stale = True
        if group.topics_changed is not None:
            group.topics_changed.update(names)


def _leaving(
    group: ConsumerGroup, leaving: LeavingMember
) -> tuple[ConsumerMember | None, ErrorCode]:
    """Return the member that is to go, or why it is not to."""
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


def _note(error: KafkaError | None) -> None:
    """Note why something that nobody waits for did not work; time will bring it about again."""
    if error is not None:
        logger.warning("a group could not be changed: %s", error)
