"""Lets other replicas lead what this node leads, without a gap: when it stops, or they should.

Carries out changes of a partition's state that its leader makes by itself and that take effect in a
new leader epoch: a hand-over before a stop, or for want of space, to the preferred replica, and the
end of a reassignment. What the next state is, ``elections`` says. Here appends wait while the
followers take what is there, so that nobody who waits for a commit has to send again; then the
state is committed by compare-and-set, guarded by the partition's key, this node's registration and
the next leader's. Whatever becomes of that, the high watermark counts the whole present ISR until
the image tells, and the next ISR is always a part of it. Source: cluster design 3.3, 3.5 and 3.8;
KIP-455.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.env.clock import Clock, Timer, pause
from ottla.env.tasks import begin_task
from ottla.ids import NodeId
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.store import Ambiguous, Guard, GuardFailed, MetadataError, MetadataStore
from ottla.metadata.values import (
    BrokerState,
    PartitionState,
    UnreadableValue,
    decode_partition,
)
from ottla.replication.elections import (
    elect_preferred,
    fence,
    finish_reassignment,
    without_former,
)
from ottla.replication.fetcher import Registered
from ottla.replication.judged import commit_of
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

AT_ONCE = 40
"""Partitions in one commit: each has a guard, and so may its next leader; etcd takes 128 guards."""
CATCH_UP_SECONDS = 0.2
"""How long appends wait at most for the followers."""
YIELD_SECONDS = 1.0
"""How long they wait at most in all, also for the store. It may be away: then they go on here, and
those that are not committed when another replica leads are sent again."""
LOOK_SECONDS = 0.005
DOUBT_SECONDS = 10.0
"""Until it is looked what came of a commit without an answer: it does not come later than that."""
AGAIN_SECONDS = 1.0
"""Between looks at reassignments that cannot end: replicas are missing, or the store is away."""

Plan = Callable[[Partition], PartitionState | None]
"""Returns the next state of a partition that is led here; None: it stays as it is."""


class _Change(NamedTuple):
    key: Guard
    nodes: tuple[Guard, ...]
    """This node's registration and the next leader's, as they were."""
    state: PartitionState
    partition: Partition


class HandOvers:
    """What this node leads, it gives away here."""

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        follower: ImageFollower,
        me: Registered,
        clock: Clock,
    ) -> None:
        self._store = store
        self._keys = keys
        self._follower = follower
        self._me = me
        self._clock = clock
        self._finishing: dict[Partition, None] = {}
        """Partitions with a reassignment that may be at its end; looked at again and again."""
        self._is_due = False
        """Use: one of them has changed since the last look."""
        self._task: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._is_stopped = False
        self._seen: dict[NodeId, int] = {}
        """Use: the registrations at the last look for preferred leaders."""

    def running(self) -> dict[NodeId, int]:
        """Return the nodes that may lead more, and their registrations: those that do not stop."""
        return {
            node: broker.epoch
            for node, broker in self._follower.image.brokers.items()
            if broker.registration.state is BrokerState.RUNNING
        }

    def _with_space(self) -> dict[NodeId, int]:
        """Return those of ``running`` that have not told that a log directory of theirs is full."""
        brokers = self._follower.image.brokers
        return {
            node: epoch
            for node, epoch in self.running().items()
            if not brokers[node].registration.is_full
        }

    def _others_with_space(self, partition: Partition) -> dict[NodeId, int]:
        """Return the other nodes of the ISR ``_with_space``."""
        isr, me = partition.state.isr, self._me.node_id
        return {
            node: epoch for node, epoch in self._with_space().items() if node in isr and node != me
        }

    def stop(self) -> None:
        """Begin nothing more."""
        self._is_stopped = True
        self._finishing.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    # Occasions.

    async def leave(self, partitions: Iterable[Partition]) -> int:
        """Let others lead all that they can; return how many partitions they lead now."""

        def plan(partition: Partition) -> PartitionState | None:
            live, me = self.running(), self._me.node_id
            live.pop(me, None)
            for some in (self._others_with_space(partition), live):
                after = fence(partition.state, me, some, partition.min_insync_replicas)
                if after.leader in some:
                    return after
            return None

        return await self.carry_out(partitions, plan)

    async def relieve(self, partitions: Iterable[Partition]) -> int:
        """Let in-sync replicas lead that lack nothing, on nodes with space; return how many do.

        This node leaves the ISRs: it has no space for what the next leader takes, and all commits
        would wait for it until it counts as lagging.
        """

        def plan(partition: Partition) -> PartitionState | None:
            others = self._others_with_space(partition)
            have_all = {node: others[node] for node in others if _has_all(partition, node)}
            live, state = have_all or others, partition.state
            after = fence(state, self._me.node_id, live, partition.min_insync_replicas)
            return after if after.leader in live else None

        return await self.carry_out(partitions, plan, must_have_all=True)

    async def prefer(self, partitions: Iterable[Partition]) -> int:
        """Let the first replicas lead that were there at the last look, too, and lack nothing."""
        running = self._with_space()
        steady = {node for node, epoch in running.items() if self._seen.get(node) == epoch}
        self._seen = running

        def plan(partition: Partition) -> PartitionState | None:
            after = elect_preferred(partition.state, steady)
            return None if after is partition.state else after

        return await self.carry_out(partitions, plan, must_have_all=True)

    def look_at(self, partition: Partition) -> None:
        """End the reassignment of a partition that is led here, now or when it can be."""
        state = partition.state
        if not self._is_stopped and (state.adding or state.removing):
            self._finishing[partition] = None
            self._is_due = True
            self._begin()

    def _begin(self) -> None:
        if self._task is None and self._finishing and not self._is_stopped:
            self._is_due = False
            self._task = begin_task(self._finish(), name="reassign", ended=self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("a reassignment could not be ended", exc_info=error)
        if self._is_due:
            self._begin()
        elif self._finishing and self._timer is None and not self._is_stopped:
            self._timer = self._clock.call_later(AGAIN_SECONDS, self._again)

    def _again(self) -> None:
        self._timer = None
        self._begin()

    async def _finish(self) -> None:
        await asyncio.sleep(0)  # What changes in this turn is looked at together.

        def plan(partition: Partition) -> PartitionState | None:
            state, minimum = partition.state, partition.min_insync_replicas
            after = finish_reassignment(state, self._with_space(), minimum)
            if after is state:
                after = finish_reassignment(state, self.running(), minimum)
            return None if after is state else after

        await self.carry_out(list(self._finishing), plan)
        for partition in list(self._finishing):
            state = partition.state
            if not partition.is_leader or not (state.adding or state.removing):
                del self._finishing[partition]

    # Doing it.

    async def carry_out(
        self, partitions: Iterable[Partition], plan: Plan, *, must_have_all: bool = False
    ) -> int:
        """Change each partition as ``plan`` says; return how many were changed.

        ``must_have_all``: not those whose next leader lacks records when the time is over.
        """
        count = 0
        batch: list[Partition] = []
        for partition in partitions:
            batch.append(partition)
            if len(batch) == AT_ONCE:
                count += await self._carry_out(batch, plan, must_have_all)
                batch = []
                await asyncio.sleep(0)  # Perhaps none had to wait.
        if batch:
            count += await self._carry_out(batch, plan, must_have_all)
        return count

    async def _carry_out(self, partitions: list[Partition], plan: Plan, must_have_all: bool) -> int:
        moving: list[Partition] = []
        for partition in partitions:
            if not partition.is_leader or partition.view is None or partition.is_yielding:
                continue
            after = plan(partition)
            if after is not None and after.leader != self._me.node_id:
                partition.yield_appends()
                moving.append(partition)

        def go_on() -> None:
            while moving:
                moving.pop().go_on_appending()

        timer = self._clock.call_later(YIELD_SECONDS, go_on)
        try:
            await self._catch_up(list(moving))
            changes = [
                change
                for partition in partitions
                if (change := self._change(partition, plan, must_have_all)) is not None
            ]
            for each in changes:
                each.partition.is_given_away = each.state.leader != self._me.node_id
            return await self._write(changes) if changes else 0
        finally:
            timer.cancel()
            go_on()

    async def _catch_up(self, partitions: list[Partition]) -> None:
        """Wait until all is committed there, and synced here, but not for long."""
        waiting = partitions
        deadline = self._clock.monotonic() + CATCH_UP_SECONDS
        while True:
            waiting = [
                each
                for each in waiting
                if each.is_leader
                and min(each.high_watermark, each.log.flushed_offset) < each.log.log_end_offset
            ]
            for each in waiting:
                each.flush()
            if not waiting or self._clock.monotonic() >= deadline:
                return
            await pause(self._clock, LOOK_SECONDS)

    def _change(self, partition: Partition, plan: Plan, must_have_all: bool) -> _Change | None:
        view = partition.view
        if not partition.is_leader or view is None:
            return None
        after = plan(partition)
        if after is None:
            return None
        if must_have_all and not _has_all(partition, after.leader):
            return None
        if partition.log.flushed_offset < partition.high_watermark:  # flush.messages
            after = without_former(self._me.node_id, after)
        where = partition.topic_partition
        key = self._keys.partition(partition.topic_id, where.partition)
        entry = self._follower.mirror.get(key)
        try:
            is_known = entry is not None and decode_partition(entry.value) == partition.state
        except UnreadableValue:
            is_known = False
        if entry is None or not is_known:
            return None
        nodes = [Guard(self._keys.live_broker(self._me.node_id), create_rev=self._me.broker_epoch)]
        leader = self._follower.image.brokers.get(after.leader)
        if leader is not None and after.leader != self._me.node_id:
            nodes.append(Guard(self._keys.live_broker(after.leader), create_rev=leader.epoch))
        return _Change(Guard(key, mod_rev=entry.mod_rev), tuple(nodes), after, partition)

    async def _write(self, changes: list[_Change]) -> int:
        """Commit them together; if a guard fails, one by one. Return how many were changed."""
        try:
            await self._follower.reached(await self._store.commit(*commit_of(changes)))
        except GuardFailed:
            if len(changes) == 1:
                _keep(changes)
                return 0
            count = 0
            for change in changes:
                count += await self._write([change])
            return count
        except MetadataError as error:
            logger.warning("%d partitions could not be handed over yet: %s", len(changes), error)
            if isinstance(error, Ambiguous):
                self._clock.call_later(DOUBT_SECONDS, lambda: self._look_back(changes))
            else:
                _keep(changes)
            return 0
        _keep(changes)  # The image has told of them.
        return len(changes)

    def _look_back(self, changes: list[_Change]) -> None:
        """Find out what came of a commit whose answer was lost."""
        if not self._is_stopped:
            begin_task(self._looked_back(changes), name="look back", ended=_looked)

    async def _looked_back(self, changes: list[_Change]) -> None:
        try:
            await self._follower.catch_up()
        except MetadataError:
            self._clock.call_later(DOUBT_SECONDS, lambda: self._look_back(changes))
        else:
            _keep(changes)


def _has_all(partition: Partition, node: NodeId) -> bool:
    """Tell whether a follower has said that it has all that this node has."""
    remote = None if partition.view is None else partition.view.remote(node)
    return remote is not None and remote.end_offset >= partition.log.log_end_offset


def _keep(changes: Iterable[_Change]) -> None:
    """Take partitions for this node's that it asked others to lead: the image tells who does."""
    for change in changes:
        change.partition.is_given_away = False


def _looked(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("what came of a hand-over is not known", exc_info=error)
