"""Takes in a topic's directories: alone, or beside other nodes, which do the same at their starts.

Each node adds the partitions that it has, in whatever order they come; nobody's own are touched.
What none has added has no replicas yet, for its node may be to come; a node that is alone makes it,
empty. Of copies that several have one is served; its leader epoch is above those of all, so that no
two histories share one. Source: design D5; ADR 5.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.cluster.topics import new_topic_id
from ottla.env.rng import Rng
from ottla.ids import LeaderEpoch, NodeId, TopicId
from ottla.log.log import Log
from ottla.metadata.keys import Keys
from ottla.metadata.store import ABSENT, Entry, Guard, GuardFailed, MetadataStore, Op, Put
from ottla.metadata.values import (
    PartitionState,
    TopicValue,
    decode_partition,
    decode_topic,
    encode_name,
    encode_partition,
    encode_topic,
)

logger = logging.getLogger(__name__)

AT_ONCE = 50
"""Partitions in one commit: each has a guard."""


class TakingIn(NamedTuple):
    """One node, and the store."""

    store: MetadataStore
    keys: Keys
    node_id: NodeId
    rng: Rng
    is_alone: bool
    """No other node has this store."""

    async def topic(self, name: str, partitions: Mapping[int, Log]) -> int:
        """Add to a topic what nobody has added; return the revision after that, 0: nothing was.

        Raises what the store raises.
        """
        carried = [found.topic_id for found in partitions.values() if found.topic_id is not None]
        own_id = carried[0] if carried else None
        new_id = own_id or new_topic_id(self.rng)
        key, count = self.keys.topic(name), max(partitions) + 1
        logger.warning("adopting the topic %s: %d directories found", name, len(partitions))
        while True:
            entry = await self.store.get(key)
            known = TopicValue(new_id, 0) if entry is None else decode_topic(entry.value)
            if own_id not in (None, known.topic_id):
                logger.error("%s: other nodes have another topic of this name; these stay", name)
                return 0
            guard = Guard(key, mod_rev=ABSENT if entry is None else entry.mod_rev)
            try:
                revision = await self._add(guard, known.topic_id, name, partitions)
                if known.partition_count >= count:
                    return revision
                topic = encode_topic(known._replace(partition_count=count))
                by_id = Put(self.keys.topic_id(known.topic_id), encode_name(name))
                return await self.store.commit([guard], [Put(key, topic), by_id])
            except GuardFailed:
                logger.info("%s: another node has added to it just now", name)

    async def _add(
        self, guard: Guard, topic_id: TopicId, name: str, partitions: Mapping[int, Log]
    ) -> int:
        """Write the states that are to be written, each guarded; return the revision, or 0."""
        entries, _ = await self.store.scan(self.keys.topic_partitions(topic_id))
        present = {entry.key: entry for entry in entries}
        indexes: Sequence[int] = sorted(partitions)
        if self.is_alone:
            indexes = range(max(partitions) + 1)
        revision = 0
        for begin in range(0, len(indexes), AT_ONCE):
            guards, ops = [guard], list[Op]()
            for index in indexes[begin : begin + AT_ONCE]:
                key = self.keys.partition(topic_id, index)
                entry = present.get(key)
                state = self._state(f"{name}-{index}", partitions.get(index), entry)
                if state is not None:
                    guards.append(Guard(key, mod_rev=ABSENT if entry is None else entry.mod_rev))
                    ops.append(Put(key, encode_partition(state)))
            if ops:
                revision = await self.store.commit(guards, ops)
        return revision

    def _state(self, name: str, found: Log | None, entry: Entry | None) -> PartitionState | None:
        """Return what a partition should be; None: it is right as it is."""
        me, epoch = self.node_id, LeaderEpoch(0 if found is None else found.latest_epoch + 1)
        if entry is None:
            return PartitionState((me,), (me,), me, epoch, 0)
        state = decode_partition(entry.value)
        if found is None or me in state.replicas:
            return None  # By a start that was cut short.
        logger.error(
            "%s: a copy on node %d is served; %s stays as it is",
            name,
            state.leader,
            found.directory,
        )
        if state.leader_epoch >= epoch:
            return None
        return state._replace(leader_epoch=epoch, partition_epoch=state.partition_epoch + 1)
