"""Carries a leader's proposals to the metadata store, by compare-and-set.

Each proposal is guarded by the partition's key as the leader knows it, by this node's registration,
and by the registration of who joins the ISR. Those of one turn of the loop are committed together:
a node that comes back, or goes, is in as many ISRs as there are partitions. When a guard fails, the
others are committed without those that it guards. Stands below ``isr_changes``, which decides.
Source: KIP-497, KIP-903; rules 4 and 7 of several nodes.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import NamedTuple

from ottla.env.tasks import begin_task
from ottla.ids import TopicId, TopicPartition
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.store import Guard, GuardFailed, MetadataError, MetadataStore
from ottla.metadata.values import (
    PartitionState,
    UnreadableValue,
    decode_partition,
)
from ottla.pending import Pending
from ottla.replication.elections import fence
from ottla.replication.fetcher import Registered
from ottla.replication.isr_changes import Outcome
from ottla.replication.judged import commit_of
from ottla.replication.replica_state import Proposal

logger = logging.getLogger(__name__)

AT_ONCE = 40
"""Proposals in one commit: each has a guard, and so may who joins; etcd takes 128 guards."""


class _Asked(NamedTuple):
    key: Guard
    nodes: tuple[Guard, ...]
    """The registrations that it depends on, as they were when it was asked for."""
    state: PartitionState
    outcome: Pending[Outcome]


class StoreProposals:
    """The port ``ProposeState`` on a store."""

    def __init__(
        self, store: MetadataStore, keys: Keys, follower: ImageFollower, me: Registered
    ) -> None:
        self._store = store
        self._keys = keys
        self._follower = follower
        self._me = me
        self._asked: list[_Asked] = []
        """Use: those of this turn. Invariant: a task takes them unless there are none."""
        self._given_away: set[str] = set()
        """Use: keys of partitions that another node is to lead, while the store is asked."""

    def __call__(
        self, where: TopicPartition, topic_id: TopicId, before: PartitionState, proposal: Proposal
    ) -> Pending[Outcome]:
        """See ``ProposeState``."""
        outcome: Pending[Outcome] = Pending()
        key = self._keys.partition(topic_id, where.partition)
        entry = self._follower.mirror.get(key)
        try:
            is_known = entry is not None and decode_partition(entry.value) == before
        except UnreadableValue:
            is_known = False
        if entry is None or not is_known:
            outcome.resolve(Outcome.KEY_CHANGED)
            return outcome
        me = self._keys.live_broker(self._me.node_id)
        nodes = [Guard(me, create_rev=self._me.broker_epoch)]
        if proposal.joining is not None:
            live = self._keys.live_broker(proposal.joining)
            nodes.append(Guard(live, create_rev=proposal.broker_epoch))
        guard = Guard(key, mod_rev=entry.mod_rev)
        self._ask(_Asked(guard, tuple(nodes), proposal.state, outcome))
        return outcome

    def hand_over(
        self,
        where: TopicPartition,
        topic_id: TopicId,
        before: PartitionState,
        minimum: int,
        *,
        leader_syncs: bool = True,
    ) -> None:
        """Let another replica lead what this node cannot serve; nothing happens if none can.

        ``minimum``: ``min.insync.replicas``. ``leader_syncs``: see ``fence``. Does not wait: the
        image tells what came of it. Does nothing while it is being done.
        """
        key = self._keys.partition(topic_id, where.partition)
        if key in self._given_away:
            return
        entry, me = self._follower.mirror.get(key), self._me.node_id
        brokers = self._follower.image.brokers
        live = [node for node in brokers if node != me]
        after = fence(before, me, live, minimum, leader_syncs=leader_syncs)
        if entry is None or after.leader not in brokers:
            return
        leader = Guard(self._keys.live_broker(after.leader), create_rev=brokers[after.leader].epoch)
        if decode_partition(entry.value) == before:
            logger.warning("%s cannot be served here: node %d is to lead it", where, after.leader)
            asked = _Asked(Guard(key, mod_rev=entry.mod_rev), (leader,), after, Pending())
            self._given_away.add(key)
            asked.outcome.on_done(lambda _: self._given_away.discard(key))
            self._ask(asked)

    def _ask(self, asked: _Asked) -> None:
        if not self._asked:
            begin_task(self._commit_asked(), name="propose", ended=_begun)
        self._asked.append(asked)

    async def _commit_asked(self) -> None:
        await asyncio.sleep(0)  # What is proposed in this turn is committed together.
        asked, self._asked = self._asked, []
        for first in range(0, len(asked), AT_ONCE):
            some = asked[first : first + AT_ONCE]
            begin_task(self._commit(some), name="propose", ended=partial(_ended, some))

    async def _commit(self, asked: list[_Asked]) -> None:
        """Commit them together; those whose guards fail are refused, and the others tried again."""
        left = asked
        while left:
            try:
                await self._store.commit(*commit_of(left))
            except GuardFailed as error:
                left = _without_refused(left, error.guard)
            except MetadataError:
                _resolve(left, Outcome.UNKNOWN)
                return
            else:
                _resolve(left, Outcome.COMMITTED)
                return


def _without_refused(asked: list[_Asked], failed: Guard) -> list[_Asked]:
    """Answer those that ``failed`` guards; return the others."""
    changed = [each for each in asked if each.key == failed]
    gone = [each for each in asked if failed in each.nodes]
    assert changed or gone, failed
    left = [each for each in asked if each not in changed and each not in gone]
    _resolve(changed, Outcome.KEY_CHANGED)
    _resolve(gone, Outcome.REGISTRATION_GONE)
    return left


def _resolve(asked: list[_Asked], outcome: Outcome) -> None:
    for each in asked:
        each.outcome.resolve(outcome)


def _begun(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("proposals could not be committed", exc_info=error)


def _ended(asked: list[_Asked], task: asyncio.Task[None]) -> None:
    """Nobody waits for ever, whatever has ended the task."""
    _begun(task)
    _resolve([each for each in asked if not each.outcome.is_done], Outcome.UNKNOWN)
