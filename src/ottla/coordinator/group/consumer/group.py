"""A KIP-848 group: members, epochs, targets, and who holds which partition. Pure.

    Empty --a member joins--> Assigning --a target is computed--> Reconciling --all there--> Stable

The state of the group follows from its members. Each member is by itself on its way to its target:

    STABLE --its target takes partitions away--> UNREVOKED_PARTITIONS --it has given them up-->
    STABLE, or UNRELEASED_PARTITIONS while others still hold what it is to get

What an event does is in ``consumer.machine`` and ``consumer.reconcile``; only ``replay`` of
``consumer.records`` changes a group. Source: KIP-848; Kafka 4.3, asked.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum, IntEnum
from typing import NamedTuple

from ottla.coordinator.group.classic.group import CONSUMER_PROTOCOL_TYPE, Protocol
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId

FIRST_EPOCH = 1
"""A group's epoch before its first member joins, which makes it 2."""
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""A static member is away and will be back."""

Partitions = Mapping[TopicId, Mapping[int, int]]
"""By topic: each partition, and the member epoch in which it was assigned."""
Target = Mapping[TopicId, frozenset[int]]
Owned = Mapping[TopicId, Collection[int]]
NO_PARTITIONS: Partitions = {}
NO_TARGET: Target = {}


class ConsumerGroupState(Enum):
    """The value is what ListGroups and ConsumerGroupDescribe say."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(IntEnum):
    """How far a member is with its target; the numbers stand in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


TRANSITIONS: Mapping[MemberState, frozenset[MemberState]] = {
    MemberState.STABLE: frozenset(
        (
            MemberState.STABLE,
            MemberState.UNREVOKED_PARTITIONS,
            MemberState.UNRELEASED_PARTITIONS,
        )
    ),
    MemberState.UNREVOKED_PARTITIONS: frozenset(
        (
            MemberState.STABLE,
            MemberState.UNREVOKED_PARTITIONS,
            MemberState.UNRELEASED_PARTITIONS,
        )
    ),
    MemberState.UNRELEASED_PARTITIONS: frozenset(
        (
            MemberState.STABLE,
            MemberState.UNREVOKED_PARTITIONS,
            MemberState.UNRELEASED_PARTITIONS,
        )
    ),
    MemberState.UNKNOWN: frozenset((MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS)),
}
"""What may follow each state at a heartbeat. UNKNOWN is a number of a later Kafka's log: its
member is fenced until it has nothing, and starts anew."""


class ClassicPart(NamedTuple):
    """What a member told in its JoinGroup that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    """In the order of its preference; the first one is what it is answered with."""


class ConsumerMember(NamedTuple):
    """One member: what it asked for, and how far it is."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """The names it subscribes to, sorted."""
    regex: str = ""
    """A regular expression for names it subscribes to as well; empty: none."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    epoch: int = 0
    """-2: a static member that is away."""
    previous_epoch: int = 0
    """The answer with ``epoch`` may have been lost: the member may still say this one."""
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    """What it must give up before it goes on. Invariant: empty unless UNREVOKED_PARTITIONS."""
    classic: ClassicPart | None = None
    """None: it speaks the consumer protocol."""

    def is_reconciled_to(self, epoch: int) -> bool:
        """Tell whether it has all that the target of ``epoch`` gives it, and nothing else."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    @property
    def subscription(self) -> tuple[tuple[str, ...], str]:
        """What it reads."""
        return self.topics, self.regex


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched."""

    topics: frozenset[str]
    version: int
    """The metadata revision it was matched against."""
    timestamp_ms: int


class ConsumerGroup:
    """One group. See the module. Only replay changes it."""

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
        if all(one.is_reconciled_to(self.assignment_epoch) for one in self.members.values()):
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
        known = [
            {one.name for one in member.classic.protocols}
            for member in self.members.values()
            if member.classic is not None
        ]
        return any(all(name in others for others in known) for name in names)

    def topics_of(
        self, member: ConsumerMember, regexes: Mapping[str, ResolvedRegex]
    ) -> frozenset[str]:
        """Return what a member reads, by name, with what its expression matched."""
        names = frozenset(member.topics)
        resolved = regexes.get(member.regex) if member.regex else None
        return names if resolved is None else names | resolved.topics

    def is_subscribed_to(self, topic: str) -> bool:
        """Tell whether a member reads ``topic``."""
        return any(
            topic in self.topics_of(member, self.regexes) for member in self.members.values()
        )

    def may_be_concerned(self, topics: Collection[str]) -> bool:
        """Tell whether a change of ``topics`` may change what the members read."""
        return any(
            member.regex or not topics_disjoint(member.topics, topics)
            for member in self.members.values()
        )

    # What replay does.

    def put(self, member: ConsumerMember) -> None:
        """Take a member as it is now."""
        old = self.members.get(member.member_id)
        if old is not None:
            self._release(old)
        if old is not None and old.instance_id is not None:
            self._forget_instance(old)
        self.members[member.member_id] = member
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


def topics_disjoint(some: Iterable[str], others: Collection[str]) -> bool:
    """Tell whether two sets of names have nothing in common."""
    return not any(name in others for name in some)
