"""Carries a leader's proposals to the metadata store, by compare-and-set.

Each commit is guarded by the partition's key as the leader knows it, by this node's registration,
and by the registration of who joins the ISR. Stands below ``isr_changes``, which decides.
Source: KIP-497, KIP-903; rules 4 and 7 of several nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any

from ottla.ids import NodeId, TopicId, TopicPartition
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.store import Guard, GuardFailed, MetadataError, MetadataStore, Put
from ottla.metadata.values import (
    PartitionState,
    UnreadableValue,
    decode_partition,
    encode_partition,
)
from ottla.pending import Pending, pending_of
from ottla.replication.elections import fence
from ottla.replication.fetcher import Registered
from ottla.replication.isr_changes import Outcome
from ottla.replication.replica_state import Proposal

logger = logging.getLogger(__name__)


class StoreProposals:
    """The port ``ProposeState`` on a store."""

    def __init__(
        self, store: MetadataStore, keys: Keys, follower: ImageFollower, me: Registered
    ) -> None:
        self._store = store
        self._keys = keys
        self._follower = follower
        self._me = me

    def __call__(
        self, where: TopicPartition, topic_id: TopicId, before: PartitionState, proposal: Proposal
    ) -> Pending[Outcome]:
        """See ``ProposeState``."""
        key = self._keys.partition(topic_id, where.partition)
        entry = self._follower.mirror.get(key)
        try:
            is_known = entry is not None and decode_partition(entry.value) == before
        except UnreadableValue:
            is_known = False
        if entry is None or not is_known:
            outcome: Pending[Outcome] = Pending()
            outcome.resolve(Outcome.KEY_CHANGED)
            return outcome
        guards = [Guard(key, mod_rev=entry.mod_rev), self._registered(self._me.node_id)]
        if proposal.joining is not None:
            live = self._keys.live_broker(proposal.joining)
            guards.append(Guard(live, create_rev=proposal.broker_epoch))
        return pending_of(self._commit(key, guards, proposal.state))

    def hand_over(
        self, where: TopicPartition, topic_id: TopicId, before: PartitionState, minimum: int
    ) -> None:
        """Let another replica lead what this node cannot serve; nothing happens if none can.

        ``minimum``: ``min.insync.replicas``. Does not wait: the image tells what came of it.
        """
        key = self._keys.partition(topic_id, where.partition)
        entry, me = self._follower.mirror.get(key), self._me.node_id
        brokers = self._follower.image.brokers
        after = fence(before, me, [node for node in brokers if node != me], minimum)
        if entry is None or after.leader not in brokers:
            return
        leader = Guard(self._keys.live_broker(after.leader), create_rev=brokers[after.leader].epoch)
        guards = [Guard(key, mod_rev=entry.mod_rev), leader]
        if decode_partition(entry.value) == before:
            logger.warning("%s cannot be served here: node %d is to lead it", where, after.leader)
            pending_of(self._commit(key, guards, after))

    def _registered(self, node: NodeId) -> Guard:
        return Guard(self._keys.live_broker(node), create_rev=self._me.broker_epoch)

    def _commit(
        self, key: str, guards: list[Guard], state: PartitionState
    ) -> Coroutine[Any, Any, Outcome]:
        async def commit() -> Outcome:
            try:
                await self._store.commit(guards, [Put(key, encode_partition(state))])
            except GuardFailed as error:
                # The key's guard comes first: if that one holds, a registration is gone.
                if error.guard.key == key:
                    return Outcome.KEY_CHANGED
                return Outcome.REGISTRATION_GONE
            except MetadataError:
                return Outcome.UNKNOWN
            return Outcome.COMMITTED

        return commit()
