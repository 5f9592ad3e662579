"""The group coordinator of this node, which the handlers of group and offset requests call.

Finds the shard of a group, checks what can be checked before its turn, and lets the operation run
in its turn. A Pending fails with the KafkaError of whatever refuses the operation; which field of
an answer the code goes to is the handler's business. Source: Kafka's GroupCoordinatorService.
"""

from __future__ import annotations  # else those of inner functions are made at each call

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from ottla.cluster.arriving import Arriving
from ottla.coordinator.group.classic import events
from ottla.coordinator.group.classic.group import ClassicGroup, GroupState, Member
from ottla.coordinator.group.consumer.configs import GroupConfigs
from ottla.coordinator.group.consumer.groups import ConsumerGroups
from ottla.coordinator.group.consumer.machine import (
    Heartbeat,
    HeartbeatAnswer,
    check_heartbeat,
)
from ottla.coordinator.group.offsets import records
from ottla.coordinator.group.offsets.committed import CommittedOffset, OffsetKey
from ottla.coordinator.group.offsets.committing import CommitRequest
from ottla.coordinator.group.offsets.offset_write import NewGroups, OffsetWrite
from ottla.coordinator.group.registry import Group, GroupKind
from ottla.coordinator.group.settings import GroupSettings
from ottla.coordinator.group.shard import Groups, GroupsShard
from ottla.coordinator.operations import Refuse
from ottla.coordinator.records import CoordinatorRecord, EndMarker
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.shard import ShardState
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.metadata.image import MetadataDelta, MetadataImage
from ottla.metadata.keys import ConfigType
from ottla.pending import Pending, failed
from ottla.protocol.compiler import STRING_BYTES_MAX
from ottla.sliced import STRIDE

Value = TypeVar("Value")


class FetchedOffset(NamedTuple):
    """One partition of an OffsetFetch. ``committed`` None: there is none, or ``code`` says why."""

    topic: str
    partition: int
    committed: CommittedOffset | None
    code: ErrorCode = ErrorCode.NONE


class ListedGroup(NamedTuple):
    """One group of ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class DescribedGroup(NamedTuple):
    """One group of DescribeGroups, as it is now."""

    group: ClassicGroup
    protocol: str
    """Empty unless the group is stable. The answer has members' metadata for this protocol only."""
    members: tuple[Member, ...]


class GroupCoordinator:
    """The coordinator of all groups of this node. Its methods run on the loop; none blocks."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[Groups],
        settings: GroupSettings,
        configs: GroupConfigs | None = None,
    ) -> None:
        """``configs`` None: no group has configs of its own."""
        self._runtime = runtime
        self._settings = settings
        self._configs = configs
        self._arriving = Arriving()
        self._new_groups = NewGroups(
            self._check_room, self._arriving.begin, settings.metadata_length_max
        )

    @property
    def runtime(self) -> CoordinatorRuntime[Groups]:
        """The shards, for FindCoordinator."""
        return self._runtime

    def start(self) -> None:
        """Load the shards that this node leads already."""
        if self._configs is not None:
            self._configs.take_all()
        self._runtime.load_all()

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow leaderships, and forget the offsets of topics that are gone."""
        del image
        if self._configs is not None:
            self._configs.take(name for kind, name in delta.configs if kind is ConfigType.GROUP)
        self._runtime.apply(delta)
        deleted = {topic.name for topic in delta.topics_deleted}
        for shard in self._runtime.shards if deleted else ():
            shard.machine.forget_topics(deleted)
        names = _topics_resized(delta)
        for shard in self._runtime.shards if names else ():
            shard.machine.topics_changed(names)

    def hosted(self, where: TopicPartition) -> None:
        """Load a partition whose log was made after the image named its leader."""
        self._runtime.hosted(where)

    def stop(self) -> None:
        """Close all shards; members that wait are refused."""
        self._runtime.close()

    # Classic groups.

    def join(
        self, group_id: str, make_event: Callable[[object, bool], events.Join]
    ) -> Pending[events.JoinAnswer]:
        """Let a member join; resolves when the rebalance has ended.

        ``make_event`` gets the Pending that waits, and whether the group is new.
        """

        def run(shard: GroupsShard, pending: Pending[events.JoinAnswer]) -> None:
            machine = shard.machine
            event = make_event(pending, machine.classic.is_new(group_id))
            self._check_join(event)
            if group_id not in machine.groups and not event.member_id:
                self._check_room(group_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
            machine.requests_to(group_id).join(group_id, event, pending)

        return self._in_turn_of_group(group_id, run)

    def _check_join(self, event: events.Join) -> None:
        settings = self._settings
        session_ms = event.session_timeout_ms
        if not settings.session_timeout_min_ms <= session_ms <= settings.session_timeout_max_ms:
            why = f"{session_ms} ms is not what a session may last"
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT, why)
        if len(event.new_member_id.encode()) > STRING_BYTES_MAX:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a member id that is too long")

    def sync(
        self, group_id: str, make_event: Callable[[object], events.Sync]
    ) -> Pending[events.SyncAnswer]:
        """Take a leader's assignment, or hand one out; resolves when the assignment is durable."""

        def run(shard: GroupsShard, pending: Pending[events.SyncAnswer]) -> None:
            requests = shard.machine.requests_to(group_id)
            requests.sync(group_id, make_event(pending), pending)

        return self._in_turn_of_group(group_id, run)

    def heartbeat(
        self, group_id: str, make_event: Callable[[object], events.Heartbeat]
    ) -> Pending[ErrorCode]:
        """Keep a member alive."""

        def run(shard: GroupsShard, pending: Pending[ErrorCode]) -> None:
            requests = shard.machine.requests_to(group_id)
            requests.heartbeat(group_id, make_event(pending), pending)

        return self._in_turn_of_group(group_id, run)

    def leave(
        self, group_id: str, members: Sequence[events.LeavingMember]
    ) -> Pending[tuple[events.LeaveAnswer, ...]]:
        """Take members out of a group."""

        def run(shard: GroupsShard, pending: Pending[tuple[events.LeaveAnswer, ...]]) -> None:
            shard.machine.requests_to(group_id).leave(group_id, members, pending)

        return self._in_turn_of_group(group_id, run)

    # KIP-848 groups.

    def consumer_heartbeat(self, group_id: str, beat: Heartbeat) -> Pending[HeartbeatAnswer]:
        """Let a member join, stay alive, take a step towards its target, or leave."""
        arrived: Callable[[], None] | None = None

        def run(shard: GroupsShard, pending: Pending[HeartbeatAnswer]) -> None:
            nonlocal arrived
            if beat.epoch == 0 and group_id not in shard.machine.groups:
                self._check_room(group_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
                arrived = self._arriving.begin(group_id)
            shard.machine.room(ConsumerGroups).heartbeat(group_id, beat, pending)

        def over() -> None:
            if arrived is not None:
                arrived()

        try:
            check_heartbeat(beat, group_id)
        except KafkaError as error:
            return failed(error.as_value())
        asked = self._in_turn_of_group(group_id, run)
        return _before(asked, over) if beat.epoch == 0 else asked

    # Offsets.

    def commit_offsets(self, request: CommitRequest) -> Pending[list[ErrorCode]]:
        """Write offsets; resolves when they are durable, with a code per partition, in order."""
        pending: Pending[list[ErrorCode]] = Pending()
        self.commit_offsets_then(request, pending.resolve, pending.fail)
        return pending

    def commit_offsets_then(
        self, request: CommitRequest, told: Callable[[list[ErrorCode]], None], refused: Refuse
    ) -> None:
        """Do as ``commit_offsets``, but call one of two functions, maybe before this returns."""
        try:
            if not request.group_id and request.producer is not None:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group has a name")
            shard = self._runtime.shard_for(request.group_id)
        except KafkaError as error:
            refused(error.as_value())
            return
        write = OffsetWrite(shard, request, told, refused, self._new_groups)
        shard.execute(write.run, write.refuse)

    def end_transaction(
        self, partition: int, batch: bytearray, marker: EndMarker, transaction_version: int
    ) -> Pending[None]:
        """Write a transaction's marker into a partition; resolves when memory has followed it."""
        ended: Pending[None] = Pending()
        shard = self._runtime.shard_of(partition)
        if shard is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ended.fail(KafkaError(code, f"{self._runtime.topic}-{partition}"))
        else:
            # What it stands behind in the shard's line may take a while.
            shard.partition.producers.void_verifications(marker.producer_id)
            append = partial(
                shard.append_marker,
                batch,
                marker,
                partial(ended.resolve, None),
                ended.fail,
                transaction_version=transaction_version,
            )
            shard.execute(append, ended.fail)
        return ended

    def partitions_of(
        self, group_id: str, *, require_stable: bool
    ) -> Pending[list[tuple[str, int]]]:
        """Return the partitions that a group has committed offsets of; see ``fetch_offsets``."""

        def read(machine: Groups) -> list[tuple[str, int]]:
            topics = machine.offsets.of_group(group_id)
            return [(topic, index) for topic, committed in topics.items() for index in committed]

        return self._read(group_id, read, empty_id=True, alone=require_stable)

    def fetch_offsets(
        self,
        group_id: str,
        wanted: Sequence[tuple[str, int]],
        *,
        require_stable: bool,
        member: tuple[str | None, int] = (None, -1),
    ) -> Pending[list[FetchedOffset]]:
        """Return the durable offsets of ``wanted``, in its order.

        With ``require_stable``, commits on their way are waited for, and an offset that an open
        transaction changes is refused (UNSTABLE_OFFSET_COMMIT). ``member``, an id and an epoch, is
        checked by groups of the consumer protocol; None and -1: the client names no member.
        """

        def read(machine: Groups) -> list[FetchedOffset]:
            offsets = machine.offsets
            group = machine.groups.get(group_id)
            if group is not None:
                group.check_offset_fetch(*member)
            found = []
            for topic, partition in wanted:
                if require_stable and offsets.is_pending(group_id, topic, partition):
                    code = ErrorCode.UNSTABLE_OFFSET_COMMIT
                    found.append(FetchedOffset(topic, partition, None, code))
                else:
                    committed = machine.committed(group_id, topic, partition)
                    found.append(FetchedOffset(topic, partition, committed))
            return found

        return self._read(group_id, read, empty_id=True, alone=require_stable)

    def delete_offsets(
        self, group_id: str, wanted: Sequence[tuple[str, int]]
    ) -> Pending[list[ErrorCode]]:
        """Delete offsets; resolves when that is durable, with a code for each, in order."""

        def run(shard: GroupsShard, pending: Pending[list[ErrorCode]]) -> None:
            machine = shard.machine
            group = machine.groups.known(group_id)
            group.check_offset_delete()
            known = set(machine.offsets.all_of_group(group_id))
            shard.in_steps(delete(shard, pending, group, known))

        def delete(
            shard: GroupsShard,
            pending: Pending[list[ErrorCode]],
            group: Group,
            known: set[tuple[str, int]],
        ) -> Iterator[None]:
            codes: list[ErrorCode] = []
            found: list[CoordinatorRecord] = []
            for count, (topic, partition) in enumerate(wanted, 1):
                if not count % STRIDE:
                    yield  # Members may read by a thousand expressions.
                if group.is_subscribed_to(topic):
                    codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                    continue
                codes.append(ErrorCode.NONE)
                if (topic, partition) in known:
                    key = OffsetKey(group_id, topic, partition)
                    found.append(records.offset_tombstone(key))
            answer = partial(pending.resolve, codes)
            shard.attempt(partial(shard.append_each, found, answer, pending.fail), pending.fail)

        return self._in_turn(group_id, run, alone=True)

    # Admin.

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        """Return the groups this node coordinates, filtered; empty filters let all through.

        Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS) while a shard is loading: the list would
        have a hole.
        """
        states = {state.lower() for state in states}
        wanted = {one.lower() for one in types}
        found: list[ListedGroup] = []
        for shard in self._runtime.shards:
            if shard.state is ShardState.LOADING:
                why = f"{shard.where} is loading"
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, why)
            found += [
                ListedGroup(one.group_id, one.protocol_type or "", one.state.value, one.kind)
                for one in shard.machine.groups
                if not wanted or one.kind in wanted
            ]
        return [group for group in found if not states or group.state.lower() in states]

    def describe(self, kind: GroupKind, group_id: str) -> Pending[Group]:
        """Return a group of one kind, to be read at once; fails with GROUP_ID_NOT_FOUND."""
        return self._read(group_id, lambda machine: machine.kinds[kind].groups.group(group_id))

    def describe_group(self, group_id: str) -> Pending[DescribedGroup]:
        """Return a classic group with its members; fails with GROUP_ID_NOT_FOUND."""

        def read(machine: Groups) -> DescribedGroup:
            group = machine.classic.group(group_id)
            is_stable = group.state is GroupState.STABLE
            protocol = (group.protocol or "") if is_stable else ""
            return DescribedGroup(group, protocol, tuple(group.members.values()))

        return self._read(group_id, read, empty_id=True)

    def delete_group(self, group_id: str) -> Pending[None]:
        """Delete an empty group and all its offsets; resolves when that is durable."""

        def run(shard: GroupsShard, pending: Pending[None]) -> None:
            shard.machine.groups.known(group_id).check_delete()
            tombstones = shard.machine.tombstones_of_group(group_id)
            shard.append_each(tombstones, partial(pending.resolve, None), pending.fail)

        return self._in_turn(group_id, run, empty_id=True, alone=True)

    # Common.

    def _check_room(self, group_id: str, code: ErrorCode) -> None:
        """Raise KafkaError with ``code`` if there may not be one more group."""
        limit = self._settings.groups_max
        count = len(self._arriving) + sum(
            len(shard.machine.groups) for shard in self._runtime.shards
        )
        if count >= limit and group_id not in self._arriving:
            raise KafkaError(code, f"there are {count} groups; ottla.groups.max is {limit}")

    def _in_turn_of_group(
        self, group_id: str, run: Callable[[GroupsShard, Pending[Value]], None]
    ) -> Pending[Value]:
        """Run an operation of a member in its turn: after what its group is writing."""

        def in_turn(shard: GroupsShard, pending: Pending[Value]) -> None:
            shard.machine.line.in_turn(group_id, lambda: run(shard, pending), pending.fail)

        return self._in_turn(group_id, in_turn)

    def _in_turn(
        self,
        group_id: str,
        run: Callable[[GroupsShard, Pending[Value]], None],
        *,
        empty_id: bool = False,
        alone: bool = False,
    ) -> Pending[Value]:
        """Run an operation on a group's shard. ``empty_id``: "" is a group like any other.

        ``alone``: when everything before it is durable; operations behind it wait. See ``Shard``.
        """
        try:
            shard = self._shard_for(group_id, empty_id=empty_id)
        except KafkaError as error:
            return failed(error.as_value())
        return shard.answer(lambda pending: run(shard, pending), alone=alone)

    def _read(
        self,
        group_id: str,
        read: Callable[[Groups], Value],
        *,
        empty_id: bool = False,
        alone: bool = False,
    ) -> Pending[Value]:
        """Read from the memory of a group's shard, at once unless ``alone``: see ``_in_turn``."""
        try:
            shard = self._shard_for(group_id, empty_id=empty_id)
        except KafkaError as error:
            return failed(error.as_value())

        def read_now() -> Pending[Value]:
            if not alone:
                return shard.look(lambda: read(shard.machine))
            return shard.answer(lambda pending: pending.resolve(read(shard.machine)), alone=True)

        return shard.surely(read_now)

    def _shard_for(self, group_id: str, *, empty_id: bool) -> GroupsShard:
        if not group_id and not empty_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group has a name")
        return self._runtime.shard_for(group_id)


def _topics_resized(delta: MetadataDelta) -> set[str]:
    """Return the topics that came, went, or have other partitions."""
    names = {topic.name for topic in (*delta.topics_created, *delta.topics_deleted)}
    for change in delta.partitions:
        if change.old is None or change.new is None or change.old.replicas != change.new.replicas:
            names.add(change.topic)
    return names


def _before(asked: Pending[Value], first: Callable[[], None]) -> Pending[Value]:
    """Return a Pending that ends as ``asked`` does, after ``first`` was called.

    A cancel does not reach ``asked``, so ``first`` is called in any case.
    """
    answer: Pending[Value] = Pending()

    def done(_: Pending[Value]) -> None:
        first()
        answer.take_over(asked)

    asked.on_done(done)
    return answer
