"""Serves requests of the classic protocol in KIP-848 groups: decides, writes and answers.

Between the pure ``classic_in_consumer`` and the shard. Everything runs in the group's turn
(``GroupLine``). Source: Kafka's GroupMetadataManager in its effect.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from ottla.coordinator.group.classic.events import (
    Heartbeat,
    Join,
    JoinAnswer,
    LeaveAnswer,
    LeavingMember,
    Sync,
    SyncAnswer,
)
from ottla.coordinator.group.consumer import machine as consumer_machine
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.groups import JOIN, SYNC, ConsumerGroups
from ottla.coordinator.group.consumer.settings import ConsumerSettingsByGroup
from ottla.coordinator.group.migration import classic_in_consumer as machine
from ottla.coordinator.group.migration.conversions import Conversions
from ottla.coordinator.group.topics import Topics
from ottla.coordinator.shard import Shard
from ottla.errors import ErrorCode, KafkaError
from ottla.pending import Pending


class ClassicMembers:
    """Serves JoinGroup, SyncGroup, Heartbeat and LeaveGroup to KIP-848 groups with members."""

    def __init__(
        self,
        shard: Shard[Any],
        settings: ConsumerSettingsByGroup,
        topics: Topics,
        consumers: ConsumerGroups,
        conversions: Conversions,
    ) -> None:
        self._shard = shard
        self._settings = settings
        self._topics = topics
        self._consumers = consumers
        self._conversions = conversions

    def join(self, group_id: str, asked: Join, pending: Pending[JoinAnswer]) -> None:
        """Add a member, or take it one step further; resolves when that is durable."""
        now_ms, group = self._shard.clock.wall_ms(), self._consumers.group(group_id)

        def done(joined: machine.Joined) -> None:
            assert joined.member is not None, "else there is nothing to write"
            member_id = joined.member.member_id
            self._shard.timers.cancel((group_id, JOIN, member_id))
            if joined.downgrade is not None:
                self._consumers.let_go(group)
                self._conversions.adopt(joined.downgrade)
            else:
                self._consumers.keep_alive(group_id, joined.member)
                self._await(SYNC, group_id, member_id, asked.rebalance_timeout_ms)
                self._consumers.await_assignment(group_id, joined.assignment_delay_ms)
            pending.resolve(joined.answer)

        def not_written(error: KafkaError) -> None:
            group.is_stale, group.changed_topics = True, None
            pending.fail(error)

        def decided(joined: machine.Joined) -> None:
            if joined.member is None:
                pending.resolve(joined.answer)
            else:
                if not group.tally.regexes:  # Else the next heartbeat looks, by its own rights.
                    group.looked(now_ms)
                self._consumers.line.write(
                    group_id, joined.records, partial(done, joined), not_written
                )

        def refuse(error: KafkaError) -> None:
            pending.resolve(JoinAnswer("", error.code))

        settings = self._settings.of(group_id)
        steps = machine.join(group, asked, self._topics, now_ms, settings)
        try:
            self._consumers.line.decide(group_id, steps, decided, refuse)
        except KafkaError as error:
            refuse(error)

    def sync(self, group_id: str, asked: Sync, pending: Pending[SyncAnswer]) -> None:
        """Tell a member its partitions."""
        group, member_id = self._consumers.group(group_id), asked.member_id
        try:
            answer = machine.sync(group, asked, self._topics)
        except KafkaError as error:
            if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                self._await_join(group, member_id)
            raise
        self._shard.timers.cancel((group_id, SYNC, member_id))
        self._consumers.keep_alive(group_id, group.members[member_id])
        pending.resolve(answer)

    def heartbeat(self, group_id: str, beat: Heartbeat, pending: Pending[ErrorCode]) -> None:
        """Keep a member alive; if it is told to join again, its time for that begins."""
        group = self._consumers.group(group_id)
        code = machine.heartbeat(group, beat)
        self._consumers.keep_alive(group_id, group.members[beat.member_id])
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._await_join(group, beat.member_id)
        elif machine.needs_targets(group):
            self._await_targets(group)
        pending.resolve(code)

    def leave(
        self,
        group_id: str,
        members: Sequence[LeavingMember],
        pending: Pending[tuple[LeaveAnswer, ...]],
    ) -> None:
        """Remove members, of either protocol: tools send LeaveGroup to groups of any kind."""
        self._consumers.leave(self._consumers.group(group_id), members, pending)

    def heard_of(self, group_id: str, member_id: str) -> None:
        """Do nothing: a commit does not extend a session in these groups."""

    def _await_targets(self, group: ConsumerGroup) -> None:
        """Compute the targets as soon as they are due.

        Kafka waits until a member joins.
        """
        now_ms, settings = self._shard.clock.wall_ms(), self._settings.of(group.group_id)
        delay_ms = consumer_machine.assignment_delay_ms(group, now_ms, settings)
        self._consumers.await_assignment(group.group_id, delay_ms)

    def _await_join(self, group: ConsumerGroup, member_id: str) -> None:
        if (group.group_id, JOIN, member_id) not in self._shard.timers:
            timeout_ms = group.members[member_id].rebalance_timeout_ms
            self._await(JOIN, group.group_id, member_id, timeout_ms)

    def _await(self, kind: str, group_id: str, member_id: str, timeout_ms: int) -> None:
        why = f"no {kind} within {timeout_ms} ms"
        self._consumers.fence_after(group_id, kind, member_id, timeout_ms, why)
