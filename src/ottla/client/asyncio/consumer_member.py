"""A member of a consumer group of KIP-848: its heartbeats, and what the coordinator gives it.

On asyncio. Owns the member's id and epoch, and the assignment that the coordinator wants. What is
read is the caller's business: when ``must_join`` is set it gives up what ``target`` has no more,
and then says by ``hold`` what it has. Source: KIP-848, KIP-1082.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.groups import Groups
from ottla.client.wire.errors import ConnectionFailed, error_code
from ottla.env.rng import Rng, SystemRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId, TopicPartition
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOINS, LEAVES = 0, -1
_LOST = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_MEMBER = "member"


class ConsumerMember:
    """``join`` first, ``leave`` last."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Iterable[str],
        *,
        rebalance_timeout_ms: int,
        rng: Rng | None = None,
    ) -> None:
        self.group = group
        self.must_join = asyncio.Event()
        """Set when ``target`` is not what the member holds, or the membership is lost."""
        self.target: frozenset[TopicPartition] = frozenset()
        """What the coordinator wants the member to have."""
        self.is_lost = False
        """Whether the group has taken the member for dead: what it holds is others' already."""
        self.error: KafkaError | None = None
        """Use: what ended the heartbeats, for the caller to raise."""
        self._cluster = cluster
        self._groups = Groups(cluster)
        self._topics = sorted(topics)
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._member_id = (rng or SystemRng()).random_bytes(16).hex()
        self._epoch = JOINS
        self._interval_seconds = 3.0
        self._held: frozenset[TopicPartition] = frozenset()
        self._ids: dict[str, TopicId] = {}
        """Use: the topics that the coordinator has named by id so far."""
        self._says_all = True
        self._wake = asyncio.Event()
        self._beats: asyncio.Task[None] | None = None
        self._beating = asyncio.Lock()

    @property
    def identity(self) -> tuple[str, int]:
        """The member's id and epoch, which its commits carry."""
        return self._member_id, self._epoch

    async def join(self) -> None:
        """Join, for the first time or after the membership was lost. Raises KafkaError."""
        await self._cluster.ensure(self._topics)
        self.is_lost = False
        self.target = self._held = frozenset()
        self._epoch, self._says_all = JOINS, True
        await self._cluster.retrying(self._beat)
        if self._beats is None:
            self._beats = asyncio.get_running_loop().create_task(self._keep_beating())

    async def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Say what the member has now: what it has no more goes to others."""
        held = frozenset(partitions)
        if held != self._held:
            self._held = held
            self._says_all = True
            self._wake.set()
        self._compare()

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Change the topics."""
        wanted = sorted(topics)
        if wanted != self._topics:
            self._topics, self._says_all = wanted, True
            await self._cluster.ensure(wanted)
            self._wake.set()

    async def leave(self) -> None:
        """Leave, so that the others need not wait for the session's end. Harmless when not in."""
        if self._beats is not None:
            self._beats.cancel()
            with suppress(asyncio.CancelledError):
                await self._beats
            self._beats = None
        if self._epoch <= 0:
            return
        self._epoch = LEAVES
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self._member_id, member_epoch=LEAVES
        )
        with suppress(KafkaError, ConnectionFailed):
            connection = await self._groups.coordinator(self.group, _MEMBER)
            await connection.call(request, ConsumerGroupHeartbeatResponse, timeout_ms=5_000)

    def abandon(self) -> "list[asyncio.Task[None]]":
        """Stop the heartbeats without leaving, and return their task."""
        if self._beats is None:
            return []
        self._beats.cancel()
        return [self._beats]

    async def _keep_beating(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_seconds):
                    await self._wake.wait()
            self._wake.clear()  # What is said during the heartbeat goes with the next, at once.
            if self.is_lost:
                continue  # until the caller joins again
            try:
                await self._beat()
            except ConnectionFailed:
                await asyncio.sleep(self._cluster.settings.retry_backoff_ms / 1000)
                self._wake.set()
            except KafkaError as error:
                if not error.code.retriable:
                    self.error = error
                    self.must_join.set()
                    return
                await asyncio.sleep(self._cluster.settings.retry_backoff_ms / 1000)
                self._wake.set()

    async def _beat(self) -> None:
        """Send one heartbeat and take its answer. Raises KafkaError, ConnectionFailed.

        What was said counts as heard with a good answer only; until then each try says all.
        """
        try:
            await self._beat_once()
        except BaseException:
            self._says_all = True
            raise

    async def _beat_once(self) -> None:
        async with self._beating:
            try:
                connection = await self._groups.coordinator(self.group, _MEMBER)
                request = self._request()
                answer = await connection.call(request, ConsumerGroupHeartbeatResponse)
            except ConnectionFailed:
                self._groups.forget_coordinator(self.group)
                raise
        code = error_code(answer.error_code)
        if code in _MOVED:
            self._groups.forget_coordinator(self.group)
        if code in _LOST:
            self.is_lost = True
            self._epoch = JOINS
            self.must_join.set()
            return
        if code is not ErrorCode.NONE:
            raise KafkaError(code, answer.error_message or f"group {self.group}: {code.text}")
        self._epoch = answer.member_epoch
        self._member_id = answer.member_id or self._member_id
        self._interval_seconds = max(answer.heartbeat_interval_ms, 50) / 1000
        if answer.assignment is not None:
            self.target = await self._named(answer.assignment.topic_partitions)
        self._compare()

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self._member_id, member_epoch=self._epoch
        )
        if self._says_all:
            self._says_all = False
            request.rebalance_timeout_ms = self._rebalance_timeout_ms
            request.subscribed_topic_names = self._topics
            by_topic: dict[str, list[int]] = {}
            for topic, index in sorted(self._held):
                by_topic.setdefault(topic, []).append(index)
            request.topic_partitions = [
                TopicPartitions(topic_id=self._ids[name], partitions=indexes)
                for name, indexes in by_topic.items()
                if name in self._ids
            ]
        return request

    async def _named(self, given: Iterable[TopicPartitions]) -> frozenset[TopicPartition]:
        """Return partitions with the names of their topics; one that is gone is left out."""
        found: set[TopicPartition] = set()
        for each in given:
            name = next((one for one, topic in self._ids.items() if topic == each.topic_id), None)
            if name is None:
                view = await self._cluster.refresh(self._topics)
                self._ids.update(
                    {one: topic.topic_id for one, topic in view.topics.items() if topic.has_id}
                )
                name = next((o for o, topic in self._ids.items() if topic == each.topic_id), None)
            if name is not None:
                found.update(TopicPartition(name, index) for index in each.partitions)
        return frozenset(found)

    def _compare(self) -> None:
        if self.target != self._held:
            self.must_join.set()
        elif not self.is_lost:
            self.must_join.clear()
