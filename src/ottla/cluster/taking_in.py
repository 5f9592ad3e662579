"""Takes in directories of topics that the metadata does not know: of one node, or of several.

Who does so has what each node found: a node that is alone, or the one process that heard from all
nodes of a host. What none has has no replicas yet; a node that is alone makes it, empty. ``copies``
decides what is served. A state that may have been served is never replaced: other copies stay where
they are, and its leader epoch is above theirs. Source: design D5; ADR 5.

Configs are not beside the data. An internal topic gets those that it is made with; all others are
kept whole until somebody says otherwise: retention would take what is to stay for ever, and what is
compacted. Both are in the commit that makes the topic visible.

While the metadata is ``unsettled`` no node serves. It is new or older than the data, and the
directories may have more than it knows; or it is right but for partitions of which all who are in
sync may lack records. A start that was cut short is done again then, from the same copies.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ottla.cluster.copies import (
    EPOCHS_LEFT_OUT,
    Copies,
    Copy,
    Held,
    OwnCopies,
    by_partition,
    choose_topic_id,
    decide,
    epoch_above,
)
from ottla.cluster.topics import new_topic_id
from ottla.cluster.unsettled import Unsettled, read_unsettled
from ottla.env.rng import Rng
from ottla.ids import LeaderEpoch, NodeId, TopicId
from ottla.metadata.keys import ConfigType, Keys
from ottla.metadata.store import (
    ABSENT,
    Delete,
    Entry,
    Guard,
    GuardFailed,
    MetadataStore,
    Op,
    Put,
)
from ottla.metadata.values import (
    PartitionState,
    TopicValue,
    decode_name,
    decode_partition,
    decode_topic,
    encode_config,
    encode_name,
    encode_number,
    encode_partition,
    encode_topic,
)

logger = logging.getLogger(__name__)

AT_ONCE = 50
"""Partitions in one commit: each has a guard."""
NAMED_MAX = 20
KEPT_WHOLE: Mapping[str, str] = MappingProxyType(
    {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
)
"""The configs of a topic of which nobody knows them: whatever the defaults are, no record goes."""

InternalConfigs = Callable[[str], Mapping[str, str] | None]
"""Returns the configs that an internal topic of this name is made with; None: it is no such."""

TakeIn = Callable[[Held], Awaitable[int]]
"""What takes in what a node found, beside what others found: returns the store's revision when all
is decided, 0: nothing was. Raises what the store raises."""


class TakingIn(NamedTuple):
    """The store, and who may serve what is found."""

    store: MetadataStore
    keys: Keys
    rng: Rng
    internal_configs: InternalConfigs
    alone: NodeId | None = None
    """The node that no other has this store beside; None: there are several."""

    def of(self, node: NodeId) -> TakeIn:
        """Return what takes in what this node has, and no other."""
        return lambda held: self.all({node: held.copies})

    async def all(self, found: Mapping[NodeId, OwnCopies], lacking: Collection[NodeId] = ()) -> int:
        """Add what nobody has added, and settle the store; return the revision, 0: nothing was.

        ``found``: what each node has. When the store is unsettled that is all that there is.
        ``lacking``: nodes that may lack what they count as in sync for. Raises what the store
        raises.
        """
        unsettled = await read_unsettled(self.store, self.keys)
        rules = _Rules(unsettled, frozenset(lacking), set())
        revision = 0
        kept_whole: list[str] = []
        for name, partitions in by_partition(found).items():
            added = await self._topic(name, partitions, kept_whole, rules)
            revision = max(revision, added)
        if kept_whole:
            _tell_of_kept(kept_whole)
        if unsettled is Unsettled.METADATA:
            await self._leave_epochs_out(rules.decided)
        if unsettled is not None:
            ops: list[Op] = [Delete(self.keys.unsettled)]
            if unsettled is Unsettled.METADATA:
                have_copies = [node for node, copies in found.items() if copies]
                ops += [Put(self.keys.behind(node), encode_number(1)) for node in have_copies]
            revision = await self.store.commit([], ops)
        return revision

    async def _topic(
        self,
        name: str,
        partitions: Mapping[int, Copies],
        kept_whole: list[str],
        rules: "_Rules",
    ) -> int:
        """Add to a topic what nobody has added; return the revision after that, 0: nothing was.

        ``kept_whole`` takes its name if nobody knows its configs.
        """
        chosen = choose_topic_id(partitions.values()) or new_topic_id(self.rng)
        while True:
            topic = await self._present(name, partitions, chosen, rules)
            topic_id, entry = topic.value.topic_id, topic.entry
            own = _of_topic(name, topic_id, partitions)
            if not own or await self._is_of_another(name, topic_id, own):
                return 0
            mark = self.keys.deleted_topic(topic_id)
            if await self.store.get(mark) is not None:
                return 0  # It was deleted since its directories were found: they will go.
            count = max(own) + 1
            if entry is None or rules.unsettled is not Unsettled.COPIES:
                logger.warning(
                    "adopting the topic %s: %d directories found", name, sum(map(len, own.values()))
                )
            guards = [
                Guard(self.keys.topic(name), mod_rev=ABSENT if entry is None else entry.mod_rev),
                Guard(mark, mod_rev=ABSENT),
            ]
            try:
                revision = await self._add(guards, topic_id, name, own, rules)
                if topic.value.partition_count >= count:
                    return revision
                revision = await self.store.commit(guards, await self._ops(name, topic, count))
            except GuardFailed:
                logger.info("%s: another node has added to it just now", name)
            else:
                if topic.is_new and self.internal_configs(name) is None:
                    kept_whole.append(name)
                return revision

    async def _present(
        self, name: str, partitions: Mapping[int, Copies], chosen: TopicId, rules: "_Rules"
    ) -> "_Present":
        """Return what topic of this name there is; ``chosen``: its id if the store has none."""
        entry = await self.store.get(self.keys.topic(name))
        if entry is None:
            return _Present(None, TopicValue(chosen, 0))
        known = decode_topic(entry.value)
        if rules.unsettled is Unsettled.METADATA:
            topic_id = await self._made_anew(known.topic_id, partitions)
            if topic_id != known.topic_id:
                logger.warning("%s: the topic was deleted and made anew since", name)
                return _Present(entry, TopicValue(topic_id, 0), former=known.topic_id)
        return _Present(entry, known)

    async def _ops(self, name: str, topic: "_Present", count: int) -> list[Op]:
        """Return what makes ``count`` partitions of a topic visible, and those of a former go."""
        topic_id = topic.value.topic_id
        ops: list[Op] = [
            Put(self.keys.topic(name), encode_topic(topic.value._replace(partition_count=count))),
            Put(self.keys.topic_id(topic_id), encode_name(name)),
        ]
        if topic.is_new:
            internal = self.internal_configs(name)
            configs = encode_config(KEPT_WHOLE if internal is None else internal)
            ops.append(Put(self.keys.config(ConfigType.TOPIC, name), configs))
        if topic.former is not None:
            entries, _ = await self.store.scan(self.keys.topic_partitions(topic.former))
            ops.append(Delete(self.keys.topic_id(topic.former)))
            ops += [Delete(entry.key) for entry in entries]
        return ops

    async def _made_anew(self, known: TopicId, partitions: Mapping[int, Copies]) -> TopicId:
        """Return which topic of a name is there, if the metadata may be older than the data.

        Of one that the metadata does not know it knows no deletion: it was made since. But a node
        that was away may have that of a time before: the topic with most copies is served.
        """
        ids = {copy.topic_id for copies in partitions.values() for copy in copies.values()}
        gone = {
            one
            for one in ids - {None, known}
            if one is not None and await self.store.get(self.keys.deleted_topic(one)) is not None
        }
        present = (
            {node: copy for node, copy in copies.items() if copy.topic_id not in gone}
            for copies in partitions.values()
        )
        return choose_topic_id(present) or known

    async def _is_of_another(
        self, name: str, topic_id: TopicId, partitions: Mapping[int, Copies]
    ) -> bool:
        """Tell, and say, whether a topic of another name has this id: directories were copied.

        A node that is alone serves both.
        """
        if self.alone is not None:
            return False
        entry = await self.store.get(self.keys.topic_id(topic_id))
        other = name if entry is None else decode_name(entry.value)
        if other == name:
            return False
        topic = await self.store.get(self.keys.topic(other))
        if topic is None or decode_topic(topic.value).topic_id != topic_id:
            return False
        for copies in partitions.values():
            for copy in copies.values():
                logger.error(
                    "%s is a copy of the topic %s; it stays as it is", copy.directory, other
                )
        return True

    async def _add(
        self,
        still: Sequence[Guard],
        topic_id: TopicId,
        name: str,
        partitions: Mapping[int, Copies],
        rules: "_Rules",
    ) -> int:
        """Write the states that are to be written, each guarded; return the revision, or 0.

        ``still``: what has to hold for all of them.
        """
        entries, _ = await self.store.scan(self.keys.topic_partitions(topic_id))
        present = {entry.key: entry for entry in entries}
        indexes: Sequence[int] = sorted(partitions)
        if self.alone is not None:
            indexes = range(max(partitions) + 1)
        revision = 0
        for begin in range(0, len(indexes), AT_ONCE):
            guards, ops = list(still), list[Op]()
            for index in indexes[begin : begin + AT_ONCE]:
                key = self.keys.partition(topic_id, index)
                entry = present.get(key)
                copies = partitions.get(index, {})
                if copies:
                    rules.decided.add(key)
                if entry is None:
                    state = self._new(index, copies)
                elif rules.decide_again(entry):
                    state = _decided_again(index, copies, entry)
                else:
                    state = _served(f"{name}-{index}", copies, entry)
                if state is not None:
                    guards.append(Guard(key, mod_rev=ABSENT if entry is None else entry.mod_rev))
                    ops.append(Put(key, encode_partition(state)))
            if ops:
                revision = await self.store.commit(guards, ops)
        return revision

    async def _leave_epochs_out(self, decided: Collection[str]) -> None:
        """Let what nobody has a copy of be led in epochs that no copy has seen.

        The metadata may be older than a copy that is away, and nobody says how much. ``decided``:
        the keys of all other partitions.
        """
        entries, _ = await self.store.scan(self.keys.partitions)
        absent = [entry for entry in entries if entry.key not in decided]
        for begin in range(0, len(absent), AT_ONCE):
            some = absent[begin : begin + AT_ONCE]
            guards = [Guard(entry.key, mod_rev=entry.mod_rev) for entry in some]
            ops = [Put(entry.key, _in_later_epoch(entry)) for entry in some]
            await self.store.commit(guards, ops)

    def _new(self, index: int, copies: Copies) -> PartitionState | None:
        if copies:
            return decide(index, copies, may_be_more=self.alone is None)
        assert self.alone is not None, "others may be to come"
        return PartitionState((self.alone,), (self.alone,), self.alone, LeaderEpoch(0), 0)


class _Present(NamedTuple):
    """A topic as it is, or will be when something is added."""

    entry: Entry | None
    """What the store has of the name; None: nothing."""
    value: TopicValue
    former: TopicId | None = None
    """The topic whose name it has now; None: there is none, as far as the store knows."""

    @property
    def is_new(self) -> bool:
        """Tell whether the store knows no configs of it."""
        return self.entry is None or self.former is not None


class _Rules(NamedTuple):
    """What of the store's states is decided again."""

    unsettled: Unsettled | None
    lacking: Collection[NodeId]
    decided: set[str]
    """Use: the keys of partitions of which some node has a copy, so far."""

    def decide_again(self, entry: Entry) -> bool:
        """Tell whether nobody serves a partition by what the store has of it."""
        if self.unsettled is Unsettled.COPIES:
            return decode_partition(entry.value).is_in_doubt(self.lacking)
        return self.unsettled is not None


def _in_later_epoch(entry: Entry) -> bytes:
    state = decode_partition(entry.value)
    epoch = LeaderEpoch(state.leader_epoch + EPOCHS_LEFT_OUT)
    state = state._replace(leader_epoch=epoch, partition_epoch=state.partition_epoch + 1)
    return encode_partition(state)


def _tell_of_kept(topics: Sequence[str]) -> None:
    more = len(topics) - NAMED_MAX
    logger.warning(
        "the configs of topics that were taken in are not known (those that had any), so all their"
        " records are kept (%s) until you say otherwise, for example by ottla config set"
        " topic/%s cleanup.policy=compact; ottla config unset topic/%s %s lets the defaults hold."
        " Set others anew, too, such as min.insync.replicas. The topics: %s%s",
        " ".join(f"{key}={text}" for key, text in KEPT_WHOLE.items()),
        topics[0],
        topics[0],
        " ".join(KEPT_WHOLE),
        ", ".join(topics[:NAMED_MAX]),
        f" and {more} more" if more > 0 else "",
    )


def _of_topic(
    name: str, topic_id: TopicId, partitions: Mapping[int, Copies]
) -> dict[int, dict[NodeId, Copy]]:
    """Return the copies that are of this topic, or do not say; tell which are of another one."""
    found: dict[int, dict[NodeId, Copy]] = {}
    for index, copies in partitions.items():
        for node, copy in copies.items():
            if copy.topic_id in (None, topic_id):
                found.setdefault(index, {})[node] = copy
            else:
                logger.error(
                    "%s-%d: other nodes have another topic of this name; %s stays as it is",
                    name,
                    index,
                    copy.directory,
                )
    return found


def _served(name: str, copies: Copies, entry: Entry) -> PartitionState | None:
    """Return what a partition should be that may have been served; None: it is right as it is."""
    state = decode_partition(entry.value)
    others = {node: copy for node, copy in copies.items() if node not in state.replicas}
    if not others:
        return None  # By a start that was cut short.
    for copy in others.values():
        logger.error(
            "%s: a copy on node %d is served; %s stays as it is", name, state.leader, copy.directory
        )
    epoch = epoch_above(others)
    if state.leader_epoch >= epoch:
        return None
    return state._replace(leader_epoch=epoch, partition_epoch=state.partition_epoch + 1)


def _decided_again(index: int, copies: Copies, entry: Entry) -> PartitionState | None:
    """Return what a partition should be that nobody has served; None: it is right as it is.

    The metadata may be older than the copies, or newer: its leader epoch has been seen by clients,
    and its further replicas get a copy again.
    """
    before = decode_partition(entry.value)
    if not copies:
        return None
    state = decide(index, copies, may_be_more=True)
    lacking = [node for node in before.replicas if node not in state.replicas]
    spare = max(len(before.replicas) - len(state.replicas), 0)
    state = state._replace(replicas=(*state.replicas, *lacking[:spare]))
    is_decided = before[:3] == state[:3] and before.leader_epoch >= state.leader_epoch
    if is_decided:
        return None  # By a start that was cut short.
    epoch = max(state.leader_epoch, LeaderEpoch(before.leader_epoch + 1))
    return state._replace(leader_epoch=epoch, partition_epoch=before.partition_epoch + 1)
