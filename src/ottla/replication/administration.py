"""What people ask of replicas: other leaders, other places, and what is under way there.

Any node serves these requests: each is a compare-and-set of the partition's key, of which the
leader and all others hear by the image. What the next state is, ``elections`` says; here a request
is checked, and refused as a live Kafka 4.3 does. A change is guarded by the key, by the topic's, so
that whoever deletes it knows who may have got a directory, and by the registration, or absence, of
the leader it names: so a write never hides from the controller that a leader's process is newer
than its grant. Knows no wire. Source: KIP-455, KIP-460, KIP-860.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from enum import Enum
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

from ottla.cluster.in_time import Patience, each_in_time
from ottla.cluster.topics import checked_assignment
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NodeId, TopicId, TopicPartition
from ottla.metadata.answering import store_answers
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.store import Guard, GuardFailed, MetadataStore
from ottla.metadata.values import (
    BrokerState,
    PartitionState,
    UnreadableValue,
    decode_partition,
)
from ottla.pending import Pending
from ottla.replication.elections import (
    begin_reassignment,
    cancel_reassignment,
    elect,
    elect_preferred,
    elect_unclean,
    grant_anew,
)
from ottla.replication.elector import ElectionRules
from ottla.replication.judged import commit_of, leaders_registration

AT_ONCE = 40
"""Partitions in one commit: each has a guard, and so may its topic and its leader; that is as many
as a commit takes."""

Outcome = KafkaError | None
"""What becomes of one partition; None: it is as wanted."""
_Asked = TypeVar("_Asked")


class Election(Enum):
    """Who is to lead."""

    PREFERRED = 0
    UNCLEAN = 1


class Move(NamedTuple):
    """Where a partition's replicas are to be."""

    where: TopicPartition
    replicas: Sequence[int] | None
    """None: where they were before a reassignment that is under way."""


class _Task(NamedTuple):
    where: TopicPartition
    plan: Callable[[PartitionState], PartitionState]
    """Returns the next state; the same object: it is right already. Raises KafkaError."""


class _Change(NamedTuple):
    key: Guard
    nodes: tuple[Guard, ...]
    """The topic, and the leader's registration, or that it has none."""
    state: PartitionState


class ReplicaAdministration:
    """Elections and reassignments that clients ask for."""

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        follower: ImageFollower,
        rules: Callable[[str], ElectionRules],
    ) -> None:
        """``rules``: a topic's."""
        self._store = store
        self._keys = keys
        self._follower = follower
        self._image = follower.image
        self._rules = rules

    # Elections.

    def elect(
        self, election: Election, partitions: Sequence[TopicPartition], patience: Patience
    ) -> Pending[list[Outcome]]:
        """Let other replicas lead; the Pending gets one outcome per partition, in order.

        UNKNOWN_TOPIC_OR_PARTITION has no text of its own: it is told in the words of each API.
        """
        plan = self._prefer if election is Election.PREFERRED else self._elect_unclean
        return self._carry_out(
            partitions, lambda where: _Task(where, partial(plan, where)), patience
        )

    def _prefer(self, where: TopicPartition, state: PartitionState) -> PartitionState:
        running = self._running()
        if state.replicas[:1] == (state.leader,) and state.leader in self._image.brokers:
            raise _not_needed()
        syncs = self._rules(where.topic).leader_syncs
        after = elect_preferred(state, running, leader_syncs=syncs)
        if after is state:
            why = "The preferred leader was not available."
            raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, why)
        return after

    def _elect_unclean(self, where: TopicPartition, state: PartitionState) -> PartitionState:
        live = self._image.brokers
        if state.leader in live:
            raise _not_needed()
        minimum, _, leader_syncs = self._rules(where.topic)
        led = elect(state, live, minimum, leader_syncs=leader_syncs)
        after = led if led.leader in live else elect_unclean(state, live)
        if after.leader not in live:
            why = "Eligible topic partition leaders are not available."
            raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, why)
        return after

    def _running(self) -> set[NodeId]:
        """Return the nodes that may lead more: those that do not stop, and have space."""
        return {
            node
            for node, broker in self._image.brokers.items()
            if broker.registration.state is BrokerState.RUNNING and not broker.registration.is_full
        }

    # Reassignments.

    def reassign(
        self, moves: Sequence[Move], patience: Patience, *, may_change_factor: bool
    ) -> Pending[list[Outcome]]:
        """Begin or cancel reassignments; the Pending gets one outcome for each, in order.

        ``may_change_factor``: whether partitions may get more or fewer replicas (KIP-860).
        """

        def task(move: Move) -> _Task:
            where, replicas = move
            if replicas is None:
                return _Task(where, lambda state: self._cancelled(state, where))
            return _Task(where, lambda state: self._begun(state, replicas, may_change_factor))

        return self._carry_out(moves, task, patience)

    def _begun(
        self, state: PartitionState, replicas: Sequence[int], may_change_factor: bool
    ) -> PartitionState:
        known = {*self._image.brokers, *state.replicas, *self._away(replicas)}
        target = checked_assignment(replicas, known)
        factor = len(state.replicas) - len(state.removing)
        if not may_change_factor and len(target) != factor:
            why = f"The replication factor is changed from {factor} to {len(target)}"
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, why)
        after = begin_reassignment(state, target)
        if after._replace(partition_epoch=state.partition_epoch) == state:
            return state
        return after

    def _away(self, nodes: Iterable[int]) -> list[NodeId]:
        """Return those of ``nodes`` that belong to the cluster, though they may be down."""
        mirror, key_of = self._follower.mirror, self._keys.known_broker
        return [node for node in map(NodeId, nodes) if mirror.get(key_of(node)) is not None]

    def _cancelled(self, state: PartitionState, where: TopicPartition) -> PartitionState:
        if not state.adding and not state.removing:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        minimum = self._rules(where.topic).min_insync_replicas
        after = cancel_reassignment(state, self._image.brokers, minimum)
        if after is None:
            why = (
                f"Unable to revert partition assignment for {where.topic}:{where.partition} because"
                " it would require an unclean leader election."
            )
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        return after

    # All.

    def heard(self, patience: Patience) -> Pending[list[Outcome]]:
        """Hear of what was done by way of other nodes before; the Pending gets one outcome."""

        async def nothing(_: None) -> Outcome:
            return None

        return each_in_time([None], nothing, patience, first=self._catch_up)

    def _carry_out(
        self, asked: Sequence[_Asked], task: Callable[[_Asked], _Task], patience: Patience
    ) -> Pending[list[Outcome]]:
        """Do what was asked; ``task`` is made of each when its turn comes: there may be many."""
        left = iter(asked)
        batches: list[list[_Asked]] = []
        while batch := list(islice(left, AT_ONCE)):
            batches.append(batch)

        def do(batch: list[_Asked]) -> Coroutine[None, None, list[Outcome]]:
            return self._do([task(one) for one in batch])

        def gathered(done: list[list[Outcome] | KafkaError]) -> list[Outcome]:
            found: list[Outcome] = []
            for batch, outcomes in zip(batches, done, strict=True):
                if isinstance(outcomes, KafkaError):
                    found += [outcomes] * len(batch)
                else:
                    found += outcomes
            return found

        return each_in_time(batches, do, patience, first=self._catch_up).then(gathered)

    async def _catch_up(self) -> None:
        """Hear of what was done by way of other nodes before. Raises KafkaError.

        Writes are guarded; that nothing is to be done is told by the image alone.
        """
        with store_answers():
            await self._follower.catch_up()

    async def _do(self, tasks: list[_Task]) -> list[Outcome]:
        """Commit what is to be changed together; what cannot be so, one after the other."""
        wheres = {task.where for task in tasks}
        if len(tasks) > 1 and len(wheres) == len(tasks):
            outcomes, changes = self._planned(tasks)
            if await self._is_committed(changes):
                return outcomes
        return [await self._do_one(task) for task in tasks]

    async def _do_one(self, task: _Task) -> Outcome:
        async def attempt() -> Outcome:
            (outcome,), changes = self._planned([task])
            await self._commit(changes)
            return outcome

        with store_answers():
            return await self._follower.mirror.contests.won(str(task.where), attempt)

    def _planned(self, tasks: list[_Task]) -> tuple[list[Outcome], list[_Change]]:
        outcomes: list[Outcome] = []
        changes: list[_Change] = []
        for task in tasks:
            try:
                change = self._change(task)
            except KafkaError as error:
                outcomes.append(error.as_value())
                continue
            outcomes.append(None)
            if change is not None:
                changes.append(change)
        return outcomes, changes

    def _change(self, task: _Task) -> _Change | None:
        """Return what is to be committed; None: nothing. Raises KafkaError."""
        where = task.where
        topic_id = self._known(where)
        key = self._keys.partition(topic_id, where.partition)
        entry = self._follower.mirror.get(key)
        topic = self._follower.mirror.get(self._keys.topic(where.topic))
        try:
            state = None if entry is None else decode_partition(entry.value)
        except UnreadableValue:
            state = None
        if entry is None or topic is None or state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        after = task.plan(state)
        if after is state:
            return None
        leader = self._image.brokers.get(after.leader)
        is_led_on = after.leader_epoch == state.leader_epoch and len(state.replicas) > 1
        if is_led_on and leader is not None and leader.epoch > entry.mod_rev:
            after = grant_anew(after)  # The controller would not see any more that it has to.
        nodes = (
            Guard(topic.key, create_rev=topic.create_rev),
            *leaders_registration(self._keys, after, None if leader is None else leader.epoch),
        )
        return _Change(Guard(key, mod_rev=entry.mod_rev), nodes, after)

    def _known(self, where: TopicPartition) -> TopicId:
        topic = self._image.topic(where.topic)
        if topic is None or not 0 <= where.partition < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.topic_id

    async def _is_committed(self, changes: list[_Change]) -> bool:
        """Commit, and wait until the image has it; False: a guard failed. Raises KafkaError."""
        try:
            with store_answers():
                await self._commit(changes)
        except GuardFailed:
            return False
        return True

    async def _commit(self, changes: list[_Change]) -> None:
        if changes:
            await self._follower.reached(await self._store.commit(*commit_of(changes)))


def _not_needed() -> KafkaError:
    why = "Leader election not needed for topic partition."
    return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, why)
