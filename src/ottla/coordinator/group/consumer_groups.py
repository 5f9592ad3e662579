"""The KIP-848 groups of one partition of ``__consumer_offsets``: decisions written and answered.

Between the pure ``consumer.machine`` and the runtime's shard. A group writes one thing at a time:
while its records are on their way, requests that came meanwhile wait, and see what is durable
when their turn comes; so do those of a classic group on its way to becoming one of these. Groups do
not wait for each other, and a heartbeat that changes nothing costs look-ups only. Members that
speak the classic protocol are in ``classic_members``. Source: Kafka's GroupMetadataManager in its
effect.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any, NamedTuple, Protocol, TypeVar

from ottla.coordinator.group.answering import Answering
from ottla.coordinator.group.classic.events import LeaveAnswer, LeavingMember
from ottla.coordinator.group.classic.group import ClassicGroup, GroupState
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
from ottla.coordinator.group.migration import conversion as migration
from ottla.coordinator.group.offsets import NEVER_EXPIRES, OffsetKey, Offsets
from ottla.coordinator.group.records import group_tombstone
from ottla.coordinator.group.settings import ConsumerSettingsByGroup
from ottla.coordinator.records import CoordinatorRecord, StoredRecord
from ottla.coordinator.shard import Shard
from ottla.errors import ErrorCode, KafkaError
from ottla.pending import Pending
from ottla.sliced import Slices, Steps
from ottla.turns import Portions

logger = logging.getLogger(__name__)

SESSION = "consumer session"
REBALANCE = "consumer rebalance"
JOIN = "classic join"
SYNC = "classic sync"
"""Timers of a member; the last two of one that speaks the classic protocol."""
_ASSIGNMENT = "consumer assignment"

Answered = Callable[[KafkaError | None], None]
Decided = TypeVar("Decided")


class ClassicGroups(Protocol):
    """What is asked of the shard's other groups. An id is in one of both."""

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        """Them by id."""

    def adopt(self, group: ClassicGroup, *, rejoin: bool) -> None:
        """Take over a group; ``rejoin``: its members have to come again."""

    def left_behind(self, group_id: str) -> None:
        """Hear that the log deletes a KIP-848 group; a classic one may follow."""

    def dismiss(self, group: ClassicGroup) -> None:
        """Let go of a group, and send its members away that wait for something."""


class _Busy:
    """A group that decides or writes something, and who waits for it."""

    __slots__ = ("changed", "is_occupied", "waiting")

    def __init__(self) -> None:
        self.is_occupied = True
        """Use: False: those who wait go on, one after the other."""
        self.waiting: deque[_Waiting] = deque()
        self.changed: set[str] = set()
        """Topics that have changed since it began to decide."""


class _Waiting(NamedTuple):
    run: Callable[[], None]
    refuse: Callable[[KafkaError], None]


class _Opening(NamedTuple):
    """A group as a joining member finds it."""

    group: ConsumerGroup
    records: Sequence[CoordinatorRecord] = ()
    """What makes it of a classic one, or deletes that."""
    classic: ClassicGroup | None = None
    """The one that becomes it."""


class ConsumerGroups:
    """Groups by id."""

    def __init__(
        self,
        shard: Shard[Any],
        settings: ConsumerSettingsByGroup,
        topics: Topics,
        classic: ClassicGroups,
    ) -> None:
        self._shard = shard
        self._settings = settings
        self._topics = topics
        self._classic = classic
        self.groups: dict[str, ConsumerGroup] = {}
        self._busy: dict[str, _Busy] = {}
        """Use: groups with decisions or records on their way, and who waits for them."""
        self._slices = Slices(shard.turns)
        self._freed: deque[str] = deque()
        """Use: groups that are not occupied any more, and that somebody waits for."""
        self._freeing = Portions(shard.turns, self._free_one, "requests to a group that was busy")
        self._answering = Answering(shard.turns)

    # What the shard calls.

    def replay(self, kind: int, stored: StoredRecord) -> None:
        """Take a durable record. Raises KafkaError (CORRUPT_MESSAGE)."""
        group_id, name = consumer_records.read_key(kind, stored)
        if kind == GROUP and stored.value is None:
            self._classic.left_behind(group_id)
        group = self.groups.get(group_id)
        if group is None:
            if stored.value is None:
                return
            group = self.groups[group_id] = ConsumerGroup(group_id)
            self._classic.groups.pop(group_id, None)
        if not consumer_records.replay(group, kind, name, stored):
            del self.groups[group_id]

    def loaded(self) -> Iterator[None]:
        """Give every member a new session, and its time to give up what it must."""
        for group in list(self.groups.values()):
            for member in list(group.members.values()):
                yield
                self.keep_alive(group.group_id, member)
                if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                    self._await_revocation(group, member.member_id, member.rebalance_timeout_ms)

    def unloaded(self, error: KafkaError) -> None:
        """Send away who waits."""
        busy, self._busy = self._busy, {}
        self.groups = {}
        for one in busy.values():
            self._answering.take(lambda waiting: waiting.refuse(error), one.waiting)

    def topics_changed(self, names: Collection[str]) -> None:
        """Let groups that may read these topics look at them at their next heartbeat."""
        for busy in self._busy.values():
            busy.changed.update(names)
        self._shard.in_steps(self._note_changed(frozenset(names)))

    def _note_changed(self, names: frozenset[str]) -> Iterator[None]:
        for group in list(self.groups.values()):
            yield
            _note_stale(group, names)

    # Requests.

    def heartbeat(
        self, group_id: str, beat: Heartbeat, pending: Pending[HeartbeatAnswer | KafkaError]
    ) -> None:
        """Answer a heartbeat, when what it changes is durable. In its turn."""
        if beat.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            self._depart(self.group(group_id), beat, pending)
            return
        now_ms = self._shard.clock.wall_ms()
        opening = self._group_for(group_id, may_make=beat.epoch == 0)
        group = opening.group
        known = group.members.get(beat.member_id)
        settings = self._settings.of(group_id)

        def done(decision: machine.Decision, error: KafkaError | None) -> None:
            if error is not None:
                group.is_stale, group.topics_changed = True, None
                pending.resolve(error)
                return
            if opening.classic is not None:
                self._opened(group_id, opening.classic)
            if known is not None and known.classic is not None:
                self._forget_timers(group_id, beat.member_id)
            self.keep_alive(group_id, self.groups[group_id].members[beat.member_id])
            self._await_step(group_id, beat.member_id, decision.rebalance_timeout_ms)
            self.await_assignment(group_id, decision.assignment_delay_ms)
            assert decision.answer is not None, "a heartbeat is answered"
            pending.resolve(decision.answer)

        def decided(decision: machine.Decision) -> None:
            group.is_stale, group.topics_changed = False, set()
            found = [*opening.records, *decision.records]
            self.write(group_id, found, partial(done, decision))

        steps = machine.hear(group, beat, self._topics, now_ms, settings)
        self.decide(group, steps, decided, pending.resolve)

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
            self.write(group.group_id, machine.away(group, member).records, done)
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
        group = self.groups.get(group_id)
        if group is None:
            why = f"Group {group_id} not found."
            if group_id in self._classic.groups:
                why = f"Group {group_id} is not a consumer group."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)
        return group

    def _group_for(self, group_id: str, *, may_make: bool) -> _Opening:
        """Return a group, maybe a new one, or one that a classic group is to become."""
        if group_id in self.groups or not may_make:
            return _Opening(self.group(group_id))
        classic = self._classic.groups.get(group_id)
        if classic is None:
            return _Opening(ConsumerGroup(group_id))
        if classic.state is GroupState.EMPTY:
            return _Opening(ConsumerGroup(group_id), [group_tombstone(group_id)])
        settings = self._settings.of(group_id)
        migration.check_upgrade(
            classic, settings.migration_policy, members_max=settings.members_max
        )
        upgrade = migration.upgraded(classic, self._topics)
        return _Opening(upgrade.group, upgrade.records, classic)

    def _opened(self, group_id: str, classic: ClassicGroup) -> None:
        """Let a classic group go that has become this one."""
        logger.info("group %.249r uses the consumer protocol from now on", group_id)
        self._classic.dismiss(classic)
        for member in self.groups[group_id].members.values():
            self.keep_alive(group_id, member)

    # Members that go.

    def take_out(
        self, group: ConsumerGroup, gone: Sequence[ConsumerMember], answered: Answered
    ) -> None:
        """Take members out; a group that only classic ones are left in becomes a classic one."""
        group_id = group.group_id
        ids = {member.member_id for member in gone}
        downgrade = self._downgrade(group, ids)
        if downgrade is not None:
            found = downgrade.records
        else:
            found = machine.fence(group, gone, self._topics).records if gone else []

        def done(error: KafkaError | None) -> None:
            if error is None:
                for member_id in ids:
                    self._forget_timers(group_id, member_id)
                if downgrade is not None:
                    self.become_classic(group, downgrade)
            answered(error)

        self.write(group_id, found, done)

    def _downgrade(self, group: ConsumerGroup, gone: set[str]) -> migration.Downgrade | None:
        settings = self._settings.of(group.group_id)
        is_open = gone and migration.may_downgrade(
            group, gone, settings.migration_policy, members_max=settings.classic_members_max
        )
        if not is_open:
            return None
        now_ms = self._shard.clock.wall_ms()
        return migration.downgraded(group, gone, None, self._topics, now_ms)

    def become_classic(self, group: ConsumerGroup, downgrade: migration.Downgrade) -> None:
        """Hand a group over, whose records are durable."""
        logger.info("group %.249r uses the classic protocol from now on", group.group_id)
        for member_id in group.members:
            self._forget_timers(group.group_id, member_id)
        self._classic.adopt(downgrade.group, rejoin=not downgrade.is_settled)

    # One thing at a time.

    def in_turn(
        self, group_id: str, run: Callable[[], None], refuse: Callable[[KafkaError], None]
    ) -> None:
        """Run now, or when what the group writes is durable. ``run`` may raise KafkaError."""
        busy = self._busy.get(group_id)
        if busy is not None:
            busy.waiting.append(_Waiting(run, refuse))
        else:
            _attempt(run, refuse)

    def decide(
        self,
        group: ConsumerGroup,
        steps: Steps[Decided],
        decided: Callable[[Decided], None],
        refuse: Callable[[KafkaError], None],
    ) -> None:
        """Call ``decided`` with what ``steps`` return, which look at the group as it is.

        At once if that takes no longer than a slice, else later; the group waits meanwhile. Raises
        what the steps raise at once; later errors are for ``refuse``.
        """
        group_id = group.group_id

        outcome = self._slices.run(steps, lambda: f"a decision for the group {group_id:.249}")
        if not isinstance(outcome, Pending):
            decided(outcome)
            return
        busy = self._busy.setdefault(group_id, _Busy())
        busy.is_occupied = True
        busy.changed.clear()
        self._shard.hold()

        def run(done: Pending[Decided]) -> None:
            if self._busy.get(group_id) is not busy:
                why = f"{self._shard.where} is not led here"
                raise KafkaError(ErrorCode.NOT_COORDINATOR, why)
            busy.is_occupied = False
            if done.error is not None:
                raise done.error
            decided(done.value)  # type: ignore[arg-type]
            if busy.changed:
                _note_stale(group, busy.changed)

        def ended(done: Pending[Decided]) -> None:
            self._shard.attempt(lambda: _attempt(lambda: run(done), refuse), refuse)
            if self._busy.get(group_id) is busy:
                self._free(group_id, busy)
            self._shard.release()

        outcome.on_done(ended)

    def write(self, group_id: str, found: Sequence[CoordinatorRecord], answered: Answered) -> None:
        """Append, and let the group wait until that is durable and replayed."""
        if not found:
            answered(None)
            return
        busy = self._busy.setdefault(group_id, _Busy())
        busy.is_occupied = True

        def done(error: KafkaError | None) -> None:
            if self._busy.get(group_id) is not busy:  # The shard was let go: nothing was replayed.
                why = f"{self._shard.where} is not led here"
                answered(KafkaError(ErrorCode.NOT_COORDINATOR, why))
                return
            busy.is_occupied = False
            answered(error)
            if busy.changed and group_id in self.groups:
                _note_stale(self.groups[group_id], busy.changed)
            busy.changed.clear()
            self._free(group_id, busy)

        self._shard.append(found, done)

    def _free(self, group_id: str, busy: _Busy) -> None:
        """Let those go on who wait, in their order, until one of them occupies the group again."""
        if busy.is_occupied:
            return
        if busy.waiting:
            self._freed.append(group_id)
            self._freeing.go_on()
        else:
            del self._busy[group_id]

    def _free_one(self) -> bool:
        group_id = self._freed[0]
        busy = self._busy.get(group_id)
        if busy is None or busy.is_occupied:
            self._freed.popleft()
        elif busy.waiting:
            run, refuse = busy.waiting.popleft()
            self._shard.attempt(lambda: _attempt(run, refuse), refuse)
        else:
            self._freed.popleft()
            del self._busy[group_id]
        return bool(self._freed)

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
            self._await_revocation(self.groups[group_id], member_id, timeout_ms)

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
            self._later(group_id, lambda: self._fence(group_id, member_id, why, epoch))

        self._shard.timers.schedule((group_id, kind, member_id), timeout_ms, fire)

    def _forget_timers(self, group_id: str, member_id: str) -> None:
        for kind in (SESSION, REBALANCE, JOIN, SYNC):
            self._shard.timers.cancel((group_id, kind, member_id))

    def _fence(self, group_id: str, member_id: str, why: str, epoch: int | None) -> None:
        group = self.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or epoch not in (None, member.epoch):
            return
        logger.info("member %s leaves group %s: %s", member_id, group_id, why)

        def done(error: KafkaError | None) -> None:
            _note(error)
            if error is not None and self.groups.get(group_id) is group:
                self.keep_alive(group_id, member)

        self.take_out(group, [member], done)

    def _assign(self, group_id: str) -> None:
        def run() -> None:
            group = self.groups.get(group_id)
            if group is not None:
                steps = machine.assign(group, self._topics, self._shard.clock.wall_ms())
                self.decide(
                    group, steps, lambda made: self.write(group_id, made.records, _note), _note
                )

        self._later(group_id, run)

    def _later(self, group_id: str, run: Callable[[], None]) -> None:
        """Run what a timer brings about, in its turn."""
        self._shard.execute(lambda: self.in_turn(group_id, run, _note), _note)

    # What is forgotten.

    def expired(
        self, group: ConsumerGroup, offsets: Offsets, now_ms: int, retention_ms: int
    ) -> tuple[list[OffsetKey], list[CoordinatorRecord]]:
        """Return offsets nobody reads that are old enough, and what deletes a group of nothing."""
        group_id, is_all = group.group_id, True
        keys: list[OffsetKey] = []
        wanted = group.topics_read(group.regexes)
        for topic, partition, committed in offsets.committed_of_group(group_id):
            due_ms = committed.expire_timestamp_ms
            if due_ms == NEVER_EXPIRES:
                due_ms = committed.commit_timestamp_ms + retention_ms
            if (
                now_ms >= due_ms
                and topic not in wanted
                and not offsets.is_pending(group_id, topic, partition)
            ):
                keys.append(OffsetKey(group_id, topic, partition))
            else:
                is_all = False
        is_gone = is_all and not group.members and not offsets.has_open_transaction(group_id)
        return keys, consumer_records.group_tombstones(group) if is_gone else []

    def check(self) -> None:
        """Assert the invariants; for tests."""
        assert not self.groups.keys() & self._classic.groups.keys()
        for group in self.groups.values():
            group.check()


def _attempt(run: Callable[[], None], refuse: Callable[[KafkaError], None]) -> None:
    try:
        run()
    except KafkaError as error:
        refuse(error)
    except StructError:  # Bytes that are no UTF-8 grow by what stands for them.
        why = "a text is too long to store"
        refuse(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, why))


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
