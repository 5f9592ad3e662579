"""A member of a classic consumer group: joins, keeps its place, commits, leaves. On asyncio.

Owns the member's id and generation and its heartbeats. What is read is the caller's business: it
asks for its partitions, and again whenever ``must_join`` says that the group has changed. The range
assignor, so that members of other clients may be in the same group.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.connection import Connection
from ottla.client.asyncio.groups import Groups
from ottla.client.wire.consumer_protocol import (
    PROTOCOL_TYPE,
    RANGE,
    assign_range,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.client.wire.errors import ConnectionFailed, error_code
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from ottla.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 60_000
HEARTBEATS_PER_SESSION = 3
HEARTBEAT_SECONDS_MAX = 3.0
"""So that a member hears of a rebalance soon, however long its session: Kafka's default."""
_LOST = frozenset(
    (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)
)
"""Answers after which a commit cannot count any more: others own the partitions."""
_MEMBER = "member"
"""A connection of its own: a JoinGroup may wait for long."""


class GroupMember:
    """Use as an async context manager; ``join`` first."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: frozenset[str],
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
    ) -> None:
        self.group = group
        self.must_join = asyncio.Event()
        """Set when the group has changed: ``join`` again."""
        self._cluster = cluster
        self._groups = Groups(cluster)
        self._topics = topics
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._member_id = ""
        self._generation = -1
        self._heartbeats: asyncio.Task[None] | None = None

    @property
    def identity(self) -> tuple[str, int]:
        """The member's id and generation, which its commits carry."""
        return self._member_id, self._generation

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.leave()

    async def join(self) -> list[TopicPartition]:
        """Take part in the next generation; return the partitions that this member may read.

        Waits for the other members, at most for the rebalance timeout. Raises KafkaError.
        """
        await self._stop_heartbeats()
        await self._cluster.ensure(self._topics)
        data = await self._join_at_last()
        self.must_join.clear()
        self._heartbeats = asyncio.create_task(self._beat(), name="ottla member")
        return decode_assignment(data)

    async def is_settled(self) -> bool:
        """Whether the member has all that the group gives it: in each generation, from ``join``."""
        return True

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit offsets; False when the group has given the partitions to others meanwhile."""
        if not offsets:
            return True
        try:
            await self._groups.commit(
                self.group, offsets, generation=self._generation, member_id=self._member_id
            )
        except KafkaError as error:
            if error.code not in _LOST and error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                raise
            self.must_join.set()
            return False
        return True

    def subscribe(self, topics: frozenset[str]) -> None:
        """Change the topics; the group is to be joined again."""
        if topics != self._topics:
            self._topics = topics
            self.must_join.set()

    def abandon(self) -> "list[asyncio.Task[None]]":
        """Stop the heartbeats without leaving, and return their task."""
        if self._heartbeats is None:
            return []
        self._heartbeats.cancel()
        return [self._heartbeats]

    async def leave(self) -> None:
        """Leave the group, so that the others need not wait. Harmless when not joined."""
        await self._stop_heartbeats()
        member_id, self._member_id = self._member_id, ""
        if not member_id:
            return
        request = LeaveGroupRequest(
            group_id=self.group,
            member_id=member_id,
            members=[MemberIdentity(member_id=member_id)],
        )
        with suppress(KafkaError, ConnectionFailed):  # Without it the session ends soon.
            connection = await self._connection()
            await connection.call(request, LeaveGroupResponse)

    async def _join_at_last(self) -> bytes:
        while True:
            try:
                return await self._cluster.retrying(self._join_once)
            except KafkaError as error:
                # Others came or went meanwhile, or took us for dead: once more, from the start.
                if error.code not in _LOST and error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                    raise

    async def _join_once(self) -> bytes:
        try:
            connection = await self._connection()
            return await self._join_and_sync(connection)
        except ConnectionFailed:
            self._groups.forget_coordinator(self.group)
            raise

    async def _join_and_sync(self, connection: Connection) -> bytes:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=RANGE, metadata=encode_subscription(self._topics))
            ],
        )
        patience_ms = self._rebalance_timeout_ms + self._cluster.settings.request_timeout_ms
        joined = await connection.call(request, JoinGroupResponse, timeout_ms=patience_ms)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = self._member_id = joined.member_id
            joined = await connection.call(request, JoinGroupResponse, timeout_ms=patience_ms)
        self._check(joined.error_code)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        is_leader = joined.leader == joined.member_id and not joined.skip_assignment
        synced = await connection.call(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=joined.protocol_name or RANGE,
                assignments=await self._assign(joined) if is_leader else [],
            ),
            SyncGroupResponse,
            timeout_ms=patience_ms,
        )
        self._check(synced.error_code)
        return synced.assignment

    async def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        subscriptions = {
            member.member_id: decode_subscription(member.metadata) for member in joined.members
        }
        topics = {topic for names in subscriptions.values() for topic in names}
        view = await self._cluster.refresh(topics)
        counts = {name: len(view.topics[name].partitions) for name in topics if name in view.topics}
        return [
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=encode_assignment(partitions)
            )
            for member_id, partitions in assign_range(subscriptions, counts).items()
        ]

    async def _beat(self) -> None:
        """Send heartbeats until one is answered that the group has changed, or cannot be sent."""
        pause_seconds = min(
            self._session_timeout_ms / 1000 / HEARTBEATS_PER_SESSION, HEARTBEAT_SECONDS_MAX
        )
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self._generation, member_id=self._member_id
        )
        code = ErrorCode.NONE
        while code is ErrorCode.NONE:
            await asyncio.sleep(pause_seconds)
            try:
                connection = await self._connection()
                answer = await connection.call(request, HeartbeatResponse)
                code = error_code(answer.error_code)
            except (KafkaError, ConnectionFailed):
                self._groups.forget_coordinator(self.group)
                continue
            if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                self._groups.forget_coordinator(self.group)
                code = ErrorCode.NONE
        self.must_join.set()

    async def _connection(self) -> Connection:
        return await self._groups.coordinator(self.group, _MEMBER)

    async def _stop_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            with suppress(asyncio.CancelledError):
                await self._heartbeats
            self._heartbeats = None

    def _check(self, code: int) -> None:
        error = error_code(code)
        if error is ErrorCode.NONE:
            return
        if error in _LOST:
            self._member_id, self._generation = "", -1
        if error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._groups.forget_coordinator(self.group)
        raise KafkaError(error, f"group {self.group}: {error.text}")
