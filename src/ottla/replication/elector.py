"""The controller's part in replicas: fences nodes that are gone, elects, and grants anew.

Runs on every node, and acts on the one that has the controller's seat. Looks at the image, decides
by ``elections``, and commits by compare-and-set: each write is guarded by the partition's key, by
the seat, and by the registration of whom it makes leader. What it does follows from the image
alone, so a new controller goes on where the last one was. Partitions of one replica are left alone.

    a node is gone                      fence: out of the ISR; another one leads
    no leader, and one may lead         elect
    no leader, and no replica ever had  elect one, which begins with an empty log
    a log
    no leader, and no candidate         elect one of the others, where unclean elections are allowed
    the leader's process is newer than  grant anew, in a new leader epoch: the process that was
    the last change of the partition    granted the old one is gone

A node that this process has never seen is not called gone before one TTL has passed: at a cold
start others may take longer than this one. Source: KIP-966; cluster design 3.3 and 3.5.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ottla.env.clock import Clock, Timer, pause
from ottla.env.tasks import begin_task
from ottla.ids import NodeId, TopicId
from ottla.metadata.image import ImageFollower, MetadataDelta, MetadataImage
from ottla.metadata.keys import ConfigType, Keys
from ottla.metadata.store import Guard, GuardFailed, MetadataError, MetadataStore
from ottla.metadata.values import NO_LEADER, PartitionState
from ottla.replication.elections import elect, elect_unclean, elect_unmade, fence, grant_anew
from ottla.replication.judged import commit_of, leaders_registration

logger = logging.getLogger(__name__)

WRITTEN_AT_ONCE = 40
"""Partitions in one commit: each has a guard, and so may its leader; etcd takes 128 guards."""
LOOKED_AT_PER_TURN = 500
"""Partitions looked at before the loop gets its turn."""
PAUSE_SECONDS = 0.05
"""After a commit that failed: the image may be behind, or the store away."""


class ElectionRules(NamedTuple):
    """What a topic's configuration says of elections."""

    min_insync_replicas: int
    may_be_unclean: bool
    """``unclean.leader.election.enable``."""
    leader_syncs: bool = True
    """Whether ``flush.messages`` has leaders sync what they acknowledge."""


class _Change(NamedTuple):
    key: Guard
    nodes: tuple[Guard, ...]
    """The leader's registration that the change was judged by, or that it had none."""
    state: PartitionState
    topic_id: TopicId
    partition: int


def next_state(
    state: PartitionState,
    mod_rev: int,
    *,
    live: Mapping[NodeId, int],
    is_gone: Callable[[NodeId], bool],
    rules: ElectionRules,
) -> PartitionState:
    """Return what a partition should be; the same object when it is right as it is. Pure.

    ``mod_rev``: of its key. ``live``: the broker epoch of each registered node.
    """
    if len(state.replicas) < 2:
        return state
    after, minimum = state, rules.min_insync_replicas
    # The leader first: it is not known as the one that may not have synced, once another leads.
    gone = [node for node in (state.leader, *state.isr) if node != NO_LEADER and is_gone(node)]
    for node in dict.fromkeys(gone):
        after = fence(after, node, live, minimum, leader_syncs=rules.leader_syncs)
    if after.leader == NO_LEADER:
        after = elect_unmade(elect(after, live, minimum), live)
    is_lost = all(is_gone(node) for node in (*after.isr, *after.elr))
    if after.leader == NO_LEADER and rules.may_be_unclean and is_lost:
        after = elect_unclean(after, live)
    leads_on = after.leader == state.leader != NO_LEADER
    if leads_on and after.leader in live and live[after.leader] > mod_rev:
        after = grant_anew(after)
    if after is state:
        return state
    return after._replace(partition_epoch=state.partition_epoch + 1)


class Elector:
    """Keeps all partitions of several replicas led, while this node is the controller."""

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        follower: ImageFollower,
        *,
        node_id: NodeId,
        rules: Callable[[str], ElectionRules],
        clock: Clock,
        ttl_seconds: float,
    ) -> None:
        """``rules``: a topic's. ``ttl_seconds``: how long a session lasts without its holder."""
        self._store = store
        self._keys = keys
        self._follower = follower
        self._node_id = node_id
        self._rules = rules
        self._clock = clock
        self._ttl_seconds = ttl_seconds
        self._seen: set[NodeId] = set()
        """Nodes that were registered at some time in this node's present registration."""
        self._knows_all = False
        """Whether the TTL has passed: who is not registered is gone."""
        self._timer: Timer | None = None
        self._marked: dict[tuple[TopicId, int], None] = {}
        """Partitions to be looked at."""
        self._is_all_marked = False
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._registered(follower.image)

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Note what is to be looked at; a listener of the image."""
        if self._node_id in delta.brokers:
            self._registered(image)
        self._seen.update(node for node in delta.brokers if node in image.brokers)
        if image.controller != self._node_id:
            return
        if delta.brokers or delta.controller_changed:
            self._is_all_marked = True
        else:
            for _, topic_id, number, _, new in delta.partitions:
                if new is not None and len(new.replicas) > 1:
                    self._marked[topic_id, number] = None
            self._configured(image, delta)
        self._begin()

    def _configured(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Look again at partitions that nobody leads: others may be allowed to lead by now."""
        for kind, name in delta.configs:
            if kind is ConfigType.BROKER:
                self._is_all_marked = True
            topic = image.topic(name) if kind is ConfigType.TOPIC else None
            if topic is not None:
                for number, state in enumerate(topic.partitions):
                    if state.leader == NO_LEADER:
                        self._marked[topic.topic_id, number] = None

    def stop(self) -> None:
        """Do nothing more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _registered(self, image: MetadataImage) -> None:
        self._seen = set(image.brokers)
        self._knows_all = False
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(self._ttl_seconds, self._know_all)

    def _know_all(self) -> None:
        self._timer = None
        self._knows_all = True
        self._is_all_marked = True
        self._begin()

    def _begin(self) -> None:
        is_due = self._is_all_marked or self._marked
        if is_due and self._task is None and not self._is_stopped:
            self._task = begin_task(self._work(), name="elect leaders", ended=self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("leaders could not be elected", exc_info=error)
        self._begin()

    def _is_gone(self, node: NodeId) -> bool:
        if node in self._follower.image.brokers:
            return False
        return node in self._seen or self._knows_all

    # The work.

    async def _work(self) -> None:
        await asyncio.sleep(0)  # What changes in this turn is looked at together.
        while (self._is_all_marked or self._marked) and not self._is_stopped:
            if self._follower.image.controller != self._node_id:
                self._marked.clear()
                self._is_all_marked = False
                return
            changes: list[_Change] = []
            for count, change in enumerate(self._looked_at(), 1):
                if change is not None:
                    changes.append(change)
                if len(changes) == WRITTEN_AT_ONCE:
                    await self._write(changes)
                    changes = []
                if not count % LOOKED_AT_PER_TURN:
                    await asyncio.sleep(0)
            if changes:
                await self._write(changes)

    def _looked_at(self) -> Iterator[_Change | None]:
        """Look at each partition that is marked; yield how it has to change, or None."""
        image = self._follower.image
        if self._is_all_marked:
            self._is_all_marked = False
            self._marked.clear()
            for topic in list(image.topics.values()):
                for number in range(len(topic.partitions)):
                    yield self._change_of(topic.topic_id, number)
            return
        marked, self._marked = self._marked, {}
        for topic_id, number in marked:
            yield self._change_of(topic_id, number)

    def _change_of(self, topic_id: TopicId, number: int) -> _Change | None:
        image = self._follower.image
        topic = image.topic_by_id(topic_id)
        if topic is None or number >= len(topic.partitions):
            return None
        state = topic.partitions[number]
        if len(state.replicas) < 2:
            return None
        key = self._keys.partition(topic_id, number)
        entry = self._follower.mirror.get(key)
        if entry is None:
            return None
        live = {node: broker.epoch for node, broker in image.brokers.items()}
        after = next_state(
            state,
            entry.mod_rev,
            live=live,
            is_gone=self._is_gone,
            rules=self._rules(topic.name),
        )
        if after is state:
            return None
        nodes = leaders_registration(self._keys, after, live.get(after.leader))
        return _Change(Guard(key, mod_rev=entry.mod_rev), nodes, after, topic_id, number)

    async def _write(self, changes: list[_Change]) -> None:
        """Commit them together; if a guard fails, one by one. What failed is looked at again."""
        failed = await self._without_committed(changes)
        if failed:
            await self._again(failed)

    async def _without_committed(self, changes: list[_Change]) -> list[_Change]:
        """Commit them; return those that could not be committed."""
        try:
            await self._commit(changes)
        except GuardFailed:
            if len(changes) == 1:
                return changes
            failed: list[_Change] = []
            for change in changes:
                failed += await self._without_committed([change])
            return failed
        except MetadataError as error:
            logger.warning("leaders could not be elected yet: %s", error)
            return changes
        return []

    async def _again(self, changes: list[_Change]) -> None:
        """Look at them again after a pause: one for all, for others have to be led meanwhile."""
        await pause(self._clock, PAUSE_SECONDS)
        self._marked.update(((change.topic_id, change.partition), None) for change in changes)

    async def _commit(self, changes: list[_Change]) -> None:
        seat = self._follower.mirror.get(self._keys.controller)
        if seat is None:
            return  # Whoever takes it looks at everything.
        guards, puts = commit_of(changes, Guard(self._keys.controller, mod_rev=seat.mod_rev))
        await self._follower.reached(await self._store.commit(guards, puts))
