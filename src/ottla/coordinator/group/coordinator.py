"""The group coordinator of this node: what the handlers of group and offset requests talk to.

Finds the shard of a group, checks what can be checked before its turn, and lets the operation run
in its turn. Every answer is a value or a KafkaError, never an exception: which field an error goes
to is the handler's business. Source: Kafka's GroupCoordinatorService.
"""

from __future__ import annotations  # else those of inner functions are made at each call

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import NamedTuple, TypeVar

from ottla.cluster.arriving import Arriving
from ottla.coordinator.group import records
from ottla.coordinator.group.classic import events
from ottla.coordinator.group.classic.group import ClassicGroup, GroupState, Member
from ottla.coordinator.group.committing import CommitRequest
from ottla.coordinator.group.configs import GroupConfigs
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.machine import (
    Heartbeat,
    HeartbeatAnswer,
    check_heartbeat,
)
from ottla.coordinator.group.offset_write import NewGroups, OffsetWrite
from ottla.coordinator.group.offsets import CommittedOffset, OffsetKey
from ottla.coordinator.group.registry import GroupKind
from ottla.coordinator.group.settings import GroupSettings
from ottla.coordinator.group.shard import Groups, GroupsShard
from ottla.coordinator.records import CoordinatorRecord, EndMarker
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.shard import ShardState
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.metadata.image import MetadataDelta, MetadataImage
from ottla.metadata.keys import ConfigType
from ottla.pending import Pending
from ottla.protocol.compiler import STRING_BYTES_MAX

Value = TypeVar("Value")


class _Turn(Enum):
    """When an operation runs, beside others on its shard."""

    IN_ORDER = "in order"
    ALONE = "alone"
    """After what came before is durable; what comes later waits. See ``Shard``."""
    AT_ONCE = "at once"
    """It only reads."""


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
    """Empty unless the group is stable; members' metadata is told for it only."""
    members: tuple[Member, ...]


class GroupCoordinator:
    """See the module. All methods are for the loop; none blocks."""

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
            shard.machine.consumers.topics_changed(names)

    def hosted(self, where: TopicPartition) -> None:
        """Load a partition that has been made since the image told of it."""
        self._runtime.hosted(where)

    def stop(self) -> None:
        """Let go of all groups; members that wait are sent away."""
        self._runtime.close()

    # Classic groups.

    def join(
        self, group_id: str, make_event: Callable[[object, bool], events.Join]
    ) -> Pending[events.JoinAnswer | KafkaError]:
        """Let a member join; answered when the rebalance is over.

        ``make_event`` is given who waits, and whether the group is new.
        """

        def run(shard: GroupsShard, pending: Pending[events.JoinAnswer | KafkaError]) -> None:
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
    ) -> Pending[events.SyncAnswer | KafkaError]:
        """Take a leader's assignment, or hand one out; answered when it is durable."""

        def run(shard: GroupsShard, pending: Pending[events.SyncAnswer | KafkaError]) -> None:
            requests = shard.machine.requests_to(group_id)
            requests.sync(group_id, make_event(pending), pending)

        return self._in_turn_of_group(group_id, run)

    def heartbeat(
        self, group_id: str, make_event: Callable[[object], events.Heartbeat]
    ) -> Pending[ErrorCode | KafkaError]:
        """Keep a member alive."""

        def run(shard: GroupsShard, pending: Pending[ErrorCode | KafkaError]) -> None:
            requests = shard.machine.requests_to(group_id)
            requests.heartbeat(group_id, make_event(pending), pending)

        return self._in_turn_of_group(group_id, run)

    def leave(
        self, group_id: str, members: Sequence[events.LeavingMember]
    ) -> Pending[tuple[events.LeaveAnswer, ...] | KafkaError]:
        """Take members out of a group."""

        def run(
            shard: GroupsShard, pending: Pending[tuple[events.LeaveAnswer, ...] | KafkaError]
        ) -> None:
            shard.machine.requests_to(group_id).leave(group_id, members, pending)

        return self._in_turn_of_group(group_id, run)

    # KIP-848 groups.

    def consumer_heartbeat(
        self, group_id: str, beat: Heartbeat
    ) -> Pending[HeartbeatAnswer | KafkaError]:
        """Let a member join, live on, take a step to its target, or leave."""

        def run(shard: GroupsShard, pending: Pending[HeartbeatAnswer | KafkaError]) -> None:
            if beat.epoch == 0 and group_id not in shard.machine.groups:
                self._check_room(group_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
                pending = _before(pending, self._arriving.begin(group_id))
            shard.machine.consumers.heartbeat(group_id, beat, pending)

        try:
            check_heartbeat(beat, group_id)
        except KafkaError as error:
            refused: Pending[HeartbeatAnswer | KafkaError] = Pending()
            refused.resolve(error.as_value())
            return refused
        return self._in_turn_of_group(group_id, run)

    def describe_consumer_group(self, group_id: str) -> Pending[ConsumerGroup | KafkaError]:
        """Return a KIP-848 group, to be looked at at once; GROUP_ID_NOT_FOUND if it is none."""

        def run(shard: GroupsShard, pending: Pending[ConsumerGroup | KafkaError]) -> None:
            pending.resolve(shard.machine.consumers.group(group_id))

        return self._in_turn(group_id, run, turn=_Turn.AT_ONCE)

    # Offsets.

    def commit(self, request: CommitRequest) -> Pending[list[ErrorCode] | KafkaError]:
        """Write offsets; answered when they are durable. One code per commit, in order."""
        pending: Pending[list[ErrorCode] | KafkaError] = Pending()
        self.commit_then(request, pending.resolve)
        return pending

    def commit_then(
        self, request: CommitRequest, told: Callable[[list[ErrorCode] | KafkaError], None]
    ) -> None:
        """Do as ``commit``, but call ``told``, perhaps before this returns."""
        try:
            if not request.group_id and request.producer is not None:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group has a name")
            shard = self._runtime.shard_for(request.group_id)
        except KafkaError as error:
            told(error.as_value())
            return
        write = OffsetWrite(shard, request, told, self._new_groups)
        shard.execute(write.run, write.resolve)

    def end_transaction(
        self, partition: int, batch: bytearray, marker: EndMarker, transaction_version: int
    ) -> Pending[KafkaError | None]:
        """Write a transaction's marker into a partition of the topic; done when it counts."""
        ended: Pending[KafkaError | None] = Pending()
        shard = self._runtime.shard_of(partition)
        if shard is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ended.resolve(KafkaError(code, f"{self._runtime.topic}-{partition}"))
        else:
            shard.execute(
                lambda: shard.append_marker(
                    batch, marker, ended.resolve, transaction_version=transaction_version
                ),
                ended.resolve,
            )
        return ended

    def partitions_of(
        self, group_id: str, *, require_stable: bool
    ) -> Pending[list[tuple[str, int]] | KafkaError]:
        """Return the partitions that a group has committed offsets of; see ``fetch_offsets``."""

        def run(shard: GroupsShard, pending: Pending[list[tuple[str, int]] | KafkaError]) -> None:
            topics = shard.machine.offsets.of_group(group_id)
            pending.resolve(
                [(topic, index) for topic, committed in topics.items() for index in committed]
            )

        turn = _Turn.ALONE if require_stable else _Turn.AT_ONCE
        return self._in_turn(group_id, run, empty_id=True, turn=turn)

    def fetch_offsets(
        self,
        group_id: str,
        wanted: Sequence[tuple[str, int]],
        *,
        require_stable: bool,
        member: tuple[str | None, int] = (None, -1),
    ) -> Pending[list[FetchedOffset] | KafkaError]:
        """Return durable offsets, of ``wanted`` in its order.

        With ``require_stable`` one that a transaction is about to change is refused
        (UNSTABLE_OFFSET_COMMIT), and commits on their way are waited for. ``member``, an id and an
        epoch, counts for groups of the consumer protocol; None and -1: of no member.
        """

        def run(shard: GroupsShard, pending: Pending[list[FetchedOffset] | KafkaError]) -> None:
            offsets = shard.machine.offsets
            group = shard.machine.groups.get(group_id)
            if group is not None:
                group.check_fetch(*member)
            found = []
            for topic, partition in wanted:
                if require_stable and offsets.is_pending(group_id, topic, partition):
                    code = ErrorCode.UNSTABLE_OFFSET_COMMIT
                    found.append(FetchedOffset(topic, partition, None, code))
                else:
                    committed = shard.machine.committed(group_id, topic, partition)
                    found.append(FetchedOffset(topic, partition, committed))
            pending.resolve(found)

        turn = _Turn.ALONE if require_stable else _Turn.AT_ONCE
        return self._in_turn(group_id, run, empty_id=True, turn=turn)

    def delete_offsets(
        self, group_id: str, wanted: Sequence[tuple[str, int]]
    ) -> Pending[list[ErrorCode] | KafkaError]:
        """Forget offsets; answered when that is durable. One code each, in order."""

        def run(shard: GroupsShard, pending: Pending[list[ErrorCode] | KafkaError]) -> None:
            machine = shard.machine
            group = machine.groups.known(group_id)
            group.check_offset_delete()
            known = set(machine.offsets.all_of_group(group_id))
            codes: list[ErrorCode] = []
            found: list[CoordinatorRecord] = []
            for topic, partition in wanted:
                if group.is_subscribed_to(topic):
                    codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                    continue
                codes.append(ErrorCode.NONE)
                if (topic, partition) in known:
                    key = OffsetKey(group_id, topic, partition)
                    found.append(records.offset_tombstone(key))

            shard.append_each(
                found, lambda error: pending.resolve(codes if error is None else error)
            )

        return self._in_turn(group_id, run, turn=_Turn.ALONE)

    # Admin.

    def list_groups(
        self, states: Collection[str], types: Collection[str]
    ) -> list[ListedGroup] | KafkaError:
        """Return the groups this node coordinates, filtered; empty filters let all through.

        An error while any of its shards is loading: the list would have a hole.
        """
        states = {state.lower() for state in states}
        wanted = {one.lower() for one in types} or {kind.value for kind in GroupKind}
        found: list[ListedGroup] = []
        for shard in self._runtime.shards:
            if shard.state is ShardState.LOADING:
                why = f"{shard.where} is loading"
                return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, why)
            found += [
                ListedGroup(one.group_id, one.protocol_type or "", one.state.value, one.kind.value)
                for one in shard.machine.groups
                if one.kind.value in wanted
            ]
        return [group for group in found if not states or group.state.lower() in states]

    def describe_group(self, group_id: str) -> Pending[DescribedGroup | KafkaError]:
        """Return a group's members; GROUP_ID_NOT_FOUND when there is no such group."""

        def run(shard: GroupsShard, pending: Pending[DescribedGroup | KafkaError]) -> None:
            group = shard.machine.classic.group(group_id)
            is_stable = group.state is GroupState.STABLE
            protocol = (group.protocol or "") if is_stable else ""
            pending.resolve(DescribedGroup(group, protocol, tuple(group.members.values())))

        return self._in_turn(group_id, run, empty_id=True, turn=_Turn.AT_ONCE)

    def delete_group(self, group_id: str) -> Pending[KafkaError | None]:
        """Delete an empty group and all its offsets; answered when that is durable."""

        def run(shard: GroupsShard, pending: Pending[KafkaError | None]) -> None:
            shard.machine.groups.known(group_id).check_delete()
            shard.append_each(shard.machine.tombstones_of_group(group_id), pending.resolve)

        return self._in_turn(group_id, run, empty_id=True, turn=_Turn.ALONE)

    # Common.

    def _check_room(self, group_id: str, code: ErrorCode) -> None:
        """Raise KafkaError of that code if there may not be one more group."""
        limit = self._settings.groups_max
        count = len(self._arriving) + sum(
            len(shard.machine.groups) for shard in self._runtime.shards
        )
        if count >= limit and group_id not in self._arriving:
            raise KafkaError(code, f"there are {count} groups; ottla.groups.max is {limit}")

    def _in_turn_of_group(
        self, group_id: str, run: Callable[[GroupsShard, Pending[Value | KafkaError]], None]
    ) -> Pending[Value | KafkaError]:
        """Run an operation of a member: behind what its group is writing."""

        def in_turn(shard: GroupsShard, pending: Pending[Value | KafkaError]) -> None:
            shard.machine.consumers.line.in_turn(
                group_id, lambda: run(shard, pending), pending.resolve
            )

        return self._in_turn(group_id, in_turn)

    def _in_turn(
        self,
        group_id: str,
        run: Callable[[GroupsShard, Pending[Value | KafkaError]], None],
        *,
        empty_id: bool = False,
        turn: _Turn = _Turn.IN_ORDER,
    ) -> Pending[Value | KafkaError]:
        """Run an operation on a group's shard. ``empty_id``: "" is a group like any other."""
        try:
            if not group_id and not empty_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group has a name")
            shard = self._runtime.shard_for(group_id)
        except KafkaError as error:
            refused: Pending[Value | KafkaError] = Pending()
            refused.resolve(error.as_value())
            return refused
        if turn is _Turn.AT_ONCE:
            return shard.look(lambda pending: run(shard, pending))
        return shard.answer(lambda pending: run(shard, pending), alone=turn is _Turn.ALONE)


def _topics_resized(delta: MetadataDelta) -> set[str]:
    """Return the topics that came, went, or have other partitions."""
    names = {topic.name for topic in (*delta.topics_created, *delta.topics_deleted)}
    for change in delta.partitions:
        if change.old is None or change.new is None or change.old.replicas != change.new.replicas:
            names.add(change.topic)
    return names


def _before(pending: Pending[Value], first: Callable[[], None]) -> Pending[Value]:
    """Return what resolves ``pending``, after calling ``first``."""
    ahead: Pending[Value] = Pending()

    def done(_: Pending[Value]) -> None:
        first()
        pending.take_over(ahead)

    ahead.on_done(done)
    return ahead
