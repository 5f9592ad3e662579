"""The KIP-848 groups of one partition of ``__consumer_offsets``: decisions written and answered.

Between the pure ``consumer_machine`` and the runtime's shard. A group writes one thing at a time:
while its records are on their way, heartbeats that came meanwhile wait, and see what is durable
when their turn comes. Groups do not wait for each other, and a heartbeat that changes nothing costs
look-ups only. Source: Kafka's GroupMetadataManager in its effect.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any, NamedTuple

from ottla.coordinator.group import consumer_machine as machine
from ottla.coordinator.group import consumer_records
from ottla.coordinator.group.classic_events import LeaveAnswer, LeavingMember
from ottla.coordinator.group.classic_group import ClassicGroup, GroupState
from ottla.coordinator.group.consumer_group import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from ottla.coordinator.group.consumer_machine import (
    ConsumerSettings,
    Decision,
    Heartbeat,
    HeartbeatAnswer,
    Topics,
)
from ottla.coordinator.group.offsets import NEVER_EXPIRES, Offsets
from ottla.coordinator.group.records import OffsetKey, group_tombstone
from ottla.coordinator.records import CoordinatorRecord, StoredRecord
from ottla.coordinator.shard import Shard
from ottla.errors import ErrorCode, KafkaError
from ottla.pending import Pending

logger = logging.getLogger(__name__)

_SESSION = "consumer session"
_REBALANCE = "consumer rebalance"
_ASSIGNMENT = "consumer assignment"

Answered = Callable[[KafkaError | None], None]


class _Waiting(NamedTuple):
    run: Callable[[], None]
    refuse: Callable[[KafkaError], None]


class ConsumerGroups:
    """Groups by id. ``classic`` are the shard's other groups: an id is in one of both."""

    def __init__(
        self,
        shard: Shard[Any],
        settings: ConsumerSettings,
        topics: Topics,
        classic: dict[str, ClassicGroup],
    ) -> None:
        self._shard = shard
        self._settings = settings
        self._topics = topics
        self._classic = classic
        self.groups: dict[str, ConsumerGroup] = {}
        self._busy: dict[str, deque[_Waiting]] = {}
        """Use: groups with records on their way, and who waits for them."""

    # What the shard calls.

    def replay(self, kind: int, stored: StoredRecord) -> None:
        """Take a durable record. Raises KafkaError (CORRUPT_MESSAGE)."""
        group_id, name = consumer_records.read_key(kind, stored)
        group = self.groups.get(group_id)
        if group is None:
            if stored.value is None:
                return
            group = self.groups[group_id] = ConsumerGroup(group_id)
            self._classic.pop(group_id, None)
        if not consumer_records.replay(group, kind, name, stored):
            del self.groups[group_id]

    def loaded(self) -> None:
        """Give every member a new session, and its time to give up what it must."""
        for group in self.groups.values():
            for member in group.members.values():
                self._keep_alive(group.group_id, member.member_id)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self._await_revocation(group, member.member_id, member.rebalance_timeout_ms)

    def unloaded(self, error: KafkaError) -> None:
        """Send away who waits."""
        busy, self._busy = self._busy, {}
        self.groups = {}
        for waiting in busy.values():
            for one in waiting:
                one.refuse(error)

    def is_writing(self, group_id: str) -> bool:
        """Tell whether records of a group, which may be a new one, are on their way."""
        return group_id in self._busy

    def topics_changed(self, names: Collection[str]) -> None:
        """Let groups that may read these topics look at them at their next heartbeat."""
        for group in self.groups.values():
            if group.may_be_concerned(names):
                group.is_stale = True
                if group.topics_changed is not None:
                    group.topics_changed.update(names)

    # Requests.

    def heartbeat(
        self, group_id: str, beat: Heartbeat, pending: Pending[HeartbeatAnswer | KafkaError]
    ) -> None:
        """Answer a heartbeat, when what it changes is durable."""

        def run() -> None:
            now_ms = self._shard.clock.wall_ms()
            if beat.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                group = self.group(group_id)
                decision = machine.leave(group, beat, self._topics)
            else:
                group, replaced = self._group_for(group_id, may_make=beat.epoch == 0)
                decision = machine.heartbeat(group, beat, self._topics, now_ms, self._settings)
                decision.records[:0] = replaced
                group.is_stale, group.topics_changed = False, set()

            def done(error: KafkaError | None) -> None:
                if error is not None:
                    group.is_stale, group.topics_changed = True, None
                    pending.resolve(error)
                    return
                if beat.epoch == LEAVE_EPOCH:
                    self._forget_timers(group_id, beat.member_id)
                elif beat.epoch >= 0:
                    self._keep_alive(group_id, beat.member_id)
                self._set_timers(group_id, beat.member_id, decision)
                assert decision.answer is not None, "a heartbeat is answered"
                pending.resolve(decision.answer)

            self._write(group_id, decision.records, done)

        self._submit(group_id, run, pending.resolve)

    def leave(
        self,
        group_id: str,
        members: Sequence[LeavingMember],
        pending: Pending[tuple[LeaveAnswer, ...] | KafkaError],
    ) -> None:
        """Take members out on behalf of LeaveGroup, which tools send to groups of any kind."""

        def run() -> None:
            group = self.group(group_id)
            gone: dict[str, ConsumerMember] = {}
            answers = []
            for leaving in members:
                member, code = _leaving(group, leaving)
                if member is not None and member.member_id in gone:
                    code = ErrorCode.UNKNOWN_MEMBER_ID
                elif member is not None:
                    gone[member.member_id] = member
                answers.append(LeaveAnswer(leaving, code))

            def done(error: KafkaError | None) -> None:
                for member_id in gone if error is None else ():
                    self._forget_timers(group_id, member_id)
                pending.resolve(tuple(answers) if error is None else error)

            decision = machine.fence(group, list(gone.values()), self._topics)
            self._write(group_id, decision.records if gone else [], done)

        self._submit(group_id, run, pending.resolve)

    def group(self, group_id: str) -> ConsumerGroup:
        """Return a group. Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        group = self.groups.get(group_id)
        if group is None:
            why = f"Group {group_id} not found."
            if group_id in self._classic:
                why = f"Group {group_id} is not a consumer group."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)
        return group

    def _group_for(
        self, group_id: str, *, may_make: bool
    ) -> tuple[ConsumerGroup, list[CoordinatorRecord]]:
        """Return a group, maybe a new one, and what deletes an empty classic one in its place."""
        if group_id in self.groups or not may_make:
            return self.group(group_id), []
        classic = self._classic.get(group_id)
        if classic is None:
            return ConsumerGroup(group_id), []
        if classic.state is not GroupState.EMPTY:
            return self.group(group_id), []
        return ConsumerGroup(group_id), [group_tombstone(group_id)]

    # One thing at a time.

    def _submit(
        self, group_id: str, run: Callable[[], None], refuse: Callable[[KafkaError], None]
    ) -> None:
        """Run now, or when what the group writes is durable. ``run`` may raise KafkaError."""
        waiting = self._busy.get(group_id)
        if waiting is not None:
            waiting.append(_Waiting(run, refuse))
            return
        try:
            run()
        except KafkaError as error:
            refuse(error)
        except StructError:  # Bytes that are no UTF-8 grow by what stands for them.
            why = "a text is too long to store"
            refuse(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, why))

    def _write(self, group_id: str, found: Sequence[CoordinatorRecord], answered: Answered) -> None:
        """Append, and let the group wait until that is durable and replayed."""
        if not found:
            answered(None)
            return
        self._busy[group_id] = deque()

        def done(error: KafkaError | None) -> None:
            waiting = self._busy.pop(group_id, None)
            if waiting is None:  # The shard was let go meanwhile: nothing was replayed.
                why = f"{self._shard.where} is not led here"
                answered(KafkaError(ErrorCode.NOT_COORDINATOR, why))
                return
            answered(error)
            for one in waiting:
                self._submit(group_id, *one)

        self._shard.append(found, done)

    # Time.

    def _keep_alive(self, group_id: str, member_id: str) -> None:
        def fire() -> None:
            self._fence(group_id, member_id, "its session is over")

        key = (group_id, _SESSION, member_id)
        self._shard.timers.schedule(key, self._settings.session_timeout_ms, fire)

    def _set_timers(self, group_id: str, member_id: str, decision: Decision) -> None:
        if decision.rebalance_timeout_ms == 0:
            self._shard.timers.cancel((group_id, _REBALANCE, member_id))
        elif decision.rebalance_timeout_ms is not None:
            group = self.groups[group_id]
            self._await_revocation(group, member_id, decision.rebalance_timeout_ms)
        key = (group_id, _ASSIGNMENT)
        if decision.assignment_delay_ms is not None and key not in self._shard.timers:
            delay_ms = decision.assignment_delay_ms
            self._shard.timers.schedule(key, delay_ms, lambda: self._assign(group_id))

    def _await_revocation(self, group: ConsumerGroup, member_id: str, timeout_ms: int) -> None:
        epoch = group.members[member_id].epoch

        def fire() -> None:
            why = f"it has not left epoch {epoch} within {timeout_ms} ms"
            self._fence(group.group_id, member_id, why, epoch=epoch)

        key = (group.group_id, _REBALANCE, member_id)
        self._shard.timers.schedule(key, timeout_ms, fire)

    def _forget_timers(self, group_id: str, member_id: str) -> None:
        self._shard.timers.cancel((group_id, _SESSION, member_id))
        self._shard.timers.cancel((group_id, _REBALANCE, member_id))

    def _fence(self, group_id: str, member_id: str, why: str, *, epoch: int | None = None) -> None:
        """Take a silent member out; with ``epoch``, only if it is there still."""

        def run() -> None:
            group = self.groups.get(group_id)
            member = None if group is None else group.members.get(member_id)
            if group is None or member is None or epoch not in (None, member.epoch):
                return
            logger.info("member %s leaves group %s: %s", member_id, group_id, why)
            decision = machine.fence(group, [member], self._topics)
            self._forget_timers(group_id, member_id)
            self._write(group_id, decision.records, _note)

        self._later(group_id, run)

    def _assign(self, group_id: str) -> None:
        def run() -> None:
            group = self.groups.get(group_id)
            if group is not None:
                now_ms = self._shard.clock.wall_ms()
                decision = machine.assign(group, self._topics, now_ms)
                self._write(group_id, decision.records, _note)

        self._later(group_id, run)

    def _later(self, group_id: str, run: Callable[[], None]) -> None:
        """Run what a timer brings about, in its turn."""
        self._shard.execute(lambda: self._submit(group_id, run, _note), _note)

    # What is forgotten.

    def expired(
        self, offsets: Offsets, now_ms: int, retention_ms: int
    ) -> tuple[list[OffsetKey], list[CoordinatorRecord]]:
        """Return offsets nobody reads that are old enough, and what deletes groups of nothing."""
        keys: list[OffsetKey] = []
        tombstones: list[CoordinatorRecord] = []
        for group_id, group in self.groups.items():
            is_all = True
            for topic, partition, committed in offsets.committed_of_group(group_id):
                due_ms = committed.expire_timestamp_ms
                if due_ms == NEVER_EXPIRES:
                    due_ms = committed.commit_timestamp_ms + retention_ms
                is_wanted = group.is_subscribed_to(topic)
                if (
                    now_ms >= due_ms
                    and not is_wanted
                    and not offsets.is_pending(group_id, topic, partition)
                ):
                    keys.append(OffsetKey(group_id, topic, partition))
                else:
                    is_all = False
            if is_all and not group.members and not offsets.has_open_transaction(group_id):
                tombstones += consumer_records.group_tombstones(group)
        return keys, tombstones

    def check(self) -> None:
        """Assert the invariants; for tests."""
        assert not self.groups.keys() & self._classic.keys()
        for group in self.groups.values():
            group.check()


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
