"""What this node does for partitions of several replicas, those that it follows and those it leads.

Follows what other nodes lead, answers those that follow it, and keeps the ISRs of what it leads.
Owns who follows whom: one fetcher for each node that leads something here. Told by Hosting of each
role that a partition takes. Loaded with the first partition of several replicas. Knows no store and
no connection, only their ports. Source: Kafka's ReplicaManager.becomeLeaderOrFollower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple, Protocol

from ottla.env.clock import Clock
from ottla.env.executor import Executor
from ottla.env.tasks import begin_task
from ottla.ids import NodeId, TopicId, TopicPartition
from ottla.log.directories.cutting import LogCuts
from ottla.log.directories.manager import LogManager
from ottla.metadata.values import NO_LEADER, PartitionState
from ottla.replication.cutting import Cutting
from ottla.replication.fetcher import AskLeader, Fetcher, FetcherSettings, Registered
from ottla.replication.follower_sessions import FollowerSessions
from ottla.replication.following import Following
from ottla.replication.hand_overs import HandOvers
from ottla.replication.isr_changes import IsrChanges, ProposeState
from ottla.replication.low_watermarks import LowWatermarks
from ottla.replication.partition import Partition
from ottla.replication.relief import Relief
from ottla.replication.standing import Standing


class HandOver(Protocol):
    """The port to the store for what this node cannot serve."""

    def __call__(
        self,
        where: TopicPartition,
        topic_id: TopicId,
        before: PartitionState,
        minimum: int,
        /,
        *,
        leader_syncs: bool,
    ) -> None:
        """Let another replica lead, if one can; ``minimum``: ``min.insync.replicas``.

        ``leader_syncs``: False: this one may have acknowledged what is lost now.
        """


class ReplicaPorts(NamedTuple):
    """What is outside."""

    leaders: AskLeader
    propose: ProposeState
    hand_over: HandOver
    hand_overs: HandOvers
    clock: Clock
    awake_clock: Clock
    """Stands while the process does: by it followers lag."""
    executor: Executor
    random_below: Callable[[int], int]
    live: Callable[[], Container[NodeId]]
    """Returns the nodes that are registered now."""
    make_anew: Callable[[Partition], None]
    """Lets a partition with an empty log take the place of one that follows."""
    is_waited_for: Callable[[TopicPartition], bool] = lambda _: False
    """Tells whether consumers wait for records of a partition."""


class Replicas:
    """The followers here, and the leaders with followers elsewhere."""

    def __init__(
        self,
        me: Registered,
        log_manager: LogManager,
        find: Callable[[TopicPartition], Partition],
        ports: ReplicaPorts,
        *,
        fetching: FetcherSettings,
        lag_max_ms: int,
        standing: Standing | None = None,
        relief: Relief | None = None,
    ) -> None:
        """``find``: a partition that is led here; it raises KafkaError.

        ``relief``: None: what a full disk takes no records for is led on here.
        """
        self._me = me
        self._ports = ports
        self._fetching = fetching
        self._cutting = Cutting(LogCuts(log_manager, ports.clock), ports.executor, ports.clock)
        self.changes = IsrChanges(ports.awake_clock, ports.propose, lambda: lag_max_ms)
        self.changes.failed = self._hand_over
        self._relief = relief
        self._standing = standing
        if standing is not None:
            self.changes.fetched = standing.fetched
        self.hand_overs = ports.hand_overs
        """Use: what lets others lead."""
        self.sessions = FollowerSessions(ports.clock, self.changes, find, ports.random_below)
        """Use: what answers followers."""
        self.low_watermarks = LowWatermarks(self.sessions, ports.live, ports.clock)
        """Use: what waits for followers to delete."""
        self._fetchers: dict[NodeId, Fetcher] = {}
        self._following: dict[TopicPartition, tuple[Following, NodeId]] = {}
        """Those that follow, and whom."""
        self._stopping: set[asyncio.Task[None]] = set()
        self._is_leaving = False
        """Use: nothing more is followed than is already."""
        self._is_stopped = False

    def role_taken(self, partition: Partition) -> None:
        """Take note that a partition leads or follows, anew or in a newer state; on the loop."""
        if self._is_stopped:
            return
        self.low_watermarks.look_at(partition.topic_partition)
        if partition.is_failed and partition.state.leader == self._me.node_id:
            self._hand_over(partition)
        if partition.is_leader:
            self._follow_no_more(partition)
            self.changes.watch(partition)
            if partition.view is None:  # The others were taken away.
                _let_go(partition)
                return
            partition.grown = self.sessions.grown
            partition.synced = self.sessions.synced
            if self._standing is not None:
                partition.may_take = self._standing.may_take
                partition.confirm = self._standing.confirm
            self.sessions.led(partition)
            self.hand_overs.look_at(partition)
            return
        _let_go(partition)
        self.changes.watch(partition)  # No more.
        leader = partition.state.leader
        if leader in (NO_LEADER, self._me.node_id):  # Its own, but for a former process.
            self._follow_no_more(partition)
            return
        self._follow(partition, leader)

    def gone(self, partition: Partition) -> None:
        """Take note that a partition is hosted here no more."""
        _let_go(partition)
        self._follow_no_more(partition)
        self.changes.watch(partition)
        self.low_watermarks.look_at(partition.topic_partition)

    def _hand_over(self, partition: Partition) -> None:
        """Let another replica lead, if one can: the log is out of service here.

        It is tried again until one leads: the next one may be away now, or the store.
        """
        self._ports.hand_over(
            partition.topic_partition,
            partition.topic_id,
            partition.state,
            partition.min_insync_replicas,
            leader_syncs=partition.log.config.flush_messages == 1,
        )

    def _follow(self, partition: Partition, leader: NodeId) -> None:
        where = partition.topic_partition
        known = self._following.get(where)
        if known is None and self._is_leaving:
            return
        if known is not None and (known[0].partition is not partition or known[1] != leader):
            self._follow_no_more(known[0].partition)
            known = None
        if known is None:
            following = Following(
                partition, self._cutting, lambda: self._me.broker_epoch, self._ports.make_anew
            )
            self._following[where] = following, leader
        else:
            following = known[0]
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = Fetcher(
                leader,
                self._me,
                self._ports.leaders,
                self._fetching,
                self._ports.clock,
                is_waited_for=self._ports.is_waited_for,
            )
        fetcher.add(following)

    def _follow_no_more(self, partition: Partition) -> None:
        known = self._following.get(partition.topic_partition)
        if known is None or known[0].partition is not partition:
            return
        following, leader = self._following.pop(partition.topic_partition)
        fetcher = self._fetchers[leader]
        fetcher.remove(following)
        if not len(fetcher):
            del self._fetchers[leader]
            name = f"follow node {leader} no more"
            self._stopping.add(begin_task(fetcher.stop(), name=name, ended=self._stopping.discard))

    def nearest(
        self, rack: str, racks: Mapping[NodeId, str | None], partition: Partition, offset: int
    ) -> NodeId | None:
        """Return an in-sync follower in ``rack`` that has ``offset``; None: the leader is as good.

        ``racks``: of the nodes that are registered. The one that has most; the first of equals.
        """
        view, me = partition.view, self._me.node_id
        if view is None or racks.get(me) == rack:
            return None
        best, best_end = None, offset
        for node in view.state.isr:
            remote = view.remote(node)
            if node == me or racks.get(node) != rack or remote is None:
                continue
            start = self.sessions.start_offset_of(node, partition)
            is_better = remote.end_offset > best_end or (
                best is None and remote.end_offset == offset
            )
            if start is not None and start <= offset and is_better:
                best, best_end = node, remote.end_offset
        return best

    async def leave(self, partitions: Iterable[Partition]) -> int:
        """Let others lead what they can of these partitions, and follow them no more.

        Returns how many others lead now. This node stops: in an ISR it would be waited for.
        """
        self._is_leaving = True
        return await self.hand_overs.leave(partitions)

    def answer_waiting(self) -> None:
        """Let go all followers that wait for news; for a stop."""
        self.sessions.stop()

    async def stop(self) -> None:
        """Follow no more, and propose nothing more; logs may be closed then."""
        self._is_stopped = True
        if self._standing is not None:
            self._standing.stop()
        if self._relief is not None:
            self._relief.stop()
        self.changes.stop()
        self.hand_overs.stop()
        self.sessions.stop()
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        self._following.clear()
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers), *self._stopping)


def _let_go(partition: Partition) -> None:
    """Let a partition ask nobody who follows it."""
    partition.grown = partition.synced = partition.may_take = partition.confirm = None
