"""A KIP-848 group: members, epochs, targets, and who holds which partition. Pure.

    Empty --a member joins--> Assigning --a target is computed--> Reconciling --all there--> Stable

The state of the group follows from its members, each of which is by itself on its way to its target
(``consumer.member``). What all members ask for together is counted as they change: see ``Tally``.
What an event does is in ``consumer.machine`` and ``consumer.reconcile``; only ``replay`` of
``consumer.records`` changes a group. Source: KIP-848; Kafka 4.3, asked.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from ottla.coordinator.group.classic.group import CONSUMER_PROTOCOL_TYPE
from ottla.coordinator.group.consumer.member import ConsumerMember, MemberState, Target
from ottla.coordinator.group.consumer.tally import NO_CHANGE, Change, Tally
from ottla.coordinator.group.registry import Committer, GroupKind, check_is_empty
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId

FIRST_EPOCH = 1
"""A group's epoch before its first member joins, which makes it 2."""


class ConsumerGroupState(Enum):
    """The value is what ListGroups and ConsumerGroupDescribe say."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched."""

    topics: frozenset[str]
    version: int
    """The metadata revision it was matched against."""
    timestamp_ms: int


class ConsumerGroup:
    """One group. See the module. Only replay changes it."""

    kind = GroupKind.CONSUMER
    protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        """Use: grows with every change of members, subscriptions or their topics."""
        self.metadata_hash = 0
        """Use: of the topics subscribed to when the epoch grew last; 0: none."""
        self.assignment_epoch = 0
        """Use: the epoch that ``targets`` are for. Invariant: not above ``epoch``."""
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.tally = Tally()
        """Invariant: counts exactly ``members``."""
        self.static_members: dict[str, str] = {}
        """Member ids by instance id. Invariant: exactly the members that have one."""
        self.targets: dict[str, Target] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.owners: dict[tuple[TopicId, int], str] = {}
        """Who holds a partition. Invariant: exactly what members have assigned or revoking."""
        self.is_stale = True
        """Use: topics may have changed since the epoch grew last: the next heartbeat looks."""
        self.topics_changed: set[str] | None = None
        """Use: which ones, for the expressions; None: any may have (the group was just loaded)."""

    @property
    def state(self) -> ConsumerGroupState:
        """See the module."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if self.tally.settled[self.assignment_epoch] == len(self.members):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def member(self, member_id: str) -> ConsumerMember:
        """Return a member. Raises KafkaError (UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            why = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, why)
        return member

    def static_member(self, instance_id: str, member_id: str) -> ConsumerMember:
        """Return a member by its name. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        known_id = self.static_members.get(instance_id)
        if known_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if known_id != member_id:
            why = f"Static member {member_id} with instance id {instance_id} was fenced by member "
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"{why}{known_id}.")
        return self.members[known_id]

    def takes_classic(self, protocol_type: str, names: Collection[str]) -> bool:
        """Tell whether a member of the classic protocol with these assignors may join."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        return any(self.tally.protocols[name] == self.tally.classic for name in names)

    def topics_of(
        self, member: ConsumerMember, regexes: Mapping[str, ResolvedRegex]
    ) -> frozenset[str]:
        """Return what a member reads, by name, with what its expression matched."""
        names = frozenset(member.topics)
        resolved = regexes.get(member.regex) if member.regex else None
        return names if resolved is None else names | resolved.topics

    def is_subscribed_to(self, topic: str) -> bool:
        """Tell whether a member reads ``topic``."""
        return topic in self.tally.topics or any(
            topic in self.regexes[regex].topics
            for regex in self.tally.regexes
            if regex in self.regexes
        )

    def topics_read(
        self, regexes: Mapping[str, ResolvedRegex], change: Change = NO_CHANGE
    ) -> set[str]:
        """Return the names of all topics that the members read after ``change``."""
        named, matching = self.tally.topics_after(change), self.tally.regexes_after(change)
        names = set(self.tally.topics)
        names -= named.lost
        names |= named.gained
        for regex in (self.tally.regexes.keys() - matching.lost) | matching.gained:
            if regex in regexes:
                names |= regexes[regex].topics
        return names

    def may_be_concerned(self, topics: Collection[str]) -> bool:
        """Tell whether a change of ``topics`` may change what the members read."""
        return bool(self.tally.regexes) or any(name in self.tally.topics for name in topics)

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    # Its offsets.

    def check_commit(self, commit: Committer) -> None:
        """Raise KafkaError unless the offsets may be written."""
        is_nobody = (commit.member_id, commit.instance_id, commit.generation) == ("", None, -1)
        if commit.is_transactional and is_nobody:
            return
        is_old = not commit.is_transactional and not commit.tells_unknown_group
        member = self.members.get(commit.member_id)
        if is_old and member is not None and member.classic is None:
            why = "the consumer protocol needs OffsetCommit v9"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, why)
        try:
            self._check_committed(commit.member_id, commit.generation, commit.places())
        except KafkaError as error:
            if commit.is_transactional and error.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.why) from error
            raise

    def _check_committed(
        self, member_id: str, epoch: int, places: Iterable[tuple[TopicId, int]]
    ) -> None:
        """Raise KafkaError unless the member may commit these partitions in ``epoch``.

        A member that has gone on since may commit what it has had all the time (KIP-1251).
        """
        if epoch < 0 and not self.members:
            return
        member = self.member(member_id)
        if epoch == member.epoch:
            return
        if epoch > member.epoch:
            raise _stale(member, epoch)
        for topic_id, number in places:
            since = member.assigned.get(topic_id, {}).get(number)
            if since is None:
                since = member.revoking.get(topic_id, {}).get(number)
            if since is None or epoch < since:
                raise _stale(member, epoch)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise KafkaError (UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH) unless that member may read."""
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise _stale(member, epoch)

    def check_offset_delete(self) -> None:
        """Let offsets be deleted of topics that nobody reads."""

    def check_delete(self) -> None:
        """Raise KafkaError (NON_EMPTY_GROUP) unless the group has no members."""
        check_is_empty(self)

    def retained_from_ms(self, topic: str, commit_timestamp_ms: int) -> int | None:
        """Return from when on the retention of an offset counts; None: the group keeps it."""
        return None if self.is_subscribed_to(topic) else commit_timestamp_ms

    # What replay does.

    def put(self, member: ConsumerMember) -> None:
        """Take a member as it is now."""
        old = self.members.get(member.member_id)
        if old is not None:
            self._release(old)
        if old is not None and old.instance_id is not None:
            self._forget_instance(old)
        self.members[member.member_id] = member
        self.tally.replace(old, member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for partitions in (member.assigned, member.revoking):
            for topic_id, numbers in partitions.items():
                for number in numbers:
                    self.owners[topic_id, number] = member.member_id

    def remove(self, member_id: str) -> None:
        """Forget a member. Its target has a record of its own."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self.tally.replace(member, None)
            self._release(member)
            self._forget_instance(member)

    def _release(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.revoking):
            for topic_id, numbers in partitions.items():
                for number in numbers:
                    if self.owners.get((topic_id, number)) == member.member_id:
                        del self.owners[topic_id, number]

    def _forget_instance(self, member: ConsumerMember) -> None:
        instance_id = member.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    def check(self) -> None:
        """Assert the invariants; for tests."""
        assert self.assignment_epoch <= self.epoch
        self.tally.check(self.members.values())
        held: dict[tuple[TopicId, int], str] = {}
        for member_id, member in self.members.items():
            assert member.member_id == member_id
            assert member.state is MemberState.UNREVOKED_PARTITIONS or not member.revoking
            for partitions in (member.assigned, member.revoking):
                for topic_id, numbers in partitions.items():
                    assert numbers, "no topic without partitions"
                    for number in numbers:
                        other = held.setdefault((topic_id, number), member_id)
                        assert other == member_id, f"{number} is held by {other} and {member_id}"
        assert held == self.owners
        assert self.static_members == {
            member.instance_id: member_id
            for member_id, member in self.members.items()
            if member.instance_id is not None
        }


def _stale(member: ConsumerMember, epoch: int) -> KafkaError:
    why = f"The received member epoch {epoch} does not match the expected member epoch "
    is_classic = member.classic is not None
    code = ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
    return KafkaError(code, f"{why}{member.epoch}.")
